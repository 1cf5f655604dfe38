"""A year of schedules in four time zones: over changes of the clock, with clocks that are set, a process that sleeps
now and then, and devices that fail in every way. Each point of each schedule is accounted for, once."""

import asyncio
import gc
import logging
import math
import random
import signal
from bisect import bisect_left, bisect_right
from collections import Counter
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import leadsman.core.runtime.poll_schedule
from leadsman import App, CircuitBreaker, Cron, FixedBackoff, RetryRequested
from leadsman.core.events import (
    AttemptFailed,
    DeviceHeld,
    DeviceReleased,
    PollDeferred,
    PollFailed,
    PollMissed,
    PollSkipped,
    ReadingTaken,
)
from leadsman.core.loop.schedule import CLOCK_SET_BACK, CLOCK_SET_FORWARD
from leadsman.core.monitoring.health import OFFLINE
from leadsman.core.runtime.poll_runner import PollContext
from leadsman.testing import Harness
from leadsman_rigs.examples import examples

pytestmark = pytest.mark.slow

ZONES = ["Europe/Berlin", "Australia/Lord_Howe", "America/New_York", "Asia/Kolkata"]
EVERYWHERE = dict.fromkeys(ZONES, ("even", "night", "twice", "grid"))
FEWER = dict(zip(ZONES, [("even", "grid"), ("night",), ("twice", "grid"), ("even",)], strict=True))
CHANGES = [(2026, 3, 8), (2026, 3, 29), (2026, 4, 5), (2026, 10, 4), (2026, 10, 25), (2026, 11, 1)]
HOUR, DAY, QUARTER = 3600.0, 86_400.0, 900.0
REST = 12_200.0
"""Seconds that a device asks to be left alone for. Their end is never near a point of a schedule."""
STEPS = [-30 * HOUR, -4000, -1300, -600, -298, -298, -100, -0.3, 0.3, 100, 600, 4000, 10_000, 5 * HOUR, 40 * HOUR]
POLL = 60.0
"""Seconds within which a poll has ended, with all its retries."""


# What is due, found without the code under test


def every_second_hour(zone, minute, start, end):
    """Each time the clock on the wall shows this minute of an even hour."""
    at = start - start % QUARTER
    while at < end:
        shown = datetime.fromtimestamp(at, zone)
        if shown.minute == minute and shown.hour % 2 == 0:
            yield at
        at += QUARTER


def daily(zone, times, start, end):
    """Once a day each: the first time in the hour that comes twice, and right after the one that is left out."""
    day, found = (
        datetime.fromtimestamp(start, zone).replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None),
        set(),
    )
    while day.replace(tzinfo=zone).timestamp() < end:
        for hour, minute in times:
            local = day.replace(hour=hour, minute=minute)
            while not exists(local, zone):
                local += timedelta(minutes=1)
            found.add(local.replace(tzinfo=zone).timestamp())
        day += timedelta(days=1)
    return sorted(found)


def exists(local, zone):
    return datetime.fromtimestamp(local.replace(tzinfo=zone).timestamp(), zone).replace(tzinfo=None, fold=0) == local


