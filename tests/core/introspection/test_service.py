"""The service behind the doors: documents in slices, and requests about a device. Whole apps have theirs in
`tests/integration`."""

import json
from types import SimpleNamespace

import pytest

from leadsman import App
from leadsman.core.event_bus import EventBus
from leadsman.core.events import CircuitRequested, DeviceHeld
from leadsman.core.introspection.added import AddedDocuments, AddedSection
from leadsman.core.introspection.pages import DocumentWriter
from leadsman.core.introspection.registry import LIST_SLICE, DeviceRegistry, declared
from leadsman.core.introspection.sections import Introspected, Sections
from leadsman.core.introspection.service import DEVICES_PER_TURN, MAX_ANSWERS, MAX_LARGE_ANSWERS, PollResult, Service
from leadsman.core.loop.clock import Clock
from leadsman.core.mqtt.topics import Identity, Topics
from leadsman.core.readings.reading import Reading
from leadsman.errors import Busy, ConfigurationError, DeviceUnavailable, PollRefused, RequestRefused, UnknownDevice

DEVICES = 2000


async def read(): ...


class Reader:
    """Reads a device, as far as a person can act on it."""

    def __init__(self, *, can_be_held=True):
        self.asked = []
        self.can_be_held = can_be_held
        self.execution = SimpleNamespace(
            circuit=SimpleNamespace(held=False),
            snapshot=lambda: SimpleNamespace(circuit=self.asked[-1]),
            isolate=lambda: self.asked.append("isolated"),
            close=lambda: self.asked.append("closed"),
            disable=lambda: self.asked.append("disabled"),
        )

    def hold(self):
        self.execution.circuit.held = self.can_be_held
        return self.can_be_held

    def release(self, by):
        was_held, self.execution.circuit.held = self.execution.circuit.held, False
        return was_held


class House:
    """A service of an app whose devices do not run."""

    def __init__(self, devices=DEVICES):
        app = App("house")
        app.add_telemetry([f"d{number}" for number in range(devices)], read, interval=60)
        clock = Clock(lambda: 5.0, lambda: 1000.0)
        self.events, self.polled, self.result, self.kept = [], [], None, {}
        bus = EventBus(clock)
        bus.subscribe(self.events.append)
        self.runners = SimpleNamespace(readers={})
        self.added = AddedDocuments(bus.emit)
        kept = AddedSection(lambda request: ((name, self.kept[name]) for name in request.names if name in self.kept))
        self.added.add_section("tides", kept)
        self.added.add_section("trace", AddedSection(self.rows, is_list=True, large=True))
        parts = Introspected(
            records=SimpleNamespace(entities={}),
            link=None,
            runners=self.runners,
            poll=self.poll,
            adapters=(),
            state_files={},
            statuses=None,
            ready=None,
            added=self.added,
        )
        about = Identity("house", "1", "1", Topics("house"), "house")
        environment = SimpleNamespace(clock=clock, timers=SimpleNamespace(origin=0.0), events=bus)
        self.devices = declared(app.telemetries, {}, {})
        self.registry = DeviceRegistry(about, self.devices, {}, health=False)
        self.service = Service(self.registry, parts, environment)

    def rows(self, request):
        yield None, {"row": 1}
        yield None, 1 / 0

    def poll(self, name, answer, request, text):
        if isinstance(self.result, PollRefused):
            raise self.result
        answer(self.result)

    def describe(self, **request):
        return self.service.describe(
            self.service.understood({"sections": ["devices"], **request}), DocumentWriter(10**9)
        )


@pytest.fixture
def described(monkeypatch):
    """The names of devices, as they are described."""
    names = []
    original = Sections.device

    def watched(self, name):
        names.append(name)
        return original(self, name)

    monkeypatch.setattr(Sections, "device", watched)
    return names


def test_few_devices_are_described_in_one_turn_of_the_loop(described):
    assert list(House(devices=1).describe()) == []
    assert len(described) == 1


def test_devices_are_described_in_slices(described):
    slices = []
    for pause in House().describe():
        assert pause == 0
        slices.append(len(described) - sum(slices))

    assert max(slices) == DEVICES_PER_TURN
    assert len(described) == DEVICES
    assert DEVICES - sum(slices) <= DEVICES_PER_TURN


@pytest.mark.parametrize("section", ["devices", "tides"])
def test_a_device_that_leaves_while_a_document_is_made_is_left_out_of_it(section):
    house, document = House(devices=3 * DEVICES_PER_TURN), DocumentWriter(10**9)
    names = [f"d{number}" for number in range(3 * DEVICES_PER_TURN)]
    house.kept.update(dict.fromkeys(names, 1))
    request = house.service.understood({"sections": [section], "devices": names})

    for _ in house.service.describe(request, document):
        for name in names[DEVICES_PER_TURN::DEVICES_PER_TURN]:
            house.kept.pop(name, None)
            house.devices.pop(name, None)

    (page,) = document.end()
    assert set(json.loads(page)[section]) == set(names) - set(names[DEVICES_PER_TURN::DEVICES_PER_TURN])


