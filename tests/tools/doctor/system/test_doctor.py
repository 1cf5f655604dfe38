"""`leadsman doctor` against real brokers with planted mistakes, and beside a live app."""

import asyncio
import contextlib
import json
import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple

import pytest
import trustme

from leadsman import App, Brokers, Received, command_line
from leadsman.adapters.caldav import CalDav, calendar
from leadsman.adapters.http import HttpClient
from leadsman.adapters.serial import SerialPort
from leadsman.core.introspection.retained import FIRST_AHEAD
from leadsman.testing import Mosquitto, Recorded
from leadsman.testing.mosquitto import free_port
from leadsman.tools.doctor.checks import Finding, findings, worst
from leadsman.tools.doctor.commands.doctor import lines
from leadsman.tools.doctor.examination import Examination, look_at_radios
from leadsman.tools.doctor.subject import of_plan, of_prefix
from leadsman_rigs.bluez import Air
from leadsman_rigs.dav import Proxy, multistatus
from leadsman_rigs.password_file import write_password_file
from leadsman_rigs.web import Web

HOUSE = "house"
ALL = "topic readwrite house/#\ntopic read homeassistant/#\n"
PLANTED = {
    "nothing": ("", "", {}),
    "a state topic that may not be written, and one of a device that is gone": (
        "",
        f"{ALL}topic deny house/boiler/state\n",
        {
            ("publish", "fail"): "house/boiler/state may not be published to: not authorized",
            ("orphans", "warn"): "house/attic/state is kept, and no device of the app publishes there",
        },
    ),
    "commands that may not be read": (
        "",
        "topic write house/#\ntopic read house/doctor/probe\ntopic read house/introspect\ntopic read house/+/get\n",
        {("subscribe", "fail"): r"requests at house/\+/set, house/\+/\+/set do not arrive"},
    ),
    "probes that may not be published": (
        "",
        "topic write house/boiler/state\ntopic write house/introspect/response\ntopic read house/+/set\n",
        {
            ("publish", "unknown"): "house/doctor/probe may not be published to",
            ("orphans", "unknown"): "house/# may not be read",
            ("running app", "unknown"): "the doctor could not ask it",
        },
    ),
    "an access list for another prefix": (
        "",
        "topic readwrite home/#\n",
        {("publish", "fail"): "this user may write nothing below house/: house/doctor/probe and house/introspect/resp"},
    ),
    "small packets": ("max_packet_size 300\n", "", {("limits", "fail"): "packets of 300 bytes at most"}),
    "one message in flight": ("max_inflight_messages 1\n", "", {("limits", "warn"): "1 in flight at a time"}),
    "nothing retained": ("retain_available false\n", "", {("retained", "warn"): "the broker keeps no messages"}),
    "no acknowledgements": ("max_qos 0\n", "", {("limits", "warn"): "QoS 0 only"}),
    "a wrong password": ("", None, {("authentication", "fail"): "the broker refuses the user 'house'"}),
    "no password": ("", None, {("authentication", "fail"): "the broker does not allow anonymous clients"}),
    "one client id for all": (
        "use_username_as_clientid true\n",
        None,
        {("client ids", "fail"): "connections with different client ids end each other"},
    ),
    "another authority": ("", "", {("TLS", "fail"): "certificate verify failed"}),
    "another host": ("", "", {("TLS", "fail"): "certificate verify failed: (Hostname|IP address) mismatch"}),
    "another port": ("", "", {("address", "fail"): "cannot connect to mqtt://127.0.0.1:.*[Rr]efused"}),
    "a plain port": ("", "", {("address", "fail"): "is this a TLS port"}),
}
"""What is planted: lines of mosquitto.conf, its access list (None: it has passwords), and what must be found."""
OF_THE_PAGE = "a state topic that may not be written, and one of a device that is gone"
"""Its findings are shown in docs/how-to/doctor.md."""
LIVE = """
app = App("house", mqtt=os.environ["URL"])
n = 0
@app.telemetry("boiler", interval=0.2)
async def boiler():
    global n
    n += 1
    return {"n": n}
@app.command("boiler")
async def adjust(degrees: float) -> None:
    pass
"""
PREFIX_ALONE, LIVE_APP, CONTENDER = "a prefix alone", "a live app", "an app with a rival"
MOSQUITTO_SUB = ("mosquitto_sub", "-p")
DISCONNECTED, ROUND = "$SYS/broker/clients/disconnected", "$SYS/broker/bytes/sent"
GENEROUS = 60.0
"""Seconds."""
CREDENTIALS = {"a wrong password": "house:guess@", "one client id for all": "house:house-secret@"}