class Time:
    """Two clocks: how the wall clock goes over the monotonic one, and when the process sleeps."""

    def __init__(self, wall, length, after):
        self.length = length
        self.after = after
        """Seconds within which a clock that was set has been looked at, and a poll has ended."""
        self.pieces = [(0.0, wall)]
        """From when, by the monotonic clock, and what the wall clock says then."""
        self.sleeps = []

    def wall(self, now):
        start, wall = self.pieces[bisect_right(self.pieces, (now, math.inf)) - 1]
        return wall + now - start

    def quiet(self, now):
        """Whether no point of any schedule is near."""
        return all(self.after * 1.2 < at % QUARTER < QUARTER - self.after * 1.1 for at in (now, self.wall(now)))

    def step(self, now, seconds):
        """Set the clock, if no point of a schedule is near, before or after. Whether it was set."""
        if not self.quiet(now):
            return False
        self.pieces.append((now, self.wall(now) + seconds))
        if not self.quiet(now):
            self.pieces.pop()
            return False
        return True

    def sleep(self, now, seconds):
        if not (self.quiet(now) and self.quiet(now + seconds)):
            return False
        self.sleeps.append((now, now + seconds))
        return True

    def awake(self, now):
        """Whether the process does not sleep, and has done since it woke what came due in its sleep."""
        return not any(start <= now < end + self.after for start, end in self.sleeps)

    def woken(self, now):
        return next((end for start, end in self.sleeps if start <= now <= end), now)

    def cron(self, slots):
        """When slots come due, by the monotonic clock, and how many at a time."""
        found, passed, before = Counter(), self.pieces[0][1], self.pieces[0][1]
        ends = [start for start, _ in self.pieces[1:]] + [self.length]
        for (start, wall), end in zip(self.pieces, ends, strict=True):
            if not -CLOCK_SET_BACK <= wall - before <= CLOCK_SET_FORWARD:
                passed = wall
            before = wall + end - start
            for slot in slots[bisect_right(slots, passed) : bisect_right(slots, before)]:
                found[self.woken(max(start, start + slot - wall))] += 1
            passed = max(passed, before)
        return found

    def grid(self, first, interval):
        return Counter(self.woken(first + k * interval) for k in range(int((self.length - first) // interval) + 1))


# What fails


async def boom():
    raise OSError("away")


class Device:
    """Answers, or fails in one of many ways; during an outage it only fails."""

    def __init__(self, dice, outages):
        self._dice = dice
        self._outages = outages

    async def __call__(self):
        now = asyncio.get_running_loop().time()
        away = any(start <= now < end for start, end in self._outages)
        match self._dice.choices(range(8), (0 if away else 85, 5, 2, 2, 2, 2, 1, 1))[0]:
            case 0:
                return {"n": 1}
            case 1:
                raise OSError("away")
            case 2:
                async with asyncio.TaskGroup() as group:
                    group.create_task(boom())
            case 3:
                await self._by_hand()
            case 4:
                await asyncio.sleep(1e9)
            case 5:
                raise RetryRequested(REST)
            case 6:
                raise asyncio.CancelledError
            case 7:
                raise SystemExit
        return None

    async def _by_hand(self):
        task = asyncio.current_task()
        asyncio.get_running_loop().call_later(1, task.cancel)
        try:
            await asyncio.sleep(3)
        except asyncio.CancelledError:
            raise TimeoutError("by hand") from None


class Scenario:
    """Devices over some time from `start` on, in which somebody sets the clock, and the process sleeps, so many
    times."""

    def __init__(self, seed, start, length, steps, sleeps, zones=EVERYWHERE):
        self.dice = random.Random(seed)
        random.seed(seed)
        self.time = Time(start.timestamp(), length, leadsman.core.runtime.poll_schedule.CLOCK_CHECK + POLL)
        self.app, self.due, self.events = App("app", heartbeat="7d"), {}, []
        self._plan(steps, sleeps)
        for name, kinds in zones.items():
            self._add_zone(name, kinds)

    def _plan(self, steps, sleeps):
        room = self.time.length / (steps + sleeps + 1)
        acts = [("step", self.dice.choice(STEPS)) for _ in range(steps)]
        acts += [("sleep", self.dice.uniform(60, 0.3 * room)) for _ in range(sleeps)]
        self.dice.shuffle(acts)
        self.acts = []
        for k, (what, seconds) in enumerate(acts):
            for _ in range(100):  # until one fits
                now = (k + self.dice.uniform(0.2, 0.6)) * room
                if getattr(self.time, what)(now, seconds):
                    self.acts.append((now, what, seconds))
                    break

    def _add_zone(self, name, kinds):
        zone, short = ZoneInfo(name), name.split("/")[1].lower()
        start, end = min(wall for _, wall in self.time.pieces) - 40 * HOUR, self.time.pieces[0][1] + self.time.length
        end += sum(max(0.0, seconds) for _, what, seconds in self.acts if what == "step")
        if "even" in kinds:
            minute = self.dice.choice([30, 45])
            slots = list(every_second_hour(zone, minute, start, end))
            self._add(f"{short}-even", slots, f"{minute} */2 * * *", name)
        if "night" in kinds:
            self._add(f"{short}-night", daily(zone, [(2, 30)], start, end), "30 2 * * *", name)
        if "twice" in kinds:
            slots = daily(zone, [(1, 15), (1, 45), (14, 15), (14, 45)], start, end)
            self._add(f"{short}-twice", slots, "15,45 1,14 * * *", name)
        if "grid" in kinds:
            self._add(f"{short}-grid", None, None, name)

    def _add(self, name, slots, expression, zone):
        words = {
            "retry": self.dice.randrange(3),
            "retry_on": Exception,
            "backoff": FixedBackoff(3),
            "circuit_breaker": self.dice.choice([None, CircuitBreaker(2), CircuitBreaker(2, recovery=REST * 2)]),
            "on_failure": self.dice.choice(["continue", "continue", "hold"]),
            "timeout": 5,
        }
        outages = [(at, at + self.dice.uniform(0, 2 * DAY)) for at in self._times(self.time.length / (20 * DAY))]
        if slots is None:
            words["interval"] = 2 * HOUR
            self.due[name] = self.time.grid(0.0, 2 * HOUR)
        else:
            words["schedule"] = Cron(expression, zone=zone)
            self.due[name] = self.time.cron(slots)
        self.app.add_telemetry(name, Device(self.dice, outages), **words)

    def _times(self, count):
        return [self.dice.uniform(0, self.time.length) for _ in range(round(count))]

    def run(self):
        with Harness(self.app, wall=self.time.pieces[0][1]) as running:
            running.at(0, self._listen)
            for now, what, seconds in self.acts:
                running.at(
                    now, lambda act=running.loop.step_wall if what == "step" else running.loop.block, s=seconds: act(s)
                )
            self._release(running)
            running.run(self.time.length)
            self.log = list(running.broker.log)
            assert running.faults() == []
        return self

    def _listen(self):
        loop = asyncio.get_running_loop()
        polls = next(each for each in gc.get_objects() if type(each) is PollContext and each.loop is loop)
        polls.environment.events.subscribe(self.events.append)

    def _release(self, running):
        """Somebody comes by now and then, and releases whatever is held."""
        for at in sorted(self._times(self.time.length / DAY * 2)):
            if self.time.quiet(at) and self.time.awake(at):
                for name in self.due:
                    running.at(at, lambda name=name: running.broker.send(f"app/{name}/release/set", b""))

    # What came of it

    def unaccounted(self, name):
        """Points of the schedule that came to nothing, or to more than one thing; and polls that no point and nobody
        asked for."""
        events = [event for event in self.events if getattr(event, "entity", None) == name]
        times, outcomes, wrong = [event.at for event in events], outcomes_of(events), []
        starts, last = [start for start, _ in outcomes], self.time.length - 2 * self.time.after
        asked = [event.at for event in events if type(event) is DeviceReleased]
        pauses = [event for event in events if type(event) is PollDeferred]
        asked += [self.time.woken(event.at + event.seconds) for event in pauses]
        unasked = {at for at in starts if at < last and not any(-1 <= at - since < 10 for since in asked)}
        for at, count in sorted(self.due[name].items()):
            if at > last:
                break
            within = outcomes[bisect_left(starts, at - 0.1) : bisect_right(starts, at + self.time.after)]
            before = events[: bisect_left(times, at - 0.001)]
            unasked -= {start for start, _ in within}
            silent = self._is_silent(before, at)
            if silent:  # a poll at the end of the pause is none of this point
                within = [each for each in within if not any(-1 <= each[0] - since < 10 for since in asked)]
            if sum(weight for _, weight in within) != count - silent:
                wrong.append((at, count, within, before[-3:]))
        return wrong + sorted(unasked)

    def _is_silent(self, before, at):
        """Whether the device is held, or asked to be left alone: then nothing is done at a point of the schedule."""
        for event in reversed(before):
            if type(event) is DeviceHeld or (type(event) is PollDeferred and event.at + event.seconds > at):
                return True
            if type(event) in (DeviceReleased, ReadingTaken):
                return False
        return False

    def contradictions(self):
        """Where a status document and an availability topic said different things for more than a second."""
        documents, topics, since, found = {}, {}, {}, []
        for message in self.log:
            if message.topic == "app/status" and message.json["state"] == "online":
                said = {name: is_offline(device) for name, device in message.json["devices"].items()}
                documents |= said
            elif message.topic.endswith("/availability"):
                said = {message.topic.split("/")[1]: message.payload == b"offline"}
                topics |= said
            else:
                continue
            found += [(name, since[name], message.at) for name in said if message.at - since.get(name, math.inf) > 1.1]
            for name in said:
                if documents.get(name) == topics.get(name):
                    since.pop(name, None)
                else:
                    since.setdefault(name, message.at)
        return found + [(name, at) for name, at in since.items() if self.time.length - at > 1.1]


def is_offline(device):
    return device["status"] in OFFLINE or (device["status"] in ("deferred", "error") and device.get("stale", False))


def outcomes_of(events):
    """When polls began that came to something, and for how many points of the schedule each stands."""
    found, began = [], None
    for event in events:
        match event:
            case AttemptFailed(attempt=1):
                began = event.at
            case ReadingTaken():
                found.append((event.at - event.duration, 1))
                began = None
            case PollFailed() | PollDeferred():
                found.append((event.at if began is None else began, 1))
                began = None
            case PollSkipped():
                found.append((event.at, 1))
            case PollMissed():
                found.append((event.at, event.polls))
    if began is not None:  # and goes on
        found.append((began, 1))
    return sorted(found)


@pytest.fixture
def hang_is_seen():
    """A loop that never ends would hang the tests, too."""

    def on_alarm(number, frame):
        raise TimeoutError("the app hangs")

    before = signal.signal(signal.SIGALRM, on_alarm)
    signal.alarm(600)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def check(scenario):
    assert {name: wrong for name in scenario.due if (wrong := scenario.unaccounted(name)[:3])} == {}
    assert scenario.contradictions() == []


@pytest.mark.parametrize("seed", [1])
def test_a_year_loses_no_point_of_a_schedule_and_hangs_nothing(hang_is_seen, monkeypatch, caplog, seed):
    caplog.set_level(logging.CRITICAL, "leadsman")  # thousands of lines, each formatted
    monkeypatch.setattr(
        leadsman.core.runtime.poll_schedule, "CLOCK_CHECK", 150.0
    )  # a year of looks every 30 s would take a minute longer
    scenario = Scenario(seed, datetime(2026, 1, 1, tzinfo=UTC), 365 * DAY, 60, 30, FEWER)

    check(scenario.run())

    assert {event.entity for event in scenario.events if type(event) is ReadingTaken} == set(scenario.due)


@settings(max_examples=examples(8))
@given(st.integers(0, 2**32), st.sampled_from(CHANGES))
@example(2993, (2026, 3, 8))  # a pause ends while the process sleeps
@example(22846, (2026, 3, 8))  # somebody releases a device right after the process woke
@example(1_156_638_688, (2026, 3, 29))  # a pause ends five seconds after a point of the schedule
def test_no_change_of_the_clock_loses_a_point_of_a_schedule(seed, day):
    scenario = Scenario(seed, datetime(*day, tzinfo=UTC) - timedelta(hours=30), 3 * DAY, 5, 2)

    check(scenario.run())
