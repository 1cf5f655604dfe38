"""What an app costs that uses nothing but `App.telemetry`, and what each extension adds to it: at the start, in memory,
and for each reading."""

import json
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from typing import cast

from benchmarks import bare_python
from benchmarks.extensions_job import DEVICES, Added, Cost, added
from benchmarks.measures import ROOT, RUN, first_reading, import_time, memory, with_state
from benchmarks.rows import NONE, Row, note, paired_row, written
from leadsman.extensions import SHIPPED, Shipped
from leadsman.testing import Mosquitto
from leadsman.testing.mosquitto import free_port

APP = "nothing but @app.telemetry"
SETTINGS = {
    "discovery": {"DISCOVERY__CONVENTION": "homeassistant"},
    "http": {"HTTP__BIND": "127.0.0.1:{port}"},
    "watchdog": {"LEADSMAN_HEALTH_FILE": "{state}/health"},
    "nodes": {"STANDBY__ENABLED": "true", "STANDBY__TTL": "3s"},
}
"""What turns an extension on. The others join always, or are only commands: the app is compared with one without their
row of `SHIPPED`."""
_IMPORT = """
import contextlib, importlib, json, sys, time
def load(names):
    for name in names:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
before, more = json.load(sys.stdin)
load(before)
began = time.perf_counter()
load(more)
print((time.perf_counter() - began) * 1e3)
"""


def extensions(times: int) -> list[Row]:
    """The rows of an app with nothing but telemetry, and those of each extension."""
    note(f"what each extension adds: {times} times a minute")
    apps, more = list[Cost](), {_name(each): list[Added]() for each in SHIPPED}
    for _ in range(times):
        apps.append(app := _cost({}))
        for each in SHIPPED:
            name = _name(each)
            if name in SETTINGS:
                more[name].append(added(app, _cost(SETTINGS[name])))
            else:
                more[name].append(added(_cost({}, each.package), app))
    rows = _of_the_app(times, apps)
    for name, rounds in more.items():
        others = [module for module in apps[0]["modules"] if module not in rounds[0].modules]
        rows += _of(name, rounds, _import_times(others, rounds[0].modules, times))
    return rows


def _name(extension: Shipped) -> str:
    return extension.package.rpartition(".")[2]


def _of_the_app(times: int, costs: Sequence[Cost]) -> list[Row]:
    """The rows of an app with nothing but telemetry."""
    note("an app with nothing but telemetry")
    interpreter = _said(["-c", "import sys; print(*sys.modules)"]).split()
    modules = [name for name in costs[0]["modules"] if name not in interpreter]
    imports = [{"bare": import_time(RUN), "ours": took} for took in _import_times(interpreter, modules, times)]
    starts, sizes = (
        [{"bare": measure("bare", 10), "ours": measure("telemetry", 10)} for _ in range(times)]
        for measure in (first_reading, memory)
    )
    return [
        _row(f"{APP}: modules", "", [len(modules)]),
        paired_row(f"{APP}: imports, above the interpreter", "ms", imports, NONE),
        paired_row(f"{APP}: start to first reading received, 10 devices", "ms", starts, NONE),
        paired_row(f"{APP}: memory with 10 devices", "MiB", sizes, NONE),
        _row(f"{APP}: calls of a reading", "", [each["calls"] for each in costs]),
    ]


def _of(name: str, rounds: Sequence[Added], imports: Sequence[float]) -> list[Row]:
    """The rows of an extension."""
    modules = tuple(float(len(each.modules)) for each in rounds)
    text = f"{statistics.median(modules):g}; {written(statistics.median(imports), 'ms')}"
    return [
        Row(f"{name} adds: modules; their import", ours=text, rounds=modules),
        _row(f"{name} adds: memory with {DEVICES} devices", "KiB", [each.memory for each in rounds]),
        _row(f"{name} adds: calls of a reading", "", [each.calls for each in rounds]),
    ]


def _row(name: str, unit: str, rounds: Sequence[float]) -> Row:
    """A row that has no bare side, and is judged by its values."""
    return Row(name, ours=written(statistics.median(rounds), unit), rounds=tuple(rounds))


def _import_times(before: Sequence[str], modules: Sequence[str], times: int) -> list[float]:
    """Milliseconds to import modules, each time in a process of its own that has others already."""
    return [float(_said(["-c", _IMPORT], json.dumps([before, modules]))) for _ in range(times)]


def _cost(variables: Mapping[str, str], without: str = "") -> Cost:
    """What the app costs with these variables, or without a row of `SHIPPED`."""
    state = with_state()
    port = free_port()
    given = {name: value.format(port=port, state=state["STATE_DIRECTORY"]) for name, value in variables.items()}
    given["OUTBOX__DURABILITY"] = "memory"  # else the file of the outbox is opened once a reading waits, if one does
    with Mosquitto() as broker:
        words = ["-X", "tracemalloc", "-m", "benchmarks.extensions_job", str(broker.port), without]
        return cast(Cost, json.loads(_said(words, environment={**state, **given})))


def _said(words: Sequence[str], given: str = "", environment: Mapping[str, str] | None = None) -> str:
    """What a Python with the packages of the endpoint prints."""
    command = [bare_python.executable("http"), *words]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, input=given, text=True, stdout=subprocess.PIPE, check=True, timeout=120
    )
    return done.stdout
