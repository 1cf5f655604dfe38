"""The registration of events: what may happen is read from the type of what the generator yields."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel
from typing_extensions import TypedDict

from leadsman import App, Context, Delivery, Device, Finds, OnChange, Router, Sensor
from leadsman.errors import ConfigurationError, InvalidType, InvalidValue


class Turn(Enum):
    LEFT = "left"
    RIGHT = "right"


class Press(BaseModel):
    event_type: Literal["single", "double"]
    battery: Annotated[int | None, Sensor("%", device_class="battery", deadband=5)] = None


class Hold(BaseModel):
    event_type: Literal["hold"]
    seconds: float


@dataclass
class Opened:
    event_type: Literal["open"]


class Tariff(TypedDict):
    event_type: Turn


def registered(kind, **options):
    """What the registration of a generator of these events is."""
    app = App("house")

    async def handler(context: Context) -> Any:
        yield None

    handler.__annotations__["return"] = AsyncIterator[kind]
    app.add_event("button", handler, **options)
    return app.sources["button"]


@pytest.mark.parametrize(
    ("kind", "types"),
    [
        (Literal["press", "release"], ("press", "release")),
        (Literal["press"] | None, ("press",)),
        (Turn, ("left", "right")),
        (Turn | Literal["press"], ("left", "right", "press")),
        (Press, ("single", "double")),
        (Press | Hold | None, ("single", "double", "hold")),
        (Opened, ("open",)),
        (Tariff, ("left", "right")),
        (Annotated[Literal["low", "high"], Sensor(name="Tariff")], ("low", "high")),
    ],
)
def test_what_may_happen_is_what_the_type_lists(kind, types):
    assert registered(kind).events.types == types


@given(st.lists(st.from_regex(r"[a-zé ]*[a-zé][a-zé ]*", fullmatch=True), min_size=1, max_size=20, unique=True))
def test_each_word_of_a_type_may_happen_once_and_in_its_order(words):
    assert registered(Literal[tuple(words)]).events.types == tuple(words)


def test_a_gateway_lists_the_events_of_the_devices_that_it_finds():
    assert registered(None, finds=Finds(Press)).events.types == ("single", "double")
    assert registered(Literal["ring"], finds=Finds(Hold)).events.types == ("ring", "hold")


@pytest.mark.parametrize(
    ("kind", "error", "message"),
    [
        (str, InvalidType, "lists no values"),
        (dict[str, str], InvalidType, "lists no values"),
        (Any, InvalidType, "lists no values"),
        (None, InvalidType, "lists no values"),
        (Press | dict[str, int], InvalidType, "lists no values"),
        (Press | str, InvalidType, "lists no values"),
        (Literal["press"] | str, InvalidType, "lists no values"),
        (Literal[1, 2], InvalidType, "event_type has the value 1; write text"),
        (Literal["press", ""], InvalidValue, "has the value ''"),
        (Literal["a\nb"], InvalidValue, "can read"),
        (list[str], InvalidType, "annotated to return list"),
    ],
)
def test_a_type_that_does_not_list_what_may_happen_is_refused(kind, error, message):
    with pytest.raises(error, match=f"event 'button': .*{message}"):
        registered(kind)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"stale_after": "5m"}, InvalidType, "'stale_after' is not an option"),
        ({"silence": "5m"}, InvalidType, "'silence' is not an option"),
        ({"filters": {}}, InvalidType, "'filters' is not an option"),
        ({"interval": 1}, InvalidType, "'interval' is not an option"),
        ({"device_class": "buton"}, InvalidValue, "did you mean 'button'"),
        ({"device_class": 3}, InvalidType, "write 'button'"),
        ({"expiry": 0}, InvalidValue, "expiry"),
        ({"expiry": float("nan")}, InvalidValue, "expiry"),
        ({"expiry": float("inf")}, InvalidValue, "expiry"),
        ({"expiry": "soon"}, InvalidValue, "expiry"),
        ({"publish": OnChange({"batery": 1})}, InvalidValue, "did you mean 'battery'"),
        ({"delivery": "once"}, InvalidType, "Delivery"),
    ],
)
def test_a_wrong_option_is_a_named_error(options, error, message):
    with pytest.raises(error, match=message):
        registered(Press, **options)


def test_an_event_is_never_retained_expires_after_ten_seconds_and_is_never_thinned_out_unasked():
    event = registered(Press)

    assert (event.delivery.retain, event.delivery.expiry, event.delivery.keep) == (False, 10.0, "all")
    assert event.publish is None
    assert registered(Press, publish=None).publish is None
    assert registered(Press, publish=OnChange()).publish == OnChange({"battery": 5})


def test_it_has_all_options_of_a_device():
    options = {"title": "Bell", "area": "Hall", "discoverable": False, "enabled": False, "needs": "gpio"}
    event = registered(Press, fields={"event_type": {"name": "Ring"}}, fixed={"expiry"}, **options)

    assert (event.title, event.area, event.discoverable, event.enabled) == ("Bell", "Hall", False, False)
    assert (event.labels, event.fixed) == (frozenset({"gpio"}), frozenset({"expiry"}))
    assert event.fields["event_type"].name == "Ring"


@pytest.mark.parametrize(
    ("options", "expiry"),
    [
        ({"expiry": "1m"}, 60.0),
        ({"expiry": None}, None),
        ({"delivery": Delivery(expiry="2m")}, 120.0),
        ({"delivery": Delivery(qos=0)}, 10.0),
        ({"delivery": Delivery(expiry="2m"), "expiry": None}, None),
    ],
)
def test_how_long_an_event_is_worth_something_is_an_option(options, expiry):
    event = registered(Press, **options)
    assert event.delivery.expiry == expiry
    assert event.delivery.retain is False


def test_it_is_an_async_generator_with_a_name_of_its_own():
    app = App("house")
    with pytest.raises(InvalidType, match="yield"):
        app.add_event("button", lambda: None)
    with pytest.raises(InvalidType, match=r"@app.event\('kitchen'\)"):
        app.event(lambda: None)
    app.add_telemetry("button", lambda: {"n": 1}, interval=1)

    async def press() -> AsyncIterator[Literal["press"]]:
        yield "press"

    with pytest.raises(InvalidValue, match="event 'button' is already registered"):
        app.add_event("button", press)


def test_routers_many_devices_and_the_root_device_have_events():
    router = Router("upstairs")

    @router.event({"bath": Device(device_class="button"), "hall": Device()})
    async def press() -> AsyncIterator[Literal["press"]]:
        yield "press"

    app = App("house")
    app.include(router)
    app.event(None)(press)

    classes = {name: each.events.device_class for name, each in app.sources.items()}
    assert classes == {"upstairs_bath": "button", "upstairs_hall": None, "house": None}


@pytest.mark.parametrize("first", ["event", "command"])
def test_a_device_that_sends_events_takes_no_commands(first):
    app = App("house")

    async def press() -> AsyncIterator[Literal["press"]]:
        yield "press"

    async def light(on: bool) -> None: ...

    steps = [lambda: app.add_event("bell", press), lambda: app.add_command("bell", light)]
    one, other = steps if first == "event" else reversed(steps)
    one()
    with pytest.raises(InvalidValue, match="'bell' sends events, so it takes no commands"):
        other()


def test_a_subscription_feeds_a_device_or_an_event_and_not_both():
    app = App("house")

    @app.subscribe("zigbee2mqtt/button/action", event="button", device_class="button", expiry="1m")
    async def action(payload: str) -> Literal["single", "double"] | None: ...

    assert app.sources["button"].events.types == ("single", "double")
    assert app.sources["button"].delivery.expiry == 60.0
    with pytest.raises(ConfigurationError, match="leave one of them out"):
        app.add_subscription("a/b", action, event="one", device="two")
    with pytest.raises(InvalidType, match="device_class"):
        app.add_subscription("a/c", action, device="two", device_class="button")
