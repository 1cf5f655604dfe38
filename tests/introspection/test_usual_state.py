"""The template says of a device what the encoder says of the same device with a command, which no template has."""

import json

import pytest

from leadsman import App, CircuitBreaker, Context, Finds, FixedBackoff, OnChange
from leadsman.testing import Scripted, fail

READING = {"t": 21.5}


def described(running):
    """The text about ``plain``, in the order of its fields, and that about ``general``, which takes commands too."""
    running.broker.send("house/introspect", {"sections": ["devices"]})
    running.run(0.1)
    text = running.broker.messages("house/introspect/response")[-1].payload.decode()
    devices = json.loads(text)["data"]["devices"]
    states = [devices[name]["runtime"] for name in ("plain", "general")]
    assert states[1].pop("commands")
    return [json.dumps(each) for each in states]


def house(script, **options):
    app = App("house")
    for name in ("plain", "general"):
        app.add_telemetry(name, Scripted(*script), interval=10, **options)

    @app.command("general")
    async def take(payload: str): ...

    return app


@pytest.mark.parametrize(
    ("script", "options"),
    [
        ([READING], {}),
        ([READING, {"t": 21.6}], {"publish": OnChange(0.5)}),
        ([None], {}),
        ([fail(), fail(), fail(), READING], {"circuit_breaker": CircuitBreaker(2)}),
        ([READING, fail(), READING], {"retry": 1, "backoff": FixedBackoff(1, jitter=0)}),
        ([READING, fail()], {"stale_after": 15}),
    ],
)
def test_a_template_says_what_the_encoder_says(harness, script, options):
    running = harness(house(script, **options))

    for _ in range(8):
        running.run("7s")
        plain, general = described(running)

        assert plain == general


def test_a_template_says_it_before_the_first_poll(harness):
    running = harness(house([READING], spread="1h"))
    running.run(1)

    plain, general = described(running)

    assert json.loads(plain)["status"] == "starting"
    assert {**json.loads(plain), "next_due_at": None} == {**json.loads(general), "next_due_at": None}


def test_a_handler_that_finds_devices_says_how_many(harness):
    app = App("house")

    @app.telemetry("bus", interval=10, finds=Finds())
    async def bus(context: Context):
        context.device("kitchen")
        return READING

    running = harness(app)
    running.run(5)
    running.broker.send("house/introspect", {"sections": ["devices"]})
    running.run(0.1)

    text = running.broker.messages("house/introspect/response")[-1].payload.decode()

    state = json.loads(text)["data"]["devices"]["bus"]["runtime"]
    assert (state["found"], state["refused"]) == (1, 0)
