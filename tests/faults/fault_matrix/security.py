"""Secrets, names and bombs."""

import json
import subprocess
import sys
import time
from http.client import HTTPConnection

from benchmarks.ear import Ear

from fault_matrix.answers import refusing
from fault_matrix.canary import CAGE, CANARY
from fault_matrix.row import P0, row
from fault_matrix.stand import Job, Stand
from leadsman import App
from leadsman.errors import ConfigurationError
from leadsman.testing.mosquitto import free_port

TELLING = """
import base64

def told(settings):
    key = settings.api_key.get_secret_value()
    encoded = base64.b64encode(key.encode())
    return f"the settings are {settings!r}, the app is {app!r}, and {key!r} or {encoded!r} is refused"

class Door:
    def __init__(self, settings):
        self.settings = settings

    async def __aenter__(self):
        raise OSError(told(self.settings))

    async def __aexit__(self, *exc_info):
        pass

def doors(settings):
    return (Door(settings),)

app = App("row", mqtt=os.environ.get("URL"), settings=Settings, heartbeat=1, adapters=doors)

@app.telemetry("failing", interval=0.5)
async def failing(settings: Settings):
    raise RuntimeError(told(settings))

@app.telemetry("shut", interval=0.5)
async def shut(door: Door):
    pass

@app.command("failing")
async def obey(settings: Settings):
    raise RuntimeError(told(settings))

meters(2, 0.2)
"""
WRONG = """
from pydantic import field_validator

class Settings(BaseModel):
    api_key: SecretStr

    @field_validator("api_key", mode="before")
    @classmethod
    def refuse(cls, key):
        raise ValueError(f"{key} is no key")

app = App("row", mqtt=os.environ.get("URL"), settings=Settings)
meters(2, 0.2)
"""


PATHS = (
    *("/", "/metrics", "/introspect", "/trace", "/ledger", "/why/failing", "/why/shut", "/registry", "/healthz"),
    "/openapi.json",
)


@row("22", P0, "a password in the URL, in a file, and in wrong settings", "in no log, message, document, page or file")
def canary(stand: Stand) -> None:
    """Each row is searched for it, see `Stand`; this one makes the app talk."""
    broker = stand.broker()
    stand.listen(broker.port)
    port, secret = free_port(), stand.directory / CAGE
    web = {"HTTP__BIND": f"127.0.0.1:{port}", "HTTP__TOKEN_FILE": str(secret)}
    app = stand.app(broker.url, TELLING, LOG_LEVEL="DEBUG", **web)
    refused = stand.app(
        stand.faulty(refusing(0x86, [], reason_str=f"{CANARY} is wrong")).url,
        TELLING,
        "refused",
        LOG_LEVEL="DEBUG",
        LOG_FORMAT="json",
    )
    away = stand.app(f"mqtt://127.0.0.1:{free_port()}", TELLING, "away", LOG_FORMAT="journal")
    wrong = stand.app(broker.url, WRONG, "wrong")
    stand.until(lambda: stand.tally.came >= 10 and wrong.process.poll() is not None, "readings, and an end")
    stand.expect(wrong.process.returncode == 78, f"wrong settings end with {wrong.process.returncode}")
    asking = Ear(broker.port, ("nothing",))
    for topic, payload in {
        "row/introspect": {"sections": ["app", "mqtt", "adapters", "devices", "jobs", "recent", "trace"]},
        "row/failing/set": {"value": CANARY[:6]},
        "row/failing/get": {},
    }.items():
        asking.publish(topic, json.dumps(payload).encode())
    stand.until(lambda: any(topic == "row/introspect/response" for topic, _ in stand.heard), "an answer")
    asking.close()
    ask_commands(
        stand,
        app,
        *(["check"], ["inspect"], ["inspect", "--live", "--json"], ["doctor"], ["why", "failing"], ["gaps", "--json"]),
        *(["trace", "--json"], ["held"], ["schema"]),
    )
    stand.until(lambda: (stand.directory / "away-state" / "outbox.db").exists(), "a file of readings that wait")
    ask_commands(stand, away, ["outbox", "--json"])
    ask_pages(stand, port)
    written = sum(path.stat().st_size for path in stand.directory.glob("*") if path.suffix in (".log", ".txt"))
    stand.figure("searched", (written + sum(len(payload) for _, payload in stand.heard)) / 1000, "kB", least=5)
    for each in (app, refused, away):
        each.kill()
        stand.expect(each.log, f"{each.log_path.name} is empty, so nothing was searched")
        each.log_path.write_text(each.log.replace("Traceback", "traceback"))  # the handlers raise on purpose


