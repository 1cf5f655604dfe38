"""An extension that nothing in leadsman knows joins an app: it appends each reading to a CSV file."""

import asyncio
import csv
import time

import pytest

from leadsman import App, Extension
from leadsman.errors import ConfigurationError
from leadsman.extension import HEARTBEAT, STATUSES, Follower, JoinPhase, RosterPhase
from leadsman.testing import Harness, Scripted


class CsvFile:
    """Appends each reading to a file, and a line for each device that joins and leaves."""

    def __init__(self, path):
        self._file = path.open("a", newline="")
        self._rows = csv.writer(self._file)

    def on_reading(self, reading):
        self._rows.writerow([reading.entity, *reading.fields.values()])

    def join_device(self, device):
        self._rows.writerow([device.name, "joined"])

    def leave_device(self, device, why):
        self._rows.writerow([device.name, why.value])

    async def close(self, delivered):
        self._rows.writerow(["the end", delivered])
        self._file.close()


class CsvFiles(Extension):
    """Has the file of an app in its state directory."""

    name = "csv"

    def joins(self, plan):
        """See `Extension`."""
        yield JoinPhase.BEFORE_DEVICES, self.join

    def join(self, core):
        """Open it before the devices are made."""
        file = CsvFile(core.plan.state_directory / "readings.csv")
        core.listen(file.on_reading)
        core.roster.follow(RosterPhase.REPORT, Follower(file.join_device, file.leave_device))
        core.life.after_delivery.append(file.close)


class Joins(Extension):
    """Lets functions join: pairs, or a function of the plan that makes them."""

    def __init__(self, name, *pairs):
        self.name = name
        self._pairs = pairs

    def joins(self, plan):
        """See `Extension`."""
        return self._pairs


def join_badly(core):
    """What listens raises."""
    core.listen(lambda reading: 1 / 0)


def report(core):
    """Adds to the heartbeat, after what cannot."""
    core.of(HEARTBEAT).sections.add(lambda document: 1 / 0)
    core.of(HEARTBEAT).sections.add(lambda document: document.update(alarms=3))


def offer_again(core):
    """Two offer the heartbeat."""
    core.offer(HEARTBEAT, None)


def house(*extensions):
    """An app with them."""
    app = App("house", mqtt="mqtt://broker", extensions=extensions)
    app.add_telemetry("meter", Scripted({"t": 1}, {"t": 2}, {"t": 3}), interval=10)
    return app


def run(app, seconds=25):
    """What the app published, once it has ended."""
    with Harness(app) as harness:
        harness.run(seconds)
    return harness


def test_an_extension_follows_readings_devices_and_the_life_of_the_app(tmp_path):
    app = house(Joins("bad", (JoinPhase.BEFORE_DEVICES, join_badly)), CsvFiles(), Joins("r", (JoinPhase.DOORS, report)))

    with Harness(app, state_directory=tmp_path) as harness:
        harness.run(25)
        assert harness.status()["alarms"] == 3
        assert [each.json for each in harness.broker.messages("house/meter/state")] == [{"t": 1}, {"t": 2}, {"t": 3}]
    assert list(csv.reader((tmp_path / "readings.csv").read_text().splitlines())) == [
        ["meter", "joined"],
        ["meter", "1"],
        ["meter", "2"],
        ["meter", "3"],
        ["the end", "True"],
    ]


def test_extensions_join_by_phase_and_in_each_of_them_after_ours_and_in_the_order_of_the_list():
    order = []

    def note(what):
        return lambda core: order.append((what, core.find(STATUSES) is not None, len(core.roster)))

    run(
        house(
            Joins("late", (JoinPhase.DOORS, note("late")), (JoinPhase.BEFORE_DEVICES, note("early"))),
            Joins("second", (JoinPhase.DOORS, note("second")), (JoinPhase.OBSERVERS, note("beside the heartbeat"))),
        )
    )

    assert order == [
        ("early", False, 0),
        ("beside the heartbeat", True, 1),
        ("late", True, 1),
        ("second", True, 1),
    ]


def test_an_extension_that_raises_as_it_joins_costs_only_itself(caplog):
    seen = []
    app = house(
        Joins("broken", (JoinPhase.BEFORE_DEVICES, lambda core: 1 / 0), (JoinPhase.DOORS, seen.append)),
        Joins("whole", (JoinPhase.DOORS, report)),
    )

    harness = run(app)

    assert len(harness.broker.messages("house/meter/state")) == 3
    assert len(seen) == 1
    assert "the extension broken as it joins" in caplog.text


