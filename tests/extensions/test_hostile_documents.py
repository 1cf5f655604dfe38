"""Whatever anybody has published where an app, or the command line, reads documents back from the broker: no reader
raises anything but its named refusal, and what one document says costs only its own device."""

import contextlib
import json
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from leadsman import App, Received
from leadsman.core.introspection.registry import DeviceRegistry, declared
from leadsman.core.introspection.retained import Listed
from leadsman.core.mqtt.topics import Identity, Topics, encode, is_topic
from leadsman.extensions.discovery.homeassistant import HomeAssistant
from leadsman.extensions.discovery.registered import DescribedDevices
from leadsman.extensions.discovery.settings import DiscoverySettings
from leadsman.testing import Harness, Scripted
from leadsman.tools.cli.commands.clean import left_behind
from leadsman.tools.cli.fleet import Fleet
from leadsman.tools.doctor.checks import _status
from leadsman.tools.doctor.checks import left_behind as doctor_left_behind
from leadsman_rigs.examples import examples
from leadsman_rigs.hostile import BOMBS, LIES, payloads

TOPICS = Topics("house")
TEXT = st.sampled_from([each for each in LIES if isinstance(each, str)]) | st.text(max_size=9)


def house(discovery=None):
    app = App("house", discovery=discovery)
    for name in ("kitchen", "attic"):
        app.add_telemetry(name, Scripted({"t": 1}), interval=10)
    return app


ABOUT = Identity("house", "1", "1", TOPICS, "house")
NOW = DeviceRegistry(ABOUT, declared({"kitchen": house().telemetries["kitchen"]}, {}, {}), {}, health=False)


def kept():
    with Harness(house("homeassistant")) as harness:
        harness.run("70m")
    return {topic: each.payload for topic, each in harness.broker.retained.items()}


KEPT = kept()
REGISTRY, STATUS, LEDGER = (json.loads(KEPT[f"house/{word}"]) for word in ("registry", "status", "kitchen/ledger"))
DESCRIPTIONS = {topic: json.loads(payload) for topic, payload in KEPT.items() if topic.endswith("/config")}


def asked():
    """What a running app answers."""
    with Harness(house()) as harness:
        harness.run("1m")
        harness.broker.send("house/introspect", json.dumps({"sections": ["app", "mqtt", "devices", "ledger"]}).encode())
        harness.run("1s")
        return json.loads(harness.broker.messages("house/introspect/response")[0].payload)["data"]


ANSWER = asked()


def mapping(payload):
    """The object in a payload, as every reader gets it; an empty one if there is none."""
    with contextlib.suppress(ValueError, RecursionError):
        found = json.loads(payload)
        return found if isinstance(found, dict) else {}
    return {}


@pytest.mark.slow
@given(payloads(REGISTRY), payloads(REGISTRY), payloads(*DESCRIPTIONS.values()))
def test_a_registry_removes_only_topics_that_can_be_topics(first, second, description):
    listed = Listed("house")
    listed.add("house/registry", first)
    listed.add("house/registry/2", second)

    documents = dict.fromkeys(listed.elsewhere, description)
    for now in (None, NOW):
        removal = left_behind(listed, TOPICS, documents, now)
        assert all(is_topic(topic) for topic in removal.listed)


def made():
    return HomeAssistant(ABOUT, described().names, DiscoverySettings())


def described():
    return DescribedDevices(house().telemetries, {})


@given(data=st.data())
def test_a_description_at_the_broker_is_answered_by_messages_that_can_be_sent(data):
    rules, topic = made(), data.draw(st.sampled_from(list(DESCRIPTIONS)))
    found = data.draw(payloads(DESCRIPTIONS[topic]))
    wanted = [each for name in rules.topics.values() for each in _wanted(rules, name) if each.topic == topic]

    rules.is_ours(found)
    sent = []
    for each in wanted:
        sent += [*rules.steps(found, each), *rules.moves({topic: found, f"{topic}x": found}, wanted)]
    for each in sent:
        assert is_topic(each.topic.removesuffix("x")), each
        assert isinstance(each.payload, bytes)


def _wanted(rules, name):
    if name is None:
        return [rules.describe_app()]
    return rules.describe(described().device(name))


NOBODYS = [
    {"cmps": {"\ud800": {"p": "sensor"}}},
    {"cmps": {"x": {"p": "\ud800"}}},
    {"cmps": {"x": {"p": "sensor", "more": float("nan")}}, "y": "\ud800"},
]


