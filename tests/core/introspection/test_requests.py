"""Requests for introspection: what is asked for, and what is said of a wrong one."""

import pytest

from leadsman import App
from leadsman.testing import Harness

FEW = ("kitchen", "attic", "cellar")
MANY = [f"device-{number:05}" for number in range(3000)]


async def read():
    return {"t": 1}


@pytest.fixture(scope="module")
def ask():
    """Asks an app with a few devices, or with many."""
    asked = {}

    def ask(request, names=FEW):
        if id(names) not in asked:
            app = App("house")
            app.add_telemetry(list(names), read, interval="1h")
            asked[id(names)] = Harness(app).__enter__()
        harness = asked[id(names)]
        harness.run("10s")
        before = len(harness.broker.messages("house/introspect/response"))
        harness.broker.send("house/introspect", request)
        harness.run("10s")
        return harness.broker.messages("house/introspect/response")[before].json

    yield ask
    for harness in asked.values():
        harness.__exit__(None, None, None)


def test_nothing_asks_for_every_device_and_all_sections_but_those_on_request(ask):
    found = ask(b"")["data"]

    assert set(found) == {"app", "mqtt", "adapters", "devices", "jobs"}
    assert list(found["devices"]) == list(FEW)


def test_devices_are_described_in_the_order_of_the_app_and_once_each(ask):
    found = ask({"devices": ["cellar", "kitchen", "cellar"]})["data"]

    assert list(found["devices"]) == ["kitchen", "cellar"]


@pytest.mark.parametrize(
    ("request_", "known", "said"),
    [
        ({"devices": ["atic"]}, FEW, "did you mean 'attic'"),
        ({"devices": ["xyz"]}, FEW, "write one of attic, cellar, kitchen"),
        ({"devices": ["device-1234"]}, MANY, "did you mean 'device-"),
        ({"devices": ["kitchen"]}, MANY, "there are 3000, which the registry lists"),
        ({"sections": ["device"]}, MANY, "did you mean 'devices'"),
        ({"after": -1}, FEW, "'after' must be a number"),
        ({"since": True}, FEW, "'since' must be a number"),
    ],
)
def test_a_wrong_request_is_refused_with_what_may_have_been_meant(ask, request_, known, said):
    answer = ask(request_, known)

    assert (answer["status"], answer["data"]) == ("error", None)
    assert said in answer["error"]


def test_a_wrong_name_is_compared_with_few_of_many_names(ask, monkeypatch):
    compared = []

    def watched(word, names, otherwise):
        compared.extend(names)
        return otherwise

    monkeypatch.setattr("leadsman.core.introspection.requests.suggestion", watched)
    ask({"devices": ["device-x"]}, MANY)

    assert len(compared) == 100


def test_a_wrong_name_of_any_length_is_cut(ask):
    assert len(ask({"devices": ["x" * 60_000]})["error"]) < 1000
    assert len(ask({"y" * 60_000: 1})["error"]) < 1000