def app_of(url, **options):
    app = App(HOUSE, mqtt=url, **options)

    @app.telemetry("boiler", interval=1)
    async def boiler() -> dict[str, float]:
        return {}

    @app.command("boiler")
    async def adjust(degrees: float) -> None:
        pass

    app.load()
    return app


def subject_of(url, **options):
    return of_plan(app_of(url, **options).plan({"STATE_DIRECTORY": "/tmp"}))


async def examined(url, say=lambda text: None, **options):
    subject = subject_of(url, **options)
    return findings(await Examination(subject, say).run())


def of(found, check):
    return [(each.verdict, each.text) for each in found if each.check == check]


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """A directory with passwords, certificates and access lists."""
    directory = tmp_path_factory.mktemp("doctor")
    write_password_file(directory / "passwords", house="house-secret")
    authority, stranger = trustme.CA(), trustme.CA()
    authority.cert_pem.write_to_path(directory / "ca.pem")
    stranger.cert_pem.write_to_path(directory / "stranger.pem")
    for name, host in (("here", "127.0.0.1"), ("elsewhere", "elsewhere.example")):
        certificate = authority.issue_cert(host)
        certificate.private_key_pem.write_to_path(directory / f"{name}.key")
        certificate.cert_chain_pems[0].write_to_path(directory / f"{name}.pem")
    return directory


def broker_with(places, name):
    conf, access, _ = PLANTED[name]
    if access is None:
        return Mosquitto(f"{conf}password_file {places}/passwords\n", anonymous=False)
    if access:
        path = places / f"{name}.acl"
        path.write_text(access)
        conf += f"acl_file {path}\n"
    if name in ("another authority", "another host"):
        server = places / ("here" if name == "another authority" else "elsewhere")
        conf += f"cafile {places}/ca.pem\ncertfile {server}.pem\nkeyfile {server}.key\n"
    return Mosquitto(conf)


def url_of(places, name, broker):
    here = f"127.0.0.1:{broker.port}"
    if name == "another port":
        return nobody()
    if name == "a plain port":
        return f"mqtts://{here}"
    if name.startswith("another "):
        return f"mqtts://{here}?ca={places}/{'stranger' if name == 'another authority' else 'ca'}.pem"
    return f"mqtt://{CREDENTIALS.get(name, '')}{here}"


@pytest.fixture(scope="module")
def patient():
    """Times that are also enough where the machine is busy. What is denied is waited for in vain for `ANSWER`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("leadsman.tools.doctor.examination.DEADLINE", GENEROUS)
        patch.setattr("leadsman.tools.doctor.broker.STEP", GENEROUS)
        patch.setattr("leadsman.tools.doctor.broker.LONG_STEP", GENEROUS)
        patch.setattr("leadsman.tools.doctor.broker.NEIGHBOUR", 1.0)
        patch.setattr("leadsman.tools.doctor.broker.WILL_SLACK", GENEROUS)
        patch.setattr("leadsman.tools.doctor.broker.OFFERING", GENEROUS)
        patch.setattr("leadsman.tools.doctor.broker.ANSWER", 5.0)
        for module in ("leadsman.core.mqtt.codec_client", "leadsman.core.mqtt.aiomqtt_client"):
            patch.setattr(f"{module}.CONNECT_TIMEOUT", GENEROUS)
        yield


@pytest.fixture(scope="module")
def reports(patient, places, start_app_for_all, listen_all_along):
    """What the doctor finds: at each broker with a planted mistake, for a prefix alone, beside a live app, and beside
    an app whose client id another client has, too. All of that is examined at once, since most of the time passes in
    waiting."""
    with contextlib.ExitStack() as stack:
        brokers = {name: stack.enter_context(broker_with(places, name)) for name in PLANTED}
        publish(brokers[OF_THE_PAGE], "house/attic/state", "1", "-r")
        counting, contested = (stack.enter_context(Mosquitto("sys_interval 1\n")) for _ in range(2))
        live, contender = (start_app_for_all(LIVE, each.url) for each in (counting, contested))
        rival = [*MOSQUITTO_SUB, str(contested.port), "-i", "house", "-t", "x"]
        stack.callback(ended, subprocess.Popen(rival, stdout=subprocess.DEVNULL))
        examinations = {name: examined(url_of(places, name, each)) for name, each in brokers.items()} | {
            PREFIX_ALONE: examined_prefix(brokers["nothing"], "attic"),
            LIVE_APP: beside(counting, listen_all_along(counting.port), live),
            CONTENDER: contended(contested, listen_all_along(contested.port), contender),
        }
        return asyncio.run(all_at_once(examinations))


async def all_at_once(examinations):
    found = await asyncio.gather(*examinations.values())
    return dict(zip(examinations, found, strict=True))


async def examined_prefix(broker, prefix):
    return findings(await Examination(of_prefix(Brokers.of(broker.url), prefix), lambda text: None).run())


async def passes(condition, seconds=60.0):
    """Wait until a condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)


