"""What a stack of the benchmark of causes shows."""

from pathlib import Path

import pytest
from benchmarks.causes_job import CAUSES, STEP, WAKE_UPS, by_cause, cause_of

SITE = "/usr/lib/python3/asyncio/"
HOME = "/home/pi/leadsman/src/leadsman/core/"


@pytest.mark.parametrize(
    ("stack", "cause"),
    [
        ([(f"{SITE}base_events.py", "_run_once"), (f"{SITE}base_events.py", "run_forever")], "wake-ups"),
        ([(f"{SITE}selector_events.py", "write"), (f"{HOME}mqtt/codec_client.py", "_flush")], "the socket"),
        ([(f"{HOME}mqtt/outbox.py", "put"), (f"{HOME}runtime/publisher.py", "publish")], "the outbox"),
        ([("/usr/lib/python3/json/encoder.py", "iterencode"), (f"{HOME}runtime/publisher.py", "publish")], "readings"),
        (
            [(f"{HOME}mqtt/send_window.py", "acknowledged"), (f"{HOME}mqtt/codec_client.py", "buffer_updated")],
            "acknowledgements",
        ),
        ([(f"{HOME}event_bus.py", "emit"), (f"{HOME}runtime/poll_runner.py", "cycle")], "events"),
        ([("<string>", "f")], "other"),
    ],
)
def test_the_innermost_function_shows_the_cause(stack, cause):
    assert cause_of(stack).startswith(cause)


def test_a_loop_that_waits_shows_none():
    assert cause_of([("/usr/lib/python3/selectors.py", "select"), (f"{SITE}base_events.py", "_run_once")]) is None


def test_what_nobody_saw_is_what_wake_ups_take():
    assert by_cause({"events": 1000, WAKE_UPS: 200}, 1000 * STEP + 1.0) == {WAKE_UPS: 1.0, "events": 1000 * STEP}
    assert by_cause({"events": 1000}, 0.1) == {"events": 1000 * STEP, WAKE_UPS: 0.0}


def test_each_cause_of_the_project_is_about_files_that_there_are():
    files = [path.as_posix() for path in Path("src").rglob("*.py")]
    ours = [part for _, parts in CAUSES for part in parts if part.startswith(("/core/", "/runtime/", "/extensions/"))]

    assert [part for part in ours if not any(part in each for each in files)] == []