@pytest.mark.parametrize("lies", NOBODYS)
def test_a_description_that_nobody_writes_is_replaced(lies):
    topic = next(each for each, name in made().topics.items() if name == "kitchen")
    planted = json.dumps({**DESCRIPTIONS[topic], **lies}).encode()
    readings, faults, retained = _lives_on({topic: planted})

    assert readings == {"kitchen": 4, "attic": 4}
    assert not faults
    assert json.loads(retained[topic]).keys() == DESCRIPTIONS[topic].keys()


def _lives_on(planted):
    with Harness(house("homeassistant")) as harness:
        for topic, payload in planted.items():
            if payload:
                harness.broker.retained[topic] = SimpleNamespace(payload=payload, retain=True)
        harness.run("30s")
        readings = {name: len(harness.states(name)) for name in ("kitchen", "attic")}
        faults = [each for each in harness.broker.messages("house/error") if b"fault" in each.payload]
        return readings, faults, {t: e.payload for t, e in harness.broker.retained.items()}


@pytest.mark.parametrize("bomb", range(0, len(BOMBS), 2))
def test_a_bomb_in_one_place_costs_only_its_own_device(bomb):
    topic = next(each for each, name in made().topics.items() if name == "kitchen")
    planted = {topic: BOMBS[bomb], "house/registry": BOMBS[bomb], "house/status": BOMBS[bomb]}
    readings, faults, retained = _lives_on(planted)

    assert readings == {"kitchen": 4, "attic": 4}
    assert not faults
    assert set(json.loads(retained["house/registry"])["devices"]) == {"kitchen", "attic"}
    other = next(each for each, name in made().topics.items() if name == "attic")
    assert other in retained


@settings(max_examples=examples(25), suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_lies_in_all_places_cost_no_reading(data):
    planted = {
        topic: data.draw(payloads(json.loads(KEPT[topic])))
        for topic in (*DESCRIPTIONS, "house/registry", "house/status", "house/kitchen/ledger")
    }
    readings, faults, retained = _lives_on(planted)

    assert readings == {"kitchen": 4, "attic": 4}
    assert not faults
    assert set(json.loads(retained["house/registry"])["devices"]) == {"kitchen", "attic"}


@settings(max_examples=examples(25), suppress_health_check=list(HealthCheck))
@given(payloads(STATUS))
def test_the_status_of_another_app_is_named_or_passed_over(payload):
    with Harness(house()) as harness:
        harness.run(1)
        harness.broker.send("house/status", payload, retain=True)
        harness.run(2)
        assert harness.status()["mqtt"]["last_error"] is None
        harness.broker.send("house/status", payload)
        harness.run(2)
        assert not harness.faults()


@given(
    payloads(REGISTRY, STATUS, LEDGER, {"t": 1}), st.sampled_from(["registry", "registry/2", "status", "kitchen/state"])
)
def test_the_board_is_drawn_whatever_is_published(payload, word):
    fleet = Fleet(["house"])
    fleet.hear(Received("house/registry", json.dumps(REGISTRY).encode(), True), 0.0)
    fleet.hear(Received(f"house/{word}", payload, True), 1.0)

    encode([str(each) for each in (*fleet.apps(2.0), *fleet.rows(2.0))]).decode(errors="surrogatepass")


AS_OFTEN = settings(max_examples=examples(40), suppress_health_check=list(HealthCheck))
HERE = ("--prefix", "house", "--mqtt", "mqtt://broker.lan", "--timeout", "1ms")


@pytest.mark.slow
@AS_OFTEN
@given(answer=payloads(ANSWER), status=payloads(STATUS), state=payloads({"t": 1}), answers=st.booleans())
def test_why_gives_a_verdict_or_says_that_the_answer_is_odd(stage, answer, status, state, answers):
    stage.keep({"house/status": status, "house/kitchen/state": state})
    stage.answers("house/introspect", [{"data": mapping(answer)}] if answers else [])

    for device in (["kitchen"], []):
        found = stage.run("why", *device, *HERE)

        assert found.code in (0, 1, 3)
        assert found.out or found.err


@AS_OFTEN
@given(payload=payloads({"kitchen": LEDGER, "attic": LEDGER}), options=st.sampled_from([(), ("--json",)]))
def test_ledgers_are_shown_or_said_to_be_odd(stage, payload, options):
    stage.answers("house/introspect", [{"data": {**ANSWER, "ledger": mapping(payload)}}])

    found = stage.run("gaps", *options, *HERE)
    assert found.out or "use the version of the app here" in found.err
    assert stage.run("why", *HERE).out


@given(payloads(REGISTRY), payloads(STATUS), TEXT)
def test_the_doctor_reads_any_registry_and_any_status(registry, status, page):
    kept = {"house/registry": registry, "house/status": status, f"house/registry/{page}": registry}

    assert set(doctor_left_behind("house", ["kitchen"], kept)) <= {"house/registry/2"} | kept.keys()
    _status("house/status", kept)