def test_a_section_of_a_part_that_fails_ends_and_costs_no_other_one():
    house, document = House(devices=1), DocumentWriter()
    house.kept["d0"] = 1
    for _ in house.service.describe(house.service.understood({"sections": ["trace", "tides", "jobs"]}), document):
        pass

    (page,) = document.end()
    assert json.loads(page) == {"jobs": {}, "tides": {"d0": 1}, "trace": [{"row": 1}]}
    assert [(event.where, str(event.error)) for event in house.events] == [("the section trace", "division by zero")]


def test_two_parts_with_one_section_are_an_error():
    with pytest.raises(ConfigurationError, match="both answer for the section trace"):
        House(devices=1).added.add_section("trace", AddedSection(lambda _: ()))


def test_the_registry_is_made_in_slices():
    assert len(list(House().registry.list_devices(DocumentWriter(10**9)))) == DEVICES // LIST_SLICE


def test_a_large_document_is_refused_while_too_many_are_under_way():
    service = House().service
    blocks = [service.under_way() for _ in range(MAX_LARGE_ANSWERS)]
    for block in blocks:
        block.__enter__()
    with pytest.raises(Busy, match="ask again"):
        service.understood("")
    with pytest.raises(Busy, match="ask again"):
        service.understood({"sections": ["trace"], "devices": ["d1"]})
    assert service.understood({"devices": ["d1"]}).names == ["d1"]

    blocks[0].__exit__(None, None, None)
    assert len(service.understood("").names) == DEVICES


@pytest.mark.parametrize(
    ("devices", "most"), [(DEVICES_PER_TURN, MAX_ANSWERS), (DEVICES_PER_TURN + 1, MAX_LARGE_ANSWERS)]
)
def test_answers_about_all_devices_are_few_at_a_time_where_there_are_many(devices, most):
    service, blocks = House(devices).service, []
    for _ in range(most):
        service.admit(large=service.is_large)
        blocks.append(service.under_way())
        blocks[-1].__enter__()

    with pytest.raises(Busy, match=f"{most} answers are under way"):
        service.admit(large=service.is_large)


@pytest.mark.parametrize(
    ("result", "answer"),
    [
        (Reading("d1", {"t": 1}, (), 0.0, 1.0), PollResult({"t": 1}, None)),
        (None, PollResult(None, None)),
        (DeviceUnavailable("away"), PollResult(None, "DeviceUnavailable: away")),
    ],
)
def test_a_poll_is_answered_with_its_fields_or_its_error(result, answer):
    house, answers = House(1), []
    house.result = result
    house.service.poll("d0", answers.append)

    assert answers == [answer]


def test_a_poll_that_is_refused_is_refused_to_who_asked():
    house = House(1)
    house.result = PollRefused("throttled")
    with pytest.raises(PollRefused, match="throttled"):
        house.service.poll("d0", print)


def test_a_device_is_held_once_and_released_once():
    house = House(1)
    house.runners.readers["d0"] = Reader()

    assert house.service.hold("d0", "ann") == {"device": "d0", "held": True}
    with pytest.raises(RequestRefused, match="held already"):
        house.service.hold("d0", "bob")
    assert house.service.release("d0", "ann") == {"device": "d0", "held": False}
    with pytest.raises(RequestRefused, match="is not held"):
        house.service.release("d0", "ann")

    assert [(type(event), event.entity, event.by) for event in house.events] == [(DeviceHeld, "d0", "ann")]


def test_a_source_cannot_be_held_and_the_answer_says_what_to_do():
    house = House(1)
    house.runners.readers["d0"] = Reader(can_be_held=False)

    with pytest.raises(RequestRefused, match="isolate its circuit instead"):
        house.service.hold("d0", "ann")
    assert house.events == []


@pytest.mark.parametrize(("action", "circuit"), [("isolate", "isolated"), ("close", "closed"), ("disable", "disabled")])
def test_a_request_about_a_circuit_is_done_and_named_in_an_event(action, circuit):
    house = House(1)
    house.runners.readers["d0"] = Reader()

    assert house.service.circuit("d0", action, "ann") == {"device": "d0", "circuit": circuit}
    assert [event[:3] for event in house.events] == [("d0", action, "ann")]
    assert isinstance(house.events[0], CircuitRequested)


def test_a_request_about_a_device_that_is_not_read_names_one_that_is():
    house = House(1)
    house.runners.readers["kitchen"] = Reader()

    for request in (house.service.hold, house.service.release):
        with pytest.raises(UnknownDevice, match="did you mean 'kitchen'"):
            request("kichen", "ann")
    with pytest.raises(UnknownDevice, match="did you mean 'kitchen'"):
        house.service.circuit("kichen", "close", "ann")
