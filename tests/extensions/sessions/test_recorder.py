"""A recording whose output takes nothing, or no more: the app goes on."""

import os
import time

import pytest

from leadsman.extensions.sessions.mask import Mask
from leadsman.extensions.sessions.recorder import Recorder
from leadsman.extensions.sessions.session import Event


@pytest.fixture
def pipe():
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as file:
        yield reader, file
    os.close(reader)


def until(true):
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def recorder_of(file):
    return Recorder(file, "house", time.monotonic, time.time(), Mask(addresses=False))


def test_a_recording_that_nobody_reads_ends_and_says_so_and_its_events_keep_nobody_waiting(pipe):
    recorder = recorder_of(pipe[1])

    for _ in range(1000):
        recorder.write(Event(0.0, "serial /dev/ttyUSB0", 0, "send", b"x" * 1000, {}))

    assert recorder.fault == "the session cannot be written: nobody reads it"
    assert recorder.events < 1000
    recorder.end()


def test_a_recording_whose_last_lines_nobody_reads_says_so(pipe):
    recorder = recorder_of(pipe[1])
    for _ in range(60):
        recorder.write(Event(0.0, "serial /dev/ttyUSB0", 0, "send", b"x" * 1000, {}))

    recorder.end()

    assert recorder.fault == "the session cannot be written: nobody reads it"


def test_a_recording_whose_reader_has_gone_ends_and_says_so(pipe):
    reader, file = pipe
    recorder = recorder_of(file)
    os.dup2(os.open(os.devnull, os.O_RDONLY), reader)  # the reader's end is closed

    recorder.write(Event(0.0, "serial /dev/ttyUSB0", 0, "send", b"x", {}))

    until(lambda: recorder.fault is not None)
    assert recorder.fault.startswith("the session cannot be written: ")
    assert "Broken pipe" in recorder.fault
    recorder.end()
