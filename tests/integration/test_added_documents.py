"""What an extension of somebody else adds to the documents of an app: while it runs, and in their schemas."""

from typing import NotRequired

from typing_extensions import TypedDict

from leadsman import App, Extension
from leadsman.core.introspection.added import AddedSection
from leadsman.core.introspection.topic_schemas import schemas
from leadsman.core.parts.kinds import HEARTBEAT
from leadsman.extension import Documents, JoinPhase
from leadsman.testing import Harness, Scripted


class Water(TypedDict):
    """How high the water is."""

    level: float
    """Metres above the ground of the harbour."""


class Moon(TypedDict):
    moon: NotRequired[str]
    """The phase. Present only at night."""


class Waters(TypedDict, total=False):
    water: dict[str, Water]
    """The water at each device. Present only if the request names this section."""


class Tide(Extension):
    name = "tide"
    documents = Documents(
        status=Moon,
        app=Moon,
        runtime=Moon,
        sections=Waters,
        absent={"water": "no water; wait for the flood"},
        of_device={"tide": Water},
    )

    def __init__(self, *joins):
        self._joins = joins

    def joins(self, plan):
        return self._joins


def join(core):
    """Join before all others: what it adds to does not ask for another part."""
    documents = core.documents
    for hook in (documents.app, documents.runtime):
        hook.add(lambda *_: 1 / 0)
        hook.add(lambda *given: given[-1].update(moon="full"))
    documents.add_section("water", AddedSection(lambda request: ((name, {"level": 2.5}) for name in request.names)))
    documents.add_section("storm", AddedSection(lambda _: 1 / 0))


def report(core):
    core.of(HEARTBEAT).sections.add(lambda document: document.update(moon="full"))


def house(*joins):
    app = App("house", mqtt="mqtt://broker", extensions=[Tide(*joins)])
    app.add_telemetry("meter", Scripted(*[{"t": 1}] * 9), interval=10)
    return app


def asked(running, request):
    """The data of the answer, or the error."""
    running.broker.send("house/introspect", request)
    running.run(1)
    found = running.broker.messages("house/introspect/response")[-1].json
    return found["data"] or found["error"]


def test_it_is_in_the_documents_of_the_app_that_runs_and_a_fault_in_one_costs_no_other():
    with Harness(house((JoinPhase.BEFORE_DEVICES, join), (JoinPhase.DOORS, report))) as running:
        running.run(25)
        whole, some = asked(running, b""), asked(running, b'{"sections": ["storm", "water"]}')

        moons = running.status()["moon"], whole["app"]["moon"], whole["devices"]["meter"]["runtime"]["moon"]
        assert set(moons) == {"full"}
        assert some == {"water": {"meter": {"level": 2.5}}, "storm": {}}


def test_who_asks_for_a_section_that_an_app_does_not_have_learns_why():
    with Harness(house()) as running:
        running.run(5)
        assert asked(running, b'{"sections": ["water"]}') == "no water; wait for the flood"


def test_its_types_are_in_the_schema_of_each_topic_of_the_app_and_of_no_other():
    app = house()
    found = schemas(app.topics, app.telemetries, {}, own=app.setup.extensions)["topics"]
    introspection, defs = found["#introspection"], found["#introspection"]["$defs"]
    meaning = {"moon": "The phase. Present only at night."}

    for kind in (found["house/status"], defs["AppSection"], defs["Runtime"]):
        assert kind["properties"]["moon"]["description"] == meaning["moon"]
        assert "moon" not in kind["required"]
    assert introspection["properties"]["water"]["description"].startswith("The water at each device.")
    assert [*introspection["properties"]][-2:] == ["water", "fields"]
    assert found["house/introspect"]["properties"]["sections"]["items"]["enum"][-2:] == ["water", "fields"]
    assert found["house/meter/tide"]["properties"]["level"]["type"] == "number"
    plain = schemas(app.topics, app.telemetries, {})["topics"]
    assert "moon" not in repr(plain)
    assert found.keys() - plain.keys() == {"house/meter/tide"}
