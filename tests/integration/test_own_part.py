"""A part that nothing in leadsman knows joins an app: it appends each reading to a CSV file."""

import asyncio
import csv

from leadsman import App
from leadsman.core.devices.roster import Follower, RosterPhase
from leadsman.core.mqtt.link import Access
from leadsman.core.parts.kinds import HEARTBEAT
from leadsman.core.wiring.build import PARTS, Part
from leadsman.core.wiring.run import serve
from leadsman.testing import MemoryBroker, Scripted, VirtualLoop


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


def join(core):
    """What `leadsman.core.wiring.build` calls with the app, before its devices are made."""
    file = CsvFile(core.plan.state_directory / "readings.csv")
    core.listen(file.on_reading)
    core.roster.follow(RosterPhase.REPORT, Follower(file.join_device, file.leave_device))
    core.life.after_delivery.append(file.close)


def join_badly(core):
    """A part whose listener raises."""
    core.listen(lambda reading: 1 / 0)


def report(core):
    """A part that adds to the heartbeat, after one that cannot."""
    core.of(HEARTBEAT).sections.add(lambda document: 1 / 0)
    core.of(HEARTBEAT).sections.add(lambda document: document.update(alarms=3))


def readings_of(tmp_path, *, wanted):
    """The lines of the file, after an app that wants the part, or not, has polled three times."""
    loop, broker = VirtualLoop(), MemoryBroker()
    app = App("house", mqtt="mqtt://broker")
    app.add_telemetry("meter", Scripted({"t": 1}, {"t": 2}, {"t": 3}), interval=10)
    parts = (
        Part(__name__, join="join_badly"),
        Part(__name__, lambda plan: wanted),
        *PARTS,
        Part(__name__, join="report"),
    )

    async def run():
        app.load()
        stopping = asyncio.Event()
        loop.call_later(25, stopping.set)
        plan = app.plan({"STATE_DIRECTORY": str(tmp_path)})
        access = Access(plan.brokers, lambda _: broker.connect)
        return await serve(plan, access, stopping, parts=parts)

    try:
        assert loop.run_until_complete(run()) == 0
    finally:
        loop.close()
    assert [each.payload for each in broker.messages("house/meter/state")] == [
        b'{"t":1}',
        b'{"t":2}',
        b'{"t":3}',
    ]
    statuses = [each.json for each in broker.messages("house/status") if each.json.get("devices")]
    assert {each["alarms"] for each in statuses} == {3}
    file = tmp_path / "readings.csv"
    return list(csv.reader(file.read_text().splitlines())) if file.exists() else None


def test_a_part_of_ones_own_follows_readings_devices_and_the_life_of_the_app(tmp_path):
    assert readings_of(tmp_path, wanted=True) == [
        ["meter", "joined"],
        ["meter", "1"],
        ["meter", "2"],
        ["meter", "3"],
        ["the end", "True"],
    ]


def test_a_part_that_an_app_does_not_want_does_not_join_it(tmp_path):
    assert readings_of(tmp_path, wanted=False) is None
