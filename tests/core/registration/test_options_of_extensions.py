"""Options that an extension adds to a decorator."""

from pathlib import Path
from typing import Annotated, TypedDict

import pytest

from leadsman import App, Device, Router
from leadsman.core.extension import Extension
from leadsman.core.introspection.registrations import describe_registration
from leadsman.core.loop.durations import positive_seconds
from leadsman.core.registration.declaration import Option, own_options
from leadsman.core.settings.sources import Where
from leadsman.errors import ConfigurationError, InvalidType, InvalidValue


def number(value, name):
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidType(f"{name} is {value!r}; write a number")
    return float(value)


class AlarmOptions(TypedDict, total=False):
    alarm_above: Annotated[float | None, Option(number, notation="number")]
    alarm_after: Annotated[float, Option(positive_seconds, 60.0)]


class CommandAlarms(TypedDict, total=False):
    alarm_on_refusal: Annotated[bool, Option(lambda value, name: bool(value), False)]


class Alarm(Extension):
    name = "alarm"
    options = {  # noqa: RUF012  # as users write it
        **dict.fromkeys(("telemetry", "source", "event", "periodic"), AlarmOptions),
        "command": CommandAlarms,
    }


async def read() -> dict[str, float]:
    return {"t": 1.0}


async def listen():
    yield {"t": 1.0}


async def switch(on: bool) -> None:
    pass


def house(*extensions, **more):
    return App("house", mqtt="mqtt://broker", extensions=extensions or (Alarm(),), **more)


def test_a_registration_has_the_values_of_them_all_and_what_is_not_given_is_the_default():
    app = house()
    app.telemetry("boiler", interval=60, alarm_above=80)(read)
    app.telemetry("attic", interval=60)(read)
    app.source("meter", alarm_after="5m")(listen)
    app.command("valve", alarm_on_refusal=True)(switch)
    app.periodic("job", interval=60, alarm_above=1)(read)

    assert app.telemetries["boiler"].of_extensions == {"alarm_above": 80.0, "alarm_after": 60.0}
    assert app.telemetries["attic"].of_extensions == {"alarm_above": None, "alarm_after": 60.0}
    assert app.telemetries["job"].of_extensions["alarm_above"] == 1.0
    assert app.sources["meter"].of_extensions["alarm_after"] == 300.0
    assert app.commands["valve"].of_extensions == {"alarm_on_refusal": True}
    boiler = app.telemetries["boiler"]
    assert own_options(boiler.of_extensions, AlarmOptions) == {
        "alarm_above": 80.0,
        "alarm_after": 60.0,
    }


def test_an_app_without_extensions_has_none():
    app = App("house")
    app.telemetry("boiler", interval=60)(read)

    assert app.telemetries["boiler"].of_extensions == {}
    boiler = app.telemetries["boiler"]
    assert own_options(boiler.of_extensions, AlarmOptions) == {}
    assert "of_extensions" not in describe_registration(app.telemetries["boiler"])


def test_devices_of_a_loop_and_of_a_router_have_them_too():
    app, router = house(), Router()
    router.telemetry({"a": Device(alarm_above=1), "b": Device(alarm_above=2)}, interval=60)(read)
    for name, limit in (("c", 3), ("d", 3), ("e", 4)):
        router.telemetry(name, interval=60, alarm_above=limit)(read)
    app.include(router)

    found = {name: each.of_extensions["alarm_above"] for name, each in app.telemetries.items()}
    assert found == {"a": 1.0, "b": 2.0, "c": 3.0, "d": 3.0, "e": 4.0}


def test_a_device_leaves_to_a_command_what_is_about_reading():
    app = house()
    both = {"boiler": Device(alarm_above=1)}
    app.telemetry(both, interval=60)(read)
    app.command(both)(switch)

    assert app.commands["boiler"].of_extensions == {"alarm_on_refusal": False}


