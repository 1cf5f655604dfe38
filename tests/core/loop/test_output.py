"""Lines for an output that may take nothing: who is kept waiting, what is left out, and where that is reported."""

import fcntl
import os
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leadsman.core.loop import output as module
from leadsman.core.loop.output import MAX_WAITING_CHARS, Output, to_descriptor
from leadsman_rigs.examples import examples


class Gate:
    """An output that writes as many lines as it is told."""

    def __init__(self, lines=0):
        self.written, self._may = [], threading.Semaphore(lines)

    def write(self, line):
        assert self._may.acquire(timeout=60)
        self.written.append(line)

    def open(self, lines=20_000):
        self._may.release(lines)


def until(true):
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def report(lines):
    return f"[{lines}]"


@pytest.fixture
def patient(monkeypatch):
    """Whoever puts a line waits as long as it takes, on a busy machine, too."""
    monkeypatch.setattr(module, "PUT_TIMEOUT", 60)


@pytest.mark.usefixtures("patient")
def test_a_line_is_written_when_it_has_been_put():
    written = []
    output = Output(written.append)

    for number in range(100):
        output.put(str(number))
        assert written[-1] == str(number)
    output.close()


def test_nothing_is_waited_for_and_no_thread_runs_before_the_first_line():
    before = threading.active_count()
    output = Output(lambda line: None)

    assert output.flush(0)
    output.close()
    assert threading.active_count() == before


def test_an_output_that_takes_nothing_keeps_one_line_waiting_and_none_after_it(monkeypatch):
    waits, gate = [], Gate()
    output = Output(gate.write)
    monkeypatch.setattr(output._progress, "wait_for", lambda true, timeout: waits.append(timeout))

    for number in range(100):
        output.put(str(number))

    assert waits == [module.PUT_TIMEOUT]
    gate.open()
    until(lambda: output.flush(0))
    assert gate.written == [str(number) for number in range(100)]


@pytest.mark.usefixtures("patient")
@settings(max_examples=examples(100))
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("put"), st.integers(1, MAX_WAITING_CHARS // 3)),
            st.tuples(st.just("take"), st.integers(1, 5)),
        ),
        max_size=40,
    )
)
def test_each_line_is_written_once_and_in_its_order_or_counted_in_its_place(steps):
    gate, put = Gate(), 0
    output = Output(gate.write, report)
    output._patient_from = float("inf")
    for what, number in steps:
        if what == "put":
            output.put(f"{put}:".ljust(number, "x"))
            put += 1
        else:
            before = len(gate.written)
            taken = min(number, output._put - before)
            if taken:
                gate.open(taken)
            until(lambda aim=before + taken: len(gate.written) >= aim)
    gate.open()
    until(lambda: output.flush(0) and not output._unreported)

    found = 0
    for line in gate.written:
        if line.startswith("["):
            found += int(line[1:-1])
        else:
            assert line.startswith(f"{found}:")
            found += 1
    assert found == put
    output.close()


def test_what_waits_is_bounded():
    gate = Gate()
    output = Output(gate.write, report)
    output._patient_from = float("inf")

    for _ in range(10_000):
        output.put("x" * 100)

    assert output._characters <= MAX_WAITING_CHARS
    assert output.left_out == 10_000 - MAX_WAITING_CHARS // 100
    gate.open()
    until(lambda: gate.written[-1:] == [f"[{output.left_out}]"])
    output.close()


def test_an_output_that_fails_loses_its_lines_and_nobody_notices():
    def write(line):
        raise BrokenPipeError

    output = Output(write)
    output.put("lost")
    until(lambda: output.flush(0))
    output.close()


def test_without_a_thread_the_line_is_written_at_once(monkeypatch):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    written = []
    output = Output(written.append)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        output.put("one")
        assert written == ["one"]
    output.put("two")
    until(lambda: output.flush(0))
    assert written == ["one", "two"]
    output.close()


@pytest.mark.usefixtures("patient")
def test_a_finalizer_that_logs_while_the_thread_starts_does_not_start_another_one(monkeypatch):
    """Two of them would write some lines twice, and others never."""
    start, started, written = threading.Thread.start, [], []
    output = Output(written.append)

    def start_slowly(thread):
        started.append(thread)
        if len(started) == 1:
            monkeypatch.setattr(module, "PUT_TIMEOUT", 0)  # nobody writes yet
            output.put("of the finalizer")
            monkeypatch.setattr(module, "PUT_TIMEOUT", 60)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_slowly)
    output.put("first")
    until(lambda: output.flush(0))
    output.close()

    assert len(started) == 1
    assert sorted(written) == ["first", "of the finalizer"]


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_ends_with_its_last_line_written(monkeypatch):
    monkeypatch.setattr(module, "CLOSING", 60)
    reads, writes = os.pipe()
    output = Output(lambda line: (time.sleep(5 * module.PUT_TIMEOUT), os.write(writes, line.encode())))

    child = os.fork()
    if child == 0:
        output.put("last")
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writes)
    with open(reads) as read:
        assert read.read() == "last"


def test_an_output_that_had_no_line_ends_too():
    ended = []
    Output(str, end=lambda: ended.append(True)).close()

    assert ended == [True]


def test_at_the_end_lines_are_written_at_once_unless_nobody_reads():
    written, gate = [], Gate()
    read, unread = Output(written.append), Output(gate.write)
    read.put("one")
    unread.put("one")

    read.close()
    unread.close()
    read.put("two")
    unread.put("two")

    assert written == ["one", "two"]
    assert (gate.written, unread.left_out) == ([], 1)
    gate.open()


def test_what_is_logged_in_the_middle_of_a_line_does_not_hang():
    """As by a finalizer, which may run anywhere."""
    written = []

    def write(line):
        if line == "one":
            output.put("two")
        written.append(line)

    output = Output(write)
    output.put("one")
    until(lambda: output.flush(0))

    assert written == ["one", "two"]
    output.close()


def test_a_pipe_that_does_not_block_loses_nothing():
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETFL, fcntl.fcntl(writer, fcntl.F_GETFL) | os.O_NONBLOCK)
    text = "é" * 500_000
    output = Output(to_descriptor(writer))
    output.put(text)

    found = b""
    while len(found) < 1_000_000:
        found += os.read(reader, 65536)
    until(lambda: output.flush(0))
    output.close()

    assert found.decode() == text
    os.close(reader)
    os.close(writer)
