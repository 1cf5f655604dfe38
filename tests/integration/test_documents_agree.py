"""No document contradicts itself, whatever fails and however the moments of time fall: status and
staleness are of one moment."""

from hypothesis import given, settings
from hypothesis import strategies as st

from leadsman import App, CircuitBreaker, RetryRequested
from leadsman.core.monitoring.health import CIRCUIT_OPEN, DEFERRED, ERROR, HELD, ISOLATED, STALE
from leadsman.testing import Harness, Scripted, fail, hang
from leadsman_rigs.examples import examples

READING = {"t": 21.5}
BEFORE_STALE = {HELD, ISOLATED, CIRCUIT_OPEN, DEFERRED, STALE}
"""The statuses that a stale device may have: they stand before staleness, or are it."""
TOLD = 1.001
"""Seconds within which a change by time is told, and what floats round."""


def pause(seconds):
    async def ask():
        raise RetryRequested(seconds, "asked")

    return ask


class Outcomes:
    """A handler whose calls end as `script` says: a reading, a failure, a call that hangs, or a pause of so many
    seconds. The last one is for all further calls."""

    def __init__(self, script):
        self.calls = [pause(each) if isinstance(each, float) else Scripted(each) for each in script]
        self.number = -1

    async def __call__(self):
        self.number = min(self.number + 1, len(self.calls) - 1)
        return await self.calls[self.number]()


outcomes = st.one_of(st.just(READING), st.just(fail()), st.just(hang(7)), st.floats(1.0, 60.0))
seconds = st.floats(1.0, 50.0).map(lambda number: round(number, 2))
devices = st.fixed_dictionaries(
    {"script": st.lists(outcomes, min_size=1, max_size=4), "interval": seconds, "stale_after": seconds},
    optional={
        "retry": st.integers(0, 2),
        "timeout": st.floats(1.0, 20.0),
        "circuit_breaker": st.just(CircuitBreaker(2)),
        "on_failure": st.just("hold"),
    },
)


def check(report, name):
    """Check one device in a heartbeat or in an introspection document."""
    word = report["status"]
    assert (word == STALE) <= (report.get("stale", False)), (name, report)
    if word == ERROR:
        assert report.get("last_error"), (name, report)
    if report.get("stale"):
        assert word in BEFORE_STALE or (word == ERROR and report["last_success_at"] is None), (name, report)
    if word == DEFERRED:
        assert report["deferred_until"] is not None, (name, report)


@settings(max_examples=examples(15))
@given(st.lists(devices, min_size=1, max_size=3), st.lists(seconds, max_size=6))
def test_documents_agree_with_themselves(found, asked):
    app = App("house")
    for number, options in enumerate(found):
        app.add_telemetry(f"d{number}", Outcomes(options.pop("script")), **options)
    with Harness(app) as running:
        for moment in sorted(asked):
            if moment > running.now:
                running.run(moment - running.now)
            running.broker.send("house/introspect", {"sections": ["devices"]})
        running.run(120)

        for message in running.broker.messages("house/introspect/response"):
            for name, section in message.json["data"]["devices"].items():
                check(section["runtime"], name)
        for message in running.broker.messages("house/status"):
            for name, report in message.json["devices"].items():
                check(report, name)


@settings(max_examples=examples(15))
@given(seconds, seconds, seconds)
def test_what_time_alone_makes_stale_is_told_within_a_second(stale_after, interval, other):
    app = App("house")
    app.add_telemetry("silent", Scripted(READING, hang(999)), interval=1, timeout=None, stale_after=stale_after)
    app.add_telemetry("other", Scripted(READING, fail(), READING, fail()), interval=interval, stale_after=other)
    with Harness(app) as running:
        running.run(stale_after + 3)
        read = running.broker.messages("house/silent/state")[-1].at

        def told(topic, is_stale):
            return next(each.at for each in running.broker.messages(topic) if is_stale(each))

        at = told("house/status", lambda each: each.json["devices"]["silent"]["status"] == "stale")
        offline = told("house/silent/availability", lambda each: each.payload == b"offline")
        assert all(0 <= moment - read - stale_after <= TOLD for moment in (at, offline))