@pytest.mark.parametrize(
    ("app", "options", "said"),
    [
        (house, {"alarm_abov": 80}, r"'alarm_abov' is not an option of its decorator; did you mean 'alarm_above'\?"),
        (house, {"intervall": 80}, r"'intervall' is not an option of its decorator; did you mean 'interval'\?"),
        (house, {"interval": 60, "alarm_above": "hot"}, r"telemetry 'boiler': alarm_above is 'hot'; write a number"),
        (lambda: App("house"), {"interval": 60, "alarm_above": 80}, "'alarm_above' is not an option of its decorator"),
        (house, {"interval": 60, "alarm_on_refusal": True}, "'alarm_on_refusal' is not an option of its decorator"),
        (
            house,
            {"interval": 60, "fixed": {"alarm_after"}},
            "fixed has 'alarm_after', which the settings cannot change",
        ),
    ],
)
def test_what_is_wrong_is_named(app, options, said):
    with pytest.raises(ConfigurationError, match=said):
        app().telemetry("boiler", **options)(read)


class Taken(Extension):
    name = "taken"
    options = {"telemetry": TypedDict("Taken", {"interval": Annotated[int, Option(number)]})}  # noqa: RUF012  # as users write it


class Field(Extension):
    name = "field"
    options = {"telemetry": TypedDict("Field", {"handler": Annotated[int, Option(number)]})}  # noqa: RUF012  # as users write it


class Again(Extension):
    name = "again"
    options = {"telemetry": AlarmOptions}  # noqa: RUF012  # as users write it


class Bare(Extension):
    name = "bare"
    options = {"telemetry": TypedDict("Bare", {"limit": int})}  # noqa: RUF012  # as users write it


class Kind(Extension):
    name = "kind"
    options = {"telemetri": AlarmOptions}  # noqa: RUF012  # as users write it


def checked_by(check):
    """An extension whose option has this check."""

    class Odd(Extension):
        name = "odd"
        options = {"telemetry": TypedDict("Odd", {"limit": Annotated[float, Option(check)]})}  # noqa: RUF012  # as users write it

    return Odd()


@pytest.mark.parametrize(
    ("extensions", "said"),
    [
        ([Taken()], "extension 'taken': the option 'interval' of telemetry is one of leadsman; rename it"),
        ([Field()], "extension 'field': the option 'handler' of telemetry is one of leadsman; rename it"),
        (
            [Alarm(), Again()],
            "extension 'again': the option 'alarm_above' of telemetry is one of the extension 'alarm'",
        ),
        (
            [Bare()],
            r"extension 'bare': the option 'limit' of telemetry has no Option; write Annotated\[…, Option\(…\)\]",
        ),
        *(
            (
                [each],
                r"extension 'odd': the check of the option 'limit' of telemetry cannot be called with a value and its"
                r" name; write Option\(lambda value, name: …\)",
            )
            for each in (checked_by(float), checked_by(80), checked_by(lambda value: value))
        ),
        ([Kind()], r"extension 'kind': options has 'telemetri'; did you mean 'telemetry'\?"),
    ],
)
def test_options_that_cannot_be_are_named_with_their_extension(extensions, said):
    with pytest.raises(ConfigurationError, match=said):
        house(*extensions)


def load(tmp_path, text, **options):
    (tmp_path / "leadsman.toml").write_text(text)
    app = house()
    app.telemetry("boiler", interval=60, **options)(read)
    app.load(Where.here(tmp_path / "leadsman.toml", {}))
    return app


def test_the_settings_of_a_device_set_those_that_have_a_notation(tmp_path):
    app = load(tmp_path, "[devices.boiler]\nalarm_above = 70\n", alarm_above=80, alarm_after=5)

    assert app.telemetries["boiler"].of_extensions == {"alarm_above": 70.0, "alarm_after": 5.0}
    assert [row.value for row in app.setup.rows if row.path == "devices.boiler.alarm_above"] == ["70"]