def ask_commands(stand: Stand, app: Job, *commands: list[str]) -> None:
    """Let the command line say what it knows of an app."""
    target = f"{app.file.stem}:app"
    for number, words in enumerate(commands):
        named = ["--app", target] if words[0] in ("why", "outbox") else [target]
        with (stand.directory / f"{app.file.stem}-command{number}.txt").open("wb") as output:
            done = subprocess.run(
                [sys.executable, "-m", "leadsman", *words, *named],
                cwd=stand.directory,
                env=app.environment | {"LOG_LEVEL": "DEBUG"},
                stdout=output,
                stderr=output,
                timeout=60,
                check=False,
            )
        stand.expect(done.returncode in (0, 3, 4), f"leadsman {' '.join(words)} ends with {done.returncode}")


def ask_pages(stand: Stand, port: int) -> None:
    """Let the HTTP endpoint say all that it knows, once with the token and once with a wrong one."""
    for path in PATHS:
        for token in (CANARY, CANARY[:-1]):
            connection = HTTPConnection("127.0.0.1", port, timeout=30)
            connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
            answer = connection.getresponse()
            name = f"page{path.replace('/', '-')}-{answer.status}.txt"
            (stand.directory / name).write_bytes(str(answer.headers).encode() + answer.read())
            connection.close()
            stand.expect(answer.status in (200, 401), f"{path} is answered with {answer.status}")


NAMES = (
    *("kitchen", "living room", "küche", "🌡", "..", "a.b", "a%2Fb", "a_b", "A", "a", "ä", "a\u0308", "x" * 200),
    *("a+b", "#", "a/b", "/", "", " ", "a\0b", "a\rb", "a\nb", "a\u2028b", "a\u200bb", "\ufeffa", "\ud800", "$SYS"),
    *("x" * 300, "ü" * 101, "status", "set", "a\x1b[31mb", "\u202eb"),
)


@row("23", P0, "device names with + # / NUL CR U+2028, of 300 bytes", "refused by name, or one level of a topic")
def names(stand: Stand) -> None:
    good, refused = [], 0
    for name in NAMES:
        try:
            App("row").add_telemetry(name, _read, interval=1)
        except ConfigurationError as error:
            refused += 1
            stand.expect(str(error).isprintable(), f"the error about {name!a} has control characters")
        else:
            good.append(name)
    broker = stand.broker()
    stand.listen(broker.port)
    code = f"for name in {good!r}:\n    app.add_telemetry(name, Meter('m'), interval=0.5)\n"
    app = stand.app(broker.url, code)
    expected = {f"row/{name}/state" for name in good}
    stand.until(lambda: expected <= {topic for topic, _ in list(stand.heard)}, "a reading of each device")
    stand.figure("refused", refused, least=15)
    stand.figure("taken", len(good), least=10)
    topics = {topic for topic, _ in stand.heard if topic.endswith("/state")}
    stand.figure("topics of state", len(topics), most=len(good), least=len(good))
    stand.figure("connections", app.log.count("connected to the broker"), most=1)
    stand.stop(app)


async def _read() -> dict[str, int]:
    return {"t": 1}


BOMBS = """
import json, sys, time
from datetime import date
from pathlib import Path
from zoneinfo import ZoneInfo
from leadsman.adapters.caldav.recurrence import occurrences

def event(*lines):
    return "\\r\\n".join(["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:x", "BEGIN:VEVENT", "UID:1", *lines,
        "END:VEVENT", "END:VCALENDAR", ""])

def many(count):
    lines = "BEGIN:VEVENT", "UID:%d", "DTSTART:20260101T000000Z", "END:VEVENT", ""
    body = "".join("\\r\\n".join(lines) % n for n in range(count))
    return f"BEGIN:VCALENDAR\\r\\nVERSION:2.0\\r\\nPRODID:x\\r\\n{body}END:VCALENDAR\\r\\n"

START = "DTSTART:20240101T000000Z"
bombs = {
    "SECONDLY": event(START, "RRULE:FREQ=SECONDLY"),
    "COUNT=2e9": event(START, "RRULE:FREQ=SECONDLY;COUNT=2000000000"),
    "INTERVAL=2e6": event(START, "RRULE:FREQ=DAILY;INTERVAL=2000000"),
    "MINUTELY": event(START, "RRULE:FREQ=MINUTELY"),
    "YEARLY by all": event(START, "RRULE:FREQ=YEARLY;BYHOUR=" + ",".join(map(str, range(24))) + ";BYMINUTE="
        + ",".join(map(str, range(60))) + ";BYSECOND=" + ",".join(map(str, range(60)))),
    "RDATE": event(START, "RDATE:" + ",".join(["20240102T000000Z"] * 200_000)),
    "50,000 events": many(50_000),
}
for name, text in bombs.items():
    before = time.process_time()
    try:
        occurrences([text], date(2026, 11, 1), date(2026, 11, 8), ZoneInfo("UTC"), set())
    except Exception as error:
        print(type(error).__name__, file=sys.stderr)
    used = time.process_time() - before
    # The most of this program: what getrusage says begins with the memory of the process that started it.
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    print(json.dumps([name, used, int(status["VmHWM"].split()[0]) / 1024]), flush=True)
"""