class Beside(NamedTuple):
    """An examination beside a live app."""

    found: list[Finding]
    log: str
    heard: list[Received]
    """What was published meanwhile."""
    all_along: list[Received]
    """What was published since the app started."""
    kept: list[str]
    """The retained topics of the examination that were there afterwards."""
    sessions: int


async def beside(broker, listener, app):
    """Examine beside a live app, which goes on before and after it."""

    def readings():
        return len(listener.on("house/boiler/state"))

    await passes(lambda: readings() >= 2)
    before = len(listener.messages)
    found = await examined(broker.url)
    enough = readings() + 2
    await passes(lambda: readings() >= enough)
    heard = [message for _, message in listener.messages]
    return Beside(found, app.log, heard[before:], heard, *await asyncio.to_thread(left_at, broker))


async def contended(broker, listener, app):
    """Examine beside an app and a rival that end each other's connections. mosquitto 2.1 says why it ends one, so the
    app reports it when it is back; before, the number of its connections tells."""

    def tells():
        reports = listener.on("house/status")
        return app.log.count("connected to the broker") >= 3 or any(b"uses the client id" in r.payload for r in reports)

    await passes(tells)
    return await examined(broker.url)


def ended(process):
    process.kill()
    process.wait()


def publish(broker, topic, payload, *options):
    command = ["mosquitto_pub", "-p", str(broker.port), "-t", topic, "-m", payload, "-q", "1", *options]
    subprocess.run(command, check=True)


@pytest.mark.parametrize("name", PLANTED)
def test_what_is_planted_is_found_and_named(reports, name):
    found, expected = reports[name], PLANTED[name][2]

    for (check, verdict), words in expected.items():
        matching = [each for each in found if each.check == check and each.verdict == verdict]
        assert [each for each in matching if re.search(words, each.text)], found
        assert verdict == "unknown" or all(each.advice for each in matching)
    if name == "one client id for all":
        return  # the connections of the doctor end one another, so there is more that it does not see
    others = [each for each in found if each.group != "machine" and each.verdict in ("warn", "fail")]
    assert {(each.check, each.verdict) for each in others} == {key for key in expected if key[1] != "unknown"}, others


def test_a_sound_broker_is_seen_in_full(reports):
    found = [each for each in reports["nothing"] if each.group in ("broker", "topics")]

    assert {each.check for each in found if each.verdict == "unknown"} == {"Home Assistant"}
    assert ("ok", "all 9 topics of the app") in of(found, "publish")
    assert ("ok", "requests arrive at 4 filters") in of(found, "subscribe")
    assert ("ok", "retained messages arrive, and can be removed") in of(found, "retained")
    assert ("ok", "the will comes, after its delay of 2 s") in of(found, "will")


def test_an_old_broker_is_examined_as_far_as_it_goes(old_broker, monkeypatch, patient):
    monkeypatch.setattr("leadsman.core.mqtt.codec_client.CONNECT_TIMEOUT", 1.0)  # it is silent where MQTT 5 is spoken

    found = asyncio.run(examined(f"mqtt://127.0.0.1:{old_broker}"))

    assert [verdict for verdict, text in of(found, "version") if "MQTT 3.1.1 only" in text] == ["warn"]
    assert of(found, "publish") == [("unknown", "MQTT 3.1.1 cannot report that a message is refused")]
    assert [verdict for verdict, _ in of(found, "subscribe")] == ["ok"], found
    assert not [each for each in found if each.group == "broker" and each.verdict == "fail"]