@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        ("[devices.boiler]\nalarm_above = 'hot'\n", {}, r"devices\.boiler\.alarm_above: it is 'hot'; write a number"),
        ("[devices.boiler]\nalarm_abov = 1\n", {}, r"devices\.boiler\.alarm_abov: unknown; did you mean 'alarm_above'"),
        (
            "[devices.boiler]\nalarm_after = 1\n",
            {},
            r"devices\.boiler\.alarm_after: the settings cannot set it, since its Option in the extension 'alarm' has"
            r" no notation; set it in the code, or give it one, such as notation='number' \(from .*toml line 2\)",
        ),
        (
            "[devices.boiler]\nalarm_above = 1\n",
            {"fixed": {"alarm_above"}},
            "the telemetry of this device fixes alarm_",
        ),
    ],
)
def test_what_is_wrong_in_the_settings_is_named_with_its_origin(tmp_path, text, options, said):
    with pytest.raises(ConfigurationError, match=said):
        load(tmp_path, text, **options)


def test_introspection_shows_them():
    app = house()
    app.telemetry("boiler", interval=60, alarm_above=80)(read)

    found = describe_registration(app.telemetries["boiler"])

    assert found["of_extensions"] == {"alarm_above": 80.0, "alarm_after": 60.0}


class Secret:
    pass


class Odd(Extension):
    name = "odd"
    options = {  # noqa: RUF012  # as users write it
        "telemetry": TypedDict("OddOptions", {"anything": Annotated[object, Option(lambda value, name: value)]})
    }


@pytest.mark.parametrize(
    ("value", "shown"), [(None, None), (True, True), (3, 3), (2.5, 2.5), (float("inf"), "float"), (Secret(), "Secret")]
)
def test_a_document_has_numbers_switches_and_text_and_of_other_values_the_class(value, shown):
    app = house(Odd())
    app.telemetry("boiler", interval=60, anything=value)(read)

    assert describe_registration(app.telemetries["boiler"])["of_extensions"] == {"anything": shown}


class Strange:
    def __float__(self):
        raise RuntimeError("no number")


def refuses(value, name):
    raise InvalidValue(f"{name} is {value!r}; write 80")


class Loud(Extension):
    name = "loud"
    options = {  # noqa: RUF012  # as users write it
        "telemetry": TypedDict(
            "LoudOptions",
            {
                "loud_above": Annotated[float, Option(lambda value, name: float(value), notation="text")],
                "loud_as": Annotated[int, Option(lambda value, name: {"high": 1}[value])],
                "loud_never": Annotated[int, Option(refuses)],
            },
        )
    }


@pytest.mark.parametrize(
    ("options", "kind", "said"),
    [
        (
            {"loud_above": "loud"},
            InvalidValue,
            "loud_above is 'loud', which the extension 'loud' does not accept: ValueError: could not convert string to"
            " float: 'loud'; write another value",
        ),
        (
            {"loud_above": [80]},
            InvalidValue,
            "loud_above is [80], which the extension 'loud' does not accept: TypeError: ",
        ),
        (
            {"loud_above": Strange()},
            InvalidValue,
            "which the extension 'loud' does not accept: RuntimeError: no number; write another value",
        ),
        (
            {"loud_as": "low"},
            InvalidValue,
            "loud_as is 'low', which the extension 'loud' does not accept: KeyError: 'low'; write another value",
        ),
        ({"loud_never": 1}, InvalidValue, "loud_never is 1; write 80"),
    ],
)
def test_what_an_own_check_raises_is_an_error_of_the_option_at_its_decorator(options, kind, said):
    with pytest.raises(kind) as raised:
        house(Loud()).telemetry("boiler", interval=60, **options)(read)

    assert str(raised.value).startswith("telemetry 'boiler': ")
    assert said in str(raised.value)
    assert [each.path for each in raised.traceback].count(Path(__file__)) == 1, "the line of the decorator is named"


def test_what_an_own_check_raises_about_the_settings_has_their_origin(tmp_path):
    (tmp_path / "leadsman.toml").write_text("[devices.boiler]\nloud_above = 'hot'\n")
    app = house(Loud())
    app.telemetry("boiler", interval=60)(read)

    with pytest.raises(InvalidValue) as raised:
        app.load(Where.here(tmp_path / "leadsman.toml", {}))

    assert str(raised.value).startswith(
        "devices.boiler.loud_above: it is 'hot', which the extension 'loud' does not accept: ValueError: "
    )
    assert str(raised.value).endswith("leadsman.toml line 2)")
