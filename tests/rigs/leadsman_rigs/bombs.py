"""Inputs that are small and want much, and what each of them costs: ``python -m leadsman_rigs.bombs settings``.

Each is read in a process of its own, with limits on its time and memory. What came of it, the seconds of CPU and the
most memory in MB are printed as JSON, one line for each.
"""

import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from zoneinfo import ZoneInfo

from leadsman.errors import LeadsmanError

KINDS = ("settings", "payloads", "calendars")
SECONDS, BYTES = 20, 2 * 2**30
"""Of CPU and of addresses: more than anything here may cost, and less than the machine has."""
Bomb = tuple[str, Callable[[], object]]


def settings() -> Iterator[Bomb]:
    """Settings files."""
    from leadsman.core.settings.sources import Where, read_entries

    directory = Path(tempfile.mkdtemp())
    fill = 256 * 1024 - 100  # a settings file has at most 256 KiB

    def file(name: str, content: str | bytes) -> Callable[[], object]:
        path = directory / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return lambda: read_entries("house", Where({}, directory, path), lambda path: True)

    yield "lists in lists", file("lists.toml", "a=" + "[" * fill)
    yield "tables in tables", file("tables.toml", "a=" + "{a=" * (fill // 3))
    yield "a key of many parts", file("key.toml", ".".join(["a"] * (fill // 2)) + "=1")
    yield "a table of many parts", file("table.toml", "[" + ".".join(["a"] * (fill // 2)) + "]")
    yield "a long number", file("number.toml", "a=" + "9" * fill)
    yield "a long hexadecimal number", file("hex.toml", "a=0x" + "f" * fill)
    yield "a key twice", file("twice.toml", "a=1\na=2")
    yield "no text", file("bytes.toml", b"a='\xff\xfe'")
    yield "too large", file("large.toml", "a='" + "x" * 2**24 + "'")
    yield "without end", lambda: read_entries("house", Where({}, directory, Path("/dev/zero")), lambda path: True)
    yield "aliases of aliases", file("laughs.yaml", "a0: &a0 [x,x,x,x,x,x,x,x,x]\n" + _aliases("[{}]"))
    yield "merges of merges", file("merges.yaml", "a0: &a0 {x: 1}\n" + _aliases("{{<<: [{}], k: 1}}"))
    yield "an alias of itself", file("itself.yaml", "a: &a [*a]\n")
    yield "sequences in sequences", file("deep.yaml", "a: " + "[" * 100_000)
    yield "a key twice in YAML", file("twice.yaml", "a: 1\na: 2\n")
    yield "a long number in YAML", file("number.yaml", "a: " + "9" * fill)
    yield "an object", file("object.yaml", "a: !!python/object/apply:os.system ['id']\n")


def _aliases(form: str) -> str:
    return "".join(f"a{n}: &a{n} {form.format(','.join([f'*a{n - 1}'] * 9))}\n" for n in range(1, 10))


def payloads() -> Iterator[Bomb]:
    """Payloads of commands and requests."""
    from leadsman.core.mqtt.answers import MAX_REQUEST_BYTES, decode

    for name, payload in {
        "lists in lists": b"[" * MAX_REQUEST_BYTES,
        "objects in objects": b'{"a":' * (MAX_REQUEST_BYTES // 5),
        "21 levels": b"[" * 21 + b"]" * 21,
        "a long number in a list": b"[" + b"9" * (MAX_REQUEST_BYTES - 2) + b"]",
        "an infinite number": b"[1e400]",
        "no number": b"[NaN]",
        "a key twice": b'{"a": 1, "a": 2}',
        "half a surrogate pair": b'"\\ud800"',
        "no text": b"\xff" * MAX_REQUEST_BYTES,
        "too large": b"x" * 2**24,
    }.items():
        yield name, lambda payload=payload: decode(payload)


def calendars() -> Iterator[Bomb]:
    """Calendar objects."""
    from leadsman.adapters.caldav.recurrence import occurrences
    from leadsman_rigs.dav import event

    start, own = "DTSTART:20240101T000000Z", "DTSTART;TZID=Own:20261102T000000"

    def expand(text: str) -> Callable[[], object]:
        return lambda: occurrences([text], date(2026, 11, 1), date(2026, 11, 8), ZoneInfo("UTC"), set())

    def zone(*rules: str) -> str:
        clocks = "\r\n".join(
            f"BEGIN:STANDARD\r\nDTSTART:19700101T000000\r\n{rule}\r\nTZOFFSETFROM:+0100\r\nTZOFFSETTO:+0000\r\n"
            "END:STANDARD"
            for rule in rules
        )
        return f"BEGIN:VTIMEZONE\r\nTZID:Own\r\n{clocks}\r\nEND:VTIMEZONE\r\nBEGIN:VEVENT"

    def in_zone(*rules: str) -> Callable[[], object]:
        return expand(event("1", own).replace("BEGIN:VEVENT", zone(*rules), 1))

    hours, minutes = ",".join(map(str, range(24))), ",".join(map(str, range(60)))
    rules = {
        "each second": "FREQ=SECONDLY",
        "two thousand million times": "FREQ=SECONDLY;COUNT=2000000000",
        "each second of a day of a year": f"FREQ=YEARLY;BYHOUR={hours};BYMINUTE={minutes};BYSECOND={minutes}",
        "a day that never comes": "FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30",
        "the 366th moment of a day": "FREQ=DAILY;BYSETPOS=366",
        "an hour of no day": "FREQ=HOURLY;BYYEARDAY=366;BYMONTH=1",
        "a million days of a month": "FREQ=DAILY;BYMONTHDAY=" + ",".join(["1"] * 1_000_000),
    }
    for name, rule in rules.items():
        yield name, expand(event("1", start, f"RRULE:{rule}"))
        yield f"exceptions: {name}", expand(event("1", start, "RRULE:FREQ=DAILY", f"EXRULE:{rule}"))
        yield f"clocks change: {name}", in_zone(f"RRULE:{rule}")
    yield "thousands of clocks", in_zone(*["RRULE:FREQ=YEARLY"] * 3000)
    dates = ",".join(["20240102T000000Z"] * 100_000)
    yield "thousands of dates", expand(event("1", start, "RDATE:" + dates))
    yield "thousands of exceptions", expand(event("1", start, "RRULE:FREQ=DAILY", "EX\r\n DATE:" + dates))
    body = event("1", start, f"RRULE:FREQ=DAILY;BYHOUR={hours};BYMINUTE={minutes[:60]}")
    begin, end = body.index("BEGIN:VEVENT"), body.index("END:VCALENDAR")
    yield "thousands of rules", expand(body[:begin] + body[begin:end] * 1500 + body[end:])
    yield "thousands of events", expand(body[:begin] + body[begin:end] * 50_000 + body[end:])
    now = "DTSTART:20261102T000000Z"
    yield "a property of megabytes", expand(event("1", now, "DESCRIPTION:" + "\\" * 8_000_000))
    yield "a million parameters", expand(event("1", now, "SUMMARY" + ";A=B" * 2_000_000 + ":x"))
    yield "a name of megabytes", expand(event("1", "DTSTART;TZID=" + "x" * 8_000_000 + ":20261102T000000"))


def main() -> None:
    """Read each bomb of a kind."""
    for name, read in {"settings": settings, "payloads": payloads, "calendars": calendars}[sys.argv[1]]():
        if (child := os.fork()) == 0:
            resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
            resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
            before = time.process_time()
            try:
                outcome = f"read: {read()!r}"
            except LeadsmanError as error:
                outcome = f"refused: {error}"
            except BaseException as error:
                outcome = f"{type(error).__name__}: {error}"
            _tell(name, outcome[:200], time.process_time() - before, _most_memory())
            os._exit(0)
        if os.waitpid(child, 0)[1]:
            _tell(name, "killed by a limit", float(SECONDS), BYTES / 1e6)


def _tell(*found: object) -> None:
    sys.stdout.write(f"{json.dumps(found)}\n")
    sys.stdout.flush()  # os._exit does not


def _most_memory() -> float:
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmHWM"].split()[0]) / 1024


if __name__ == "__main__":
    main()