@row("24", P0, "recurrence rules that never end, calendars that are too large", "less than 2 s of CPU, 150 MB")
def bombs(stand: Stand) -> None:
    done = subprocess.run([sys.executable, "-c", BOMBS], capture_output=True, text=True, timeout=120, check=False)
    stand.expect(done.returncode == 0, f"it ended with {done.returncode}: {done.stderr[-300:]}")
    found = [json.loads(line) for line in done.stdout.splitlines()]
    stand.figure("bombs", len(found), least=7)
    slowest = max(found, key=lambda each: each[1])
    stand.figure(f"slowest, {slowest[0]},", slowest[1], "s of CPU", most=2)
    stand.figure("memory at most", max(size for _, _, size in found), "MB", most=150)


OTHER_PEOPLES = (
    *("zigbee2mqtt/bridge/state", "homeassistant/sensor/other/config", "homeassistant/device/row/other/config"),
    *("other/app/state", "row2/x/state", "row/lease"),
)


@row("23b", P0, "a registry that lists the retained topics of other programs is planted", "removes none of them")
def planted(stand: Stand) -> None:
    broker = stand.broker()
    first = stand.app(broker.url, "meters(1, 0.5)", "first")
    stand.until(lambda: "row/registry" in _kept(broker.port), "a registry")
    stand.stop(first)
    page = json.loads(_kept(broker.port)["row/registry"])
    page["devices"]["ghost"] = {
        "topics": {"state": OTHER_PEOPLES[0], "availability": "row/ghost/availability"},
        "retained": ["state", "availability"],
        "others": [*OTHER_PEOPLES],
    }
    mouth = Ear(broker.port, ("nothing",))
    for topic in (*OTHER_PEOPLES, "row/ghost/availability"):
        mouth.publish(topic, b'{"of":"another"}', retain=True)

    def plant() -> None:
        mouth.publish("row/registry", json.dumps(page).encode(), retain=True)
        stand.until(lambda: b"ghost" in _kept(broker.port)["row/registry"], "the planted registry")

    left = []
    plant()
    second = stand.app(broker.url, "meters(1, 0.5)", "second")
    stand.until(lambda: b"ghost" not in _kept(broker.port)["row/registry"], "its own registry")
    left.append(_kept(broker.port).keys())
    stand.expect("row/ghost/availability" not in left[0], "the topic of the ghost below the prefix is left")
    stand.stop(second)
    for words in (["clean", "second_row:app"], ["clean", "--prefix", "row", "--all", "--mqtt", broker.url]):
        plant()
        run = [sys.executable, "-m", "leadsman", *words]
        done = subprocess.run(run, cwd=stand.directory, env=second.environment, timeout=60, check=False)
        stand.expect(done.returncode == 0, f"leadsman {' '.join(words)} ends with {done.returncode}")
        left.append(_kept(broker.port).keys())
    mouth.close()
    stand.expect("row/registry" not in left[-1], "the registry is left")
    gone = sum(len(set(OTHER_PEOPLES) - kept) for kept in left)
    stand.figure("topics of others, thrice", 3 * len(OTHER_PEOPLES), least=18)
    stand.figure("removed", gone, most=0)


def _kept(port: int) -> dict[str, bytes]:
    """What the broker retains, by topic."""
    ear = Ear(port, ("#",))
    time.sleep(0.3)
    ear.close()
    return {heard.topic: heard.payload for heard in ear.heard if heard.retained}
