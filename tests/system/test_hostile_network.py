"""A network that flips bits, cuts connections and falls silent, between an app and a real broker."""

import json
import re
import time
from collections import defaultdict
from contextlib import ExitStack

import pytest
import trustme

from leadsman.testing import Mosquitto
from leadsman.testing.mosquitto import free_port
from leadsman_rigs.proxy import Proxy

TEN_DEVICES = """
class Device:
    def __init__(self):
        self.n = 0
    async def __call__(self):
        if os.path.exists(REST):
            return None
        self.n += 1
        return {"n": self.n}

for number in range(10):
    app.add_telemetry(f"d{number}", Device(), interval=0.1)
"""
FAULTS = {  # what each direction does; bytes between two faults, on the average
    "flips on the way to the broker": ({"flip_every": 4000}, {}),
    "flips on the way to the app": ({}, {"flip_every": 100}),
    "cuts on the way to the broker": ({"cut_every": 8000}, {}),
    "cuts on the way to the app": ({}, {"cut_every": 200}),
    "flips under TLS": ({"flip_every": 20_000}, {"flip_every": 20_000}),
    "cuts under TLS": ({"cut_every": 12_000}, {"cut_every": 12_000}),
    "silence": ({}, {}),
    "flips on the way to the broker, MQTT 3.1.1": ({"flip_every": 4000}, {}),
    "flips on the way to the app, MQTT 3.1.1": ({}, {"flip_every": 100}),
    "cuts on the way to the app, MQTT 3.1.1": ({}, {"cut_every": 200}),
}
DAMAGING = tuple(name for name in FAULTS if name.startswith("flips on the way"))
"""Without TLS, a flipped bit makes another message, or acknowledges another one, and nobody can tell."""
STATE = re.compile(r"sys/d([0-9])/state")
SECONDS = 12
REASONS = (
    *("connection was lost", "closed the connection", "reset", "malformed", "Malformed", "protocol", "Protocol"),
    *("packet", "acknowledgement", "TLS", "no CONNACK", "cannot connect", "refuse"),
)


class Case:
    """One app behind one bad network, and what came of it."""

    def __init__(self, name, certificates, stack, start_app, listen):
        self.name, tls, plain = name, "TLS" in name, free_port()
        conf = f"certfile {certificates}/it.pem\nkeyfile {certificates}/it.key\nlistener {plain} 127.0.0.1\n"
        broker = stack.enter_context(Mosquitto(conf if tls else ""))
        self.proxy = stack.enter_context(Proxy(broker.port, seed=3))
        self.listener = listening(listen, plain if tls else broker.port)
        url = f"mqtts://127.0.0.1:{self.proxy.port}?ca={certificates}/ca.pem" if tls else self.proxy.url
        url += "?protocol=3.1.1" if "3.1.1" in name else ""
        self.resting = certificates / f"{broker.port} rests"
        self.app = start_app(f"REST = {str(self.resting)!r}\n{TEN_DEVICES}", url)
        self.came, self.looked_at = defaultdict(list), 0

    def begin(self):
        for way, faults in zip((self.proxy.up, self.proxy.down), FAULTS[self.name], strict=True):
            for name, value in faults.items():
                setattr(way, name, value)
        if self.name == "silence":
            self.proxy.stall()

    @property
    def struck(self):
        """Whether the faults have come about."""
        done = self.proxy.done
        return (done.flipped > 0 or "flips" not in self.name) and (done.cuts > 1 or "cuts" not in self.name)

    def end(self):
        """The network is well again, and what its faults have left behind is cut off."""
        for way in (self.proxy.up, self.proxy.down):
            way.flip_every = way.cut_every = None
        if self.name == "silence":
            self.proxy.resume()
        self.proxy.cut()
        self.healed = time.monotonic()

    def rest(self):
        """Nothing more is read, so that a machine that cannot take as much as all apps read comes to an end, too."""
        self.resting.touch()

    def numbers(self, device, since=0.0):
        """The readings of a device that came at or after `since`, in the order in which they came first."""
        self.look()
        return list(dict.fromkeys(number for at, number in self.came[device] if at >= since))

    def look(self):
        """Read the messages that have come since the last look: all of them again each time would take so long that a
        busy machine hears no more than is sent meanwhile."""
        new = self.listener.messages[self.looked_at :]
        self.looked_at += len(new)
        for at, message in new:
            if match := STATE.fullmatch(message.topic):
                try:
                    self.came[int(match[1])].append((at, int(json.loads(message.payload)["n"])))
                except (ValueError, KeyError, TypeError, OverflowError):  # damaged
                    assert self.name in DAMAGING


def listening(listen, port):
    """A listener at a port that the broker opens soon: it may open its ports one after the other."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return listen(port)
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    directory, authority = tmp_path_factory.mktemp("certificates"), trustme.CA()
    authority.cert_pem.write_to_path(directory / "ca.pem")
    certificate = authority.issue_cert("127.0.0.1")
    certificate.private_key_pem.write_to_path(directory / "it.key")
    certificate.cert_chain_pems[0].write_to_path(directory / "it.pem")
    return directory


@pytest.fixture(scope="module")
def cases(certificates, start_app_for_all, listen_all_along):
    """All of them at once: each takes seconds, and nearly all of it is waiting."""
    with ExitStack() as stack:
        cases = {name: Case(name, certificates, stack, start_app_for_all, listen_all_along) for name in FAULTS}
        for case in cases.values():
            case.listener.wait_for("sys/d9/state", 5, timeout=60)
        for case in cases.values():
            case.begin()
        time.sleep(SECONDS)
        deadline = time.monotonic() + 60
        while not all(case.struck for case in cases.values()) and time.monotonic() < deadline:
            time.sleep(0.1)
        for case in cases.values():
            case.end()
        yield cases


def delivers_again(case):
    """Wait until the app has delivered readings of each device through the network that is well."""
    deadline = time.monotonic() + 90
    while not all(len(case.numbers(device, case.healed)) >= 30 for device in range(10)):
        assert case.app.process.poll() is None, case.app.log
        assert time.monotonic() < deadline, case.app.log
        time.sleep(0.1)


@pytest.mark.parametrize("name", FAULTS)
def test_the_app_lives_and_delivers_again_when_the_network_is_well(cases, name):
    case = cases[name]

    delivers_again(case)

    assert case.struck
    assert case.proxy.done.accepted > 1


@pytest.mark.parametrize("name", [name for name in FAULTS if name not in DAMAGING])
def test_every_reading_arrives(cases, name):
    """Behind a bad network the newest readings may go first, over MQTT 5; the older ones follow."""
    case = cases[name]
    for each in cases.values():
        delivers_again(each)
        each.rest()
    last = [max(case.numbers(device)) for device in range(10)]

    deadline = time.monotonic() + 90
    for device in range(10):
        while missing := set(range(3, last[device] + 1)).difference(case.numbers(device)):
            assert time.monotonic() < deadline, f"device {device}: {sorted(missing)} are missing; {case.app.log}"
            time.sleep(0.1)


def test_readings_keep_the_order_of_their_device_over_mqtt_3_1_1(cases):
    case = cases["cuts on the way to the app, MQTT 3.1.1"]

    for device in range(10):
        numbers = case.numbers(device)
        assert numbers == sorted(numbers)


@pytest.mark.parametrize("name", FAULTS)
def test_the_log_names_reasons(cases, name):
    log = cases[name].app.log

    assert any(reason in log for reason in REASONS), log
    assert len(log.splitlines()) < 100, log
