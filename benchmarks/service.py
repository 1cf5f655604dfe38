"""What it costs to look at an app: the HTTP endpoint with a page open, large answers, and ``leadsman why``."""

import contextlib
import http.client
import json
import signal
import statistics
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence

import psutil

from benchmarks import bare_python
from benchmarks.ear import Ear
from benchmarks.measures import ROOT, with_state
from benchmarks.rows import NONE, Row, note, written
from leadsman.testing import Mosquitto
from leadsman.testing.mosquitto import free_port

DEVICES, INTERVAL = 200, 1.0
WARM_UP, MEASURED = 10.0, 20.0
"""Seconds."""
MANY, REST = 1000, 60.0
ANSWERS = 20
"""Answers whose CPU time is counted together."""
SEEN = 30
"""Devices of which the page shows the last values: those that are in view."""
RECENT = "/introspect?sections=recent" + "".join(f"&devices=d{number}" for number in range(SEEN))
PAGE = ("/", "/page.css", "/page.js", "/introspect", RECENT)
"""What a browser asks for when the page is opened."""


def service(times: int) -> list[Row]:
    """The rows of the endpoint, of large answers, and of ``why``."""
    note(f"the endpoint with a page open: {times} times half a minute")
    memory, cpu = zip(*(_with_a_page_open() for _ in range(times)), strict=True)
    note(f"large answers of {MANY:,} devices")
    figures = {path: _large_answers(path, times) for path in ("/introspect", "/metrics")}
    note("why")
    rows = [
        _row(f"HTTP endpoint on, page open, {DEVICES} devices at 1 s: memory more", memory, "MiB", "≤ 14 MiB"),
        _row("… CPU more, of one core", cpu, "%", "≤ 3 %"),
    ]
    for path, (took, blocked) in figures.items():
        rows += [
            _row(f"{path} of {MANY:,} devices: CPU", took, "ms", "≤ 40 ms" if path == "/introspect" else NONE),
            _row("… event loop blocked at most", blocked, "ms", "≤ 5 ms"),
        ]
    return [*rows, _row("why over MQTT, above the interpreter", _why(times), "ms", "≤ 200 ms")]


def _row(name: str, values: Sequence[float], unit: str, wanted: str) -> Row:
    return Row(name, NONE, written(statistics.median(values), unit), wanted=wanted)


def _with_a_page_open() -> tuple[float, float]:
    """MiB and per cent of a core by which an app with the endpoint, and a page, needs more than one without."""
    port = free_port()
    with contextlib.ExitStack() as stack:
        broker, other = (stack.enter_context(Mosquitto()) for _ in range(2))
        without = stack.enter_context(_job(other, DEVICES, INTERVAL))
        app = stack.enter_context(_job(broker, DEVICES, INTERVAL, port))
        _ready(port)
        stack.enter_context(_page(port))
        time.sleep(WARM_UP)
        before = _cpu(without), _cpu(app)
        time.sleep(MEASURED)
        after = _cpu(without), _cpu(app)
        sizes = [psutil.Process(each.pid).memory_info().rss / 2**20 for each in (without, app)]
    return sizes[1] - sizes[0], ((after[1] - before[1]) - (after[0] - before[0])) / MEASURED * 100


def _large_answers(path: str, times: int) -> tuple[list[float], list[float]]:
    """Milliseconds of CPU for an answer, and the longest time that it blocked the loop; both several times."""
    port, took, blocked = free_port(), list[float](), list[float]()
    with Mosquitto() as broker, _job(broker, MANY, REST, port, "watched") as app:
        _ready(port)
        time.sleep(WARM_UP)
        _get(port, path)  # the first one imports what it needs
        for _ in range(times):
            _longest(app)
            before = _cpu(app)
            for _ in range(ANSWERS):
                _get(port, path)
            took.append((_cpu(app) - before) / ANSWERS * 1e3)
            blocked.append(_longest(app) * 1e3)
    return took, blocked


def _why(times: int) -> list[float]:
    """Milliseconds that ``leadsman why`` takes, above a Python that does nothing."""
    found = []
    with Mosquitto() as broker:
        ear = Ear(broker.port, ("job/registry",))
        with _job(broker, 10, INTERVAL):
            ear.wait()
            command = ["-m", "leadsman", "why", "d1", "--prefix", "job", "--mqtt", broker.url]
            for _ in range(times):
                found.append(_taken(command) - _taken(["-c", "pass"]))
        ear.close()
    return found


def _taken(arguments: Sequence[str]) -> float:
    before = time.perf_counter()
    subprocess.run([_python(), *arguments], check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    return (time.perf_counter() - before) * 1e3


@contextlib.contextmanager
def _job(
    broker: Mosquitto, devices: int, interval: float, port: int | None = None, kind: str = "plain"
) -> Iterator["subprocess.Popen[str]"]:
    """The job as a process, with an endpoint at `port`; see `benchmarks.job`."""
    words = map(str, ("ours", broker.port, devices, interval, 0, kind))
    endpoint = {} if port is None else {"HTTP__BIND": f"127.0.0.1:{port}"}
    process = subprocess.Popen(
        [_python(), "-m", "benchmarks.job", *words],
        cwd=ROOT,
        env={**with_state(), **endpoint},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert process.stdout is not None
        if kind == "watched" and process.stdout.readline() != "watched\n":
            raise RuntimeError("the job did not start")
        yield process
    finally:
        process.kill()
        process.communicate()


def _python() -> str:
    """An interpreter with the packages of an install with the endpoint and metrics."""
    return bare_python.executable("http", "metrics")


def _ready(port: int) -> None:
    """Wait until the endpoint answers, and the devices are polled."""
    deadline = time.monotonic() + 30
    while True:
        with contextlib.suppress(OSError):
            if _get(port, "/readyz") == 200:
                return
        if time.monotonic() > deadline:
            raise TimeoutError("the endpoint did not answer")
        time.sleep(0.05)


def _get(port: int, path: str) -> int:
    """The status of an answer, which is read."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
        return answer.status
    finally:
        connection.close()


@contextlib.contextmanager
def _page(port: int) -> Iterator[None]:
    """A page that is open: it reads the documents once, and then the stream."""
    for path in PAGE:
        if _get(port, path) != 200:
            raise RuntimeError(f"the endpoint does not serve {path}")
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", "/events")
    stream, over = connection.getresponse(), threading.Event()

    def read() -> None:
        while not over.is_set() and stream.read1(1 << 16):
            pass

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield
    finally:
        over.set()
        reader.join()
        connection.close()


def _cpu(process: "subprocess.Popen[str]") -> float:
    times = psutil.Process(process.pid).cpu_times()
    return float(times.user + times.system)


def _longest(process: "subprocess.Popen[str]") -> float:
    """The longest time in seconds that a callback blocked the event loop, since it was asked for before."""
    process.send_signal(signal.SIGUSR1)
    assert process.stdout is not None
    answer = json.loads(process.stdout.readline())
    note(f"  blocked for {answer['longest'] * 1e3:.1f} ms by {answer['where']}")
    return float(answer["longest"])