def test_an_extension_that_does_not_end_to_join_costs_only_itself(caplog):
    async def hang(core):
        await asyncio.sleep(1e6)

    harness = run(house(Joins("slow", (JoinPhase.STATE, hang))), 60)

    assert len(harness.broker.messages("house/meter/state")) >= 3
    assert "the extension slow as it joins" in caplog.text
    assert "it did not end within 10 s" in caplog.text


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        ((3,), r"^late: joins gives 3; write pairs such as \(JoinPhase.OBSERVERS, self.join\)"),
        (((3, print),), "^late: joins gives"),
        (((JoinPhase.DOORS, 3),), "^late: joins gives"),
        (((JoinPhase.DOORS, lambda core: core.listen(print)),), r"call it in JoinPhase\.BEFORE_DEVICES$"),
        (((JoinPhase.DEVICES, lambda core: core.of(HEARTBEAT)),), "offers the heartbeat, and has not joined the app"),
        (
            ((JoinPhase.DOORS, offer_again),),
            r"heartbeat and the extension 'late' both offer the heartbeat",
        ),
    ],
)
def test_what_its_author_must_put_right_ends_the_start_with_what_to_do(pairs, said):
    with pytest.raises(ConfigurationError, match=said):
        run(house(Joins("late", *pairs)))


def test_an_extension_that_cannot_say_what_joins_ends_the_start_with_what_to_do():
    class Broken(Extension):
        name = "broken"

        def joins(self, plan):
            yield JoinPhase.DOORS, report
            raise KeyError("limits")

    with pytest.raises(ConfigurationError, match=r"^broken: joins raised KeyError: .*limits.*; correct it, or leave"):
        run(house(Broken()))


class Gives(Extension):
    """Lets join what it is given, which is no pairs."""

    name = "gives"

    def __init__(self, given):
        self.given = given

    def joins(self, plan):
        """See `Extension`."""
        return self.given


@pytest.mark.parametrize("given", [None, 3, (3,), [("observers", print)], [(JoinPhase.DOORS, None)], "ab"])
def test_joins_that_gives_no_pairs_says_what_to_write(given):
    with pytest.raises(ConfigurationError, match=r"^gives: joins gives .*; write pairs such as \(JoinPhase"):
        run(house(Gives(given)))


def raising(error):
    """A function that joins, and raises."""

    def join(core):
        raise error

    return join


def raising_later(error):
    """The same of one that is async."""

    async def join(core):
        await asyncio.sleep(0)
        raise error

    return join


@pytest.mark.parametrize("make", [raising, raising_later], ids=lambda make: make.__name__)
@pytest.mark.parametrize(
    "error",
    [SystemExit(3), asyncio.CancelledError(), GeneratorExit(), ZeroDivisionError()],
    ids=lambda each: type(each).__name__,
)
def test_whatever_a_function_raises_as_it_joins_costs_no_reading(make, error, caplog):
    harness = run(house(Joins("bad", (JoinPhase.OBSERVERS, make(error)))))

    assert [each.json for each in harness.broker.messages("house/meter/state")] == [{"t": 1}, {"t": 2}, {"t": 3}]
    assert f"the extension bad as it joins: {type(error).__name__}" in caplog.text


def change(reading):
    """Writes into the reading that it gets."""
    reading.fields["t"] = object()
    reading.fields["more"] = 1


def leave(reading):
    """Ends the process, or would."""
    raise SystemExit(3)


@pytest.mark.parametrize("on_reading", [change, leave], ids=lambda each: each.__name__)
def test_whatever_a_listener_does_with_a_reading_changes_no_message(on_reading):
    harness = run(house(Joins("bad", (JoinPhase.BEFORE_DEVICES, lambda core: core.listen(on_reading)))))

    assert [each.json for each in harness.broker.messages("house/meter/state")] == [{"t": 1}, {"t": 2}, {"t": 3}]


def begins_badly(core):
    """What it adds to the begin of the app raises."""
    core.life.joined.append(lambda: 1 / 0)
    core.life.starts.append(lambda: 1 / 0)
    core.life.waits.append(lambda: 1 / 0)
    core.life.waits.append(raising_later(SystemExit(3)).__get__(core))


def observes_badly(core):
    """What it has called ends the process, or would."""
    core.environment.events.subscribe(leave)
    core.environment.timers.add(core.environment.clock.monotonic() + 1, Bell())
    core.life.last_messages.append(("its goodbye", lambda: leave(None)))
    core.link.listen("other/topic", leave)