def test_a_prefix_alone_will_do(reports):
    found = reports[PREFIX_ALONE]

    assert ("ok", "all 4 topics of the app") in of(found, "publish")
    assert of(found, "orphans") == []


@pytest.fixture
def counting():
    with Mosquitto("sys_interval 1\n") as broker:
        yield broker


def test_the_live_app_goes_on_and_nothing_is_left(reports):
    beside = reports[LIVE_APP]
    found, heard = beside.found, beside.heard

    def documents(topic):
        return [json.loads(message.payload) for message in beside.all_along if message.topic == topic]

    assert [verdict for verdict, text in of(found, "running app") if "answers as 'house', after 1 connection" in text]
    assert of(found, "clock")[0] == ("ok", "the clock of the running app agrees with this one")
    ours = {message.topic for message in heard if message.topic.startswith("house/doctor/")}
    assert ours == {f"house/doctor/{word}" for word in ("probe", "set", "get", "doctor/set", "retained", "will")}
    rest = [message for message in heard if message.topic not in ours]
    own = f"house/registry/{FIRST_AHEAD}"  # the app removes it itself
    empty = [message.topic for message in rest if not message.payload and message.topic != own]
    assert not empty, "an empty message reached a topic of the app"
    assert {message.topic.split("/")[1] for message in rest} <= {"boiler", "status", "introspect", "registry"}
    assert [message for message in rest if message.topic == "house/introspect"][1:] == []
    numbers = [document["n"] for document in documents("house/boiler/state")]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert len({document["session"] for document in documents("house/status")}) == 1
    assert "doctor" not in beside.log
    assert (beside.kept, beside.sessions) == ([], 0)


def left_at(broker):
    """The retained topics of the examination, and the sessions without a connection once the broker has counted
    again: it publishes the number of bytes in each round, and after the sessions."""
    subscribe = [*MOSQUITTO_SUB, str(broker.port)]
    retained = [*subscribe, "-t", "house/#", "--retained-only", "-W", "1", "-F", "%t"]
    counts = [*subscribe, "-F", "%t %p", "-W", "60", "-t", DISCONNECTED, "-t", ROUND]
    sessions, rounds = None, 0
    with (
        subprocess.Popen(retained, stdout=subprocess.PIPE, text=True) as keeping,
        subprocess.Popen(counts, stdout=subprocess.PIPE, text=True) as counting,
    ):
        for line in counting.stdout:
            topic, number = line.split()
            rounds += topic == ROUND
            sessions = int(number) if topic == DISCONNECTED else sessions
            if rounds == 2:  # the first one is that of an earlier round, which was retained
                break
        counting.kill()
        return [topic for topic in keeping.communicate()[0].split() if "doctor" in topic], sessions


def test_another_client_with_the_id_of_the_app_is_named(reports):
    found = reports[CONTENDER]

    trouble = next(each for each in found if each.check == "running app")
    assert trouble.verdict == "fail" or "its status is its will" in trouble.text, trouble
    assert "stop the other client with the client id of the app" in trouble.advice, trouble


@pytest.fixture
def impatience(monkeypatch):
    """A function that shortens the times for a connection and for an answer, for a broker that is silent."""

    def shorten():
        monkeypatch.setattr("leadsman.tools.doctor.broker.ANSWER", 1.0)
        for module in ("leadsman.core.mqtt.codec_client", "leadsman.core.mqtt.aiomqtt_client"):
            monkeypatch.setattr(f"{module}.CONNECT_TIMEOUT", 0.3)

    return shorten


def test_a_frozen_broker_is_a_verdict(mosquitto, impatience):
    impatience()
    mosquitto.freeze()

    found = asyncio.run(examined(mosquitto.url))

    assert [verdict for verdict, text in of(found, "address") if "did not answer within" in text] == ["fail"]


def test_a_broker_that_freezes_meanwhile_is_a_verdict(mosquitto, patient, impatience):
    def freeze(text):
        if "will of the app" in text:
            mosquitto.freeze()
            impatience()

    found = asyncio.run(examined(mosquitto.url, freeze))

    assert [verdict for verdict, text in of(found, "address") if "stopped answering" in text] == ["fail"]
    assert of(found, "publish") == [("ok", "all 9 topics of the app")]


def test_a_silent_name_server_is_a_verdict(monkeypatch, impatience):
    impatience()
    released = threading.Event()
    real = socket.getaddrinfo

    def silent(host, *args, **kwargs):
        if host == "broker.example" and kwargs.get("flags") != socket.AI_NUMERICHOST:
            released.wait(GENEROUS)
        return real(host, *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", silent)
    try:
        found = asyncio.run(examined("mqtt://broker.example"))
    finally:
        released.set()

    assert [verdict for verdict, text in of(found, "address") if "did not answer within" in text] == ["fail"]


def nobody():
    """The URL of a broker that is not there: what is examined besides does not wait for one."""
    return f"mqtt://127.0.0.1:{free_port()}"


APP = """
from leadsman import App
app = App("house")
@app.telemetry("boiler", interval=1)
async def boiler() -> dict:
    return {}
@app.command("boiler")
async def adjust(degrees: float) -> None:
    pass
"""


def heed_ctrl_c():
    """A shell that starts the tests in the background has all their programs ignore Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Terminal:
    """A command line on a terminal."""

    def __init__(self, directory, *arguments, **variables):
        (directory / "house.py").write_text(APP)
        self.master, slave = pty.openpty()
        environment = {**os.environ, "PYTHONWARNINGS": "error", "COLUMNS": "120", **variables}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "leadsman", "doctor", *arguments],
            cwd=directory,
            env=environment,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=heed_ctrl_c,
        )
        os.close(slave)
        self.said = ""

    def reads_until(self, words, timeout=60.0):
        deadline = time.monotonic() + timeout
        while words not in self.said and time.monotonic() < deadline:
            if select.select([self.master], [], [], 0.1)[0]:
                try:
                    self.said += os.read(self.master, 65536).decode()
                except OSError:  # the other side is closed
                    break
        assert words in self.said, self.said


def test_progress_is_shown_and_ctrl_c_leaves_nothing(tmp_path, counting):
    terminal = Terminal(tmp_path, "house:app", "--mqtt", counting.url)
    terminal.reads_until("examining broker: ")
    terminal.reads_until("broker: subscriptions")  # by now there are a retained message and a will

    terminal.process.send_signal(signal.SIGINT)

    assert terminal.process.wait(60) == 130
    terminal.reads_until("\r\x1b[K")
    assert "Traceback (most" not in terminal.said
    assert left_at(counting) == ([], 0)


def command(directory, *arguments, **variables):
    (directory / "house.py").write_text(APP)
    return subprocess.run(
        [sys.executable, "-m", "leadsman", "doctor", *arguments],
        cwd=directory,
        env={**os.environ, "PYTHONWARNINGS": "error", "COLUMNS": "100", **variables},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_the_json_form_has_all_findings_and_the_exit_code_says_whether_one_fails(tmp_path):
    done = command(tmp_path, "house:app", "--json", "--mqtt", nobody())

    document = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (4, "")
    assert document["verdict"] == "fail"
    (address,) = [each for each in document["findings"] if each["check"] == "address"]
    assert set(address) == {"group", "check", "verdict", "text", "advice"}


def test_an_app_that_is_a_program_has_a_doctor(capsys):
    code = command_line(app_of(nobody()))(["--doctor", "--prefix", "attic"])

    shown = capsys.readouterr().out
    assert code == 4
    assert "fail    address" in shown


def test_the_page_shows_what_comes(reports, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    shown_here = "\n".join(lines(reports[OF_THE_PAGE], 2.0))

    page = Path("docs/how-to/doctor.md").read_text()
    (shown,) = re.findall(r"```text\n(broker\n.*?)```", page, re.DOTALL)
    for line in shown.splitlines():
        pattern = re.sub(r"\d+(\\\.\d+)*", r"[\\d.]+", re.escape(line))
        assert re.search(f"^{pattern}$", shown_here, re.MULTILINE), f"{line!r} is not in:\n{shown_here}"


def test_a_serial_port_that_others_use_is_seen_without_opening_it(pty_device):
    with open(pty_device.path, "rb", buffering=0) as opened:
        other = subprocess.Popen(["sleep", "30"], stdin=opened)
        try:
            subject = subject_of(
                nobody(), adapters={"a": SerialPort(str(pty_device.path)), "b": SerialPort("/dev/gone")}
            )
            facts = asyncio.run(Examination(subject, lambda text: None).run())
        finally:
            other.kill()
            other.wait()

    there, gone = facts.serial
    assert (there.exists, there.device, there.allowed) == (True, True, True)
    assert any(f"sleep ({other.pid})" == each for each in there.holders)
    assert not gone.exists


def test_a_calendar_server_says_whether_it_takes_the_password(radicale):
    url = f"http://127.0.0.1:{radicale.port}/ann/"
    adapters = {"right": CalDav(url, "ann", "secret"), "wrong": CalDav(url, "ann", "guess")}

    found = asyncio.run(examined(nobody(), adapters=adapters))

    right, wrong = of(found, "calendars")
    assert right == ("ok", f"{url} accepts the user")
    assert wrong[0] == "fail"
    assert "check username, password or token" in wrong[1]


def test_a_server_over_http_is_asked_once_and_any_answer_will_do():
    with Web({"/api": Recorded("x" * 2_000_000), "/busy": Recorded("", 503, {"Retry-After": "9"})}) as web:
        adapters = {
            "right": HttpClient(f"{web.url}/api"),
            "empty": HttpClient(web.url),
            "busy": HttpClient(f"{web.url}/busy"),
            "gone": HttpClient("http://127.0.0.1:9"),
            "any": HttpClient(),
        }
        with Web(account=("ann", "secret")) as strict:
            adapters["wrong"] = HttpClient(strict.url, "ann", "geheim", auth="digest")
            found = asyncio.run(examined(nobody(), adapters=adapters))

    right, empty, busy, gone, wrong = of(found, "HTTP server")
    assert right == ("ok", f"{web.url}/api answers")
    assert (empty[0], busy[0], gone[0], wrong[0]) == ("ok", "ok", "fail", "fail")
    assert "nothing listens at 127.0.0.1:9" in gone[1]
    assert "check username and password" in wrong[1]
    assert len(web.recordings.requests) == 3


def forgetful(radicale):
    """Before a server: a search by time finds nothing."""
    proxy = Proxy(radicale.port)
    answer = proxy.answer

    def forget(handler):
        proxy.fault = multistatus().encode() if b"time-range" in handler.body else None
        answer(handler)

    proxy.answer = forget
    return proxy


def test_the_search_by_time_of_a_calendar_server_is_compared_with_a_search_for_all(radicale, monkeypatch):
    radicale.calendar("waste", "Waste")
    radicale.add("waste", "paper", "SUMMARY:Paper", "DTSTART;VALUE=DATE:20260105", "RRULE:FREQ=WEEKLY")
    radicale.add("waste", "over", "SUMMARY:Over", "DTSTART;VALUE=DATE:20260105")

    def searched(url, **options):
        adapter = CalDav(url, "ann", "secret", **options)
        found = asyncio.run(examined(nobody(), adapters={"a": adapter}))
        return [(each.verdict, each.text, each.advice) for each in found if each.check == "calendar search"]

    with forgetful(radicale) as proxy:
        text = f"{proxy.url}: a search by time of 'Waste' leaves out 1 event, such as 'Paper'"
        advice = 'write CalDav(…, search="all"), which reads each calendar whole'
        assert searched(proxy.url) == [("warn", f"{text}; the app reads it whole while it is small", advice)]
        assert searched(proxy.url, search="all") == [("ok", f"{text}; the app reads it whole", "")]
        monkeypatch.setattr(calendar, "MAX_OBJECTS", 1)
        assert searched(proxy.url) == [("fail", text, advice)]
        assert set(proxy.asked) <= {"OPTIONS", "PROPFIND", "REPORT"}  # which change nothing

    url = f"http://127.0.0.1:{radicale.port}"
    assert searched(url) == [("ok", f"{url}: a search by time brings all events of 1 calendar", "")]


def test_bluez_says_whether_its_adapter_has_power(monkeypatch, tmp_path):
    with Air() as air:
        powered = asyncio.run(look_at_radios("", tmp_path))
        air.call(air.daemon.power(False))
        off = asyncio.run(look_at_radios("hci0", tmp_path))

    assert (powered.adapters, powered.fault) == ({"hci0": True}, None)
    assert off.adapters == {"hci0": False}


def test_a_machine_without_d_bus_is_a_verdict(monkeypatch, tmp_path):
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", f"unix:path={tmp_path}/none")

    found = asyncio.run(look_at_radios("", tmp_path))

    assert "D-Bus does not answer" in found.fault


def test_the_whole_is_as_bad_as_its_worst_part(reports):
    assert worst(reports[OF_THE_PAGE]) == "fail"