class Bell:
    """An alarm that ends the process, or would."""

    def ring(self, now):
        """Called by the timers."""
        raise SystemExit(3)


@pytest.mark.parametrize("join", [begins_badly, observes_badly], ids=lambda each: each.__name__)
def test_what_an_extension_adds_costs_no_reading_and_no_last_status_whatever_it_raises(join):
    app = house(Joins("bad", (JoinPhase.OBSERVERS, join)))

    with Harness(app) as harness:
        harness.run(5)
        harness.broker.send("other/topic", b"1")
        harness.run(20)

    assert [each.json for each in harness.broker.messages("house/meter/state")] == [{"t": 1}, {"t": 2}, {"t": 3}]
    assert harness.broker.messages("house/status")[-1].json["state"] == "offline"


async def late(*given):
    """Is awaited by nobody where functions are called at once."""


STAGES = "joined", "beside", "waits", "starts", "before_stop", "stop_handlers", "last_messages", "close"
PAIRS = "beside", "last_messages"


def add_to_the_life(stage, given):
    """A function that joins, and adds to a stage."""
    return lambda core: getattr(core.life, stage).append(("what", given) if stage in PAIRS else given)


TAKERS = {stage: add_to_the_life(stage, 3) for stage in (*STAGES, "after_delivery")} | {
    "beside alone": lambda core: core.life.beside.append(late),
    "last_messages alone": lambda core: core.life.last_messages.append(print),
    "measures": lambda core: core.documents.measures.append(3),
    "tables": lambda core: core.tables.append(3),
    "heartbeat": lambda core: core.of(HEARTBEAT).sections.add(3),
    "statuses": lambda core: core.of(STATUSES).on_change.add(3),
    "answered": lambda core: core.link.subscriptions.answered.add(3),
    "changed": lambda core: core.others.changed.add(3),
    "sections": lambda core: core.documents.app.add(3),
}
"""Each list of functions, with something that is none."""
AT_ONCE = {stage: add_to_the_life(stage, late) for stage in ("joined", "starts", "last_messages")} | {
    "measures": lambda core: core.documents.measures.append(late),
    "heartbeat": lambda core: core.of(HEARTBEAT).sections.add(late),
    "statuses": lambda core: core.of(STATUSES).on_change.add(late),
    "answered": lambda core: core.link.subscriptions.answered.add(late),
    "changed": lambda core: core.others.changed.add(late),
    "sections": lambda core: core.documents.app.add(late),
}
"""Each list of functions that are called at once, with one that is async."""


@pytest.mark.parametrize(
    ("join", "said"),
    [
        *(pytest.param(each, "is no (function|pair); give ", id=name) for name, each in TAKERS.items()),
        *(
            pytest.param(each, r"late is async, and .* write a plain def", id=f"{name} async")
            for name, each in AT_ONCE.items()
        ),
    ],
)
def test_what_cannot_be_called_as_its_list_does_ends_the_start_with_what_to_do(join, said):
    with pytest.raises(ConfigurationError, match=said):
        run(house(Joins("wrong", (JoinPhase.DOORS, join))))


def test_what_is_wrong_in_a_list_names_the_extension_and_the_list():
    with pytest.raises(
        ConfigurationError, match=r"^extension 'wrong': core\.life\.starts: 3 is no function; give one$"
    ):
        run(house(Joins("wrong", (JoinPhase.DOORS, TAKERS["starts"]))))


def follow_badly(core):
    """What follows the devices raises."""
    core.roster.follow(RosterPhase.REPORT, Follower(leave, lambda device, why: 1 / 0))


def test_who_follows_the_devices_and_raises_costs_none_of_them(caplog):
    harness = run(house(Joins("bad", (JoinPhase.BEFORE_DEVICES, follow_badly))))

    assert [each.json for each in harness.broker.messages("house/meter/state")] == [{"t": 1}, {"t": 2}, {"t": 3}]
    assert f"a device that joins, changes or leaves, {__name__}.leave: SystemExit" in caplog.text


def test_an_extension_that_blocks_the_start_is_named(caplog, monkeypatch):
    class Blocks(Joins):
        def joins(self, plan):
            time.sleep(0.02)
            return super().joins(plan)

    monkeypatch.setattr("leadsman.core.wiring.build.STALL", 0.01)
    run(house(Blocks("slow", (JoinPhase.DOORS, lambda core: time.sleep(0.02)))))

    assert "The extension slow blocked the app for" in caplog.text
    assert " s in joins." in caplog.text
    assert " s in a function that joins." in caplog.text
