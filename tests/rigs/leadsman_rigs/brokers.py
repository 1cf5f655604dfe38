"""Real brokers besides mosquitto, each with one user, one topic that may not be published to and, where it has one, a
limit on the size of a message. `scripts/brokers` installs those that no other test needs.

Each runs inside a ``with`` block, and may be restarted.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from importlib.metadata import files, version
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType

import paho.mqtt.client as paho

from leadsman.testing.embedded import embedded_broker
from leadsman.testing.mosquitto import executable, free_port

HERE = Path(__file__).parents[3]
INSTALLED = HERE / ".venv-brokers"
"""Where `scripts/brokers` puts what is no Debian package."""
START_TIMEOUT = 120.0
"""Seconds; RabbitMQ takes five on an idle machine."""
USER, PASSWORD = "sys", "secret"
DENIED = "sys/denied/state"
LIMIT = 20_000
"""Bytes of a message, where the broker has a limit."""


class OtherBroker:
    """A broker in a process of its own.

    Attributes:
        name: as its makers write it.
        cannot: what it cannot do, by the name of a check, in words for the page about brokers.
        user: the user name, as a URL has it; None if it takes everybody.
        denies: whether it can be told to deny a topic.
        limits: whether it can be told a limit on the size of a message.
        wrong_password: what the doctor says of one; None if any password is taken here.
        protocol: the version of MQTT in which a subscriber of the tests speaks to it.
    """

    name = ""
    user: str | None = USER
    denies = limits = True
    wrong_password = "fail authentication the broker refuses the user 'sys'"
    protocol = paho.MQTTv311
    cannot = MappingProxyType({})

    def __init__(self):
        self.port = free_port()
        self.directory = Path(tempfile.mkdtemp(prefix=f"leadsman-{self.name.lower()}-"))
        self.log = self.directory / "log"
        self.process = None
        self.denied = DENIED

    @classmethod
    def missing(cls):
        """Why it cannot be examined here; None if it can."""
        raise NotImplementedError  # each broker has its own

    @classmethod
    def version(cls):
        """The version that is installed."""
        raise NotImplementedError  # each broker has its own

    def command(self):
        """Write what it reads, and return its command line and its variables."""
        raise NotImplementedError  # each broker has its own

    def url(self, password=PASSWORD):
        user = "" if self.user is None else f"{self.user.replace('@', '%40')}:{password}@"
        return f"mqtt://{user}127.0.0.1:{self.port}"

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *exc_info):
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    def start(self):
        command, variables = self.command()
        with self.log.open("ab") as stream:
            self.process = subprocess.Popen(
                command,
                env={**os.environ, **variables},
                cwd=self.directory,
                stdout=stream,
                stderr=stream,
                start_new_session=True,
            )
        self._wait()
        self.ready()

    def _wait(self):
        deadline = time.monotonic() + START_TIMEOUT
        while True:
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port), 0.2).close()
                return
            time.sleep(0.05)

    def ready(self):
        """Do what is left once it listens."""

    def stop(self):
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None

    def allow(self):
        """Deny nothing from now on."""
        self.denied = "nothing/at/all"
        self.restart()

    def restart(self):
        self.stop()
        self.start()


class MosquittoBroker(OtherBroker):
    name = "mosquitto"

    @classmethod
    def missing(cls):
        return None if executable() else "mosquitto is not installed; type: make deps"

    @classmethod
    def version(cls):
        text = subprocess.run([executable(), "-h"], capture_output=True, text=True, check=False).stdout
        return re.search(r"version (\S+)", text)[1]

    def command(self):
        passwords, access, conf = (self.directory / each for each in ("passwords", "access", "conf"))
        if not passwords.exists():
            subprocess.run(["mosquitto_passwd", "-b", "-c", passwords, USER, PASSWORD], check=True)
        access.write_text(f"user {USER}\ntopic readwrite #\ntopic deny {self.denied}\ntopic read $SYS/#\n")
        conf.write_text(
            f"user root\nlistener {self.port} 127.0.0.1\npassword_file {passwords}\nacl_file {access}\n"
            f"message_size_limit {LIMIT}\npersistence true\npersistence_location {self.directory}/\n"
            "autosave_interval 1\nautosave_on_changes true\nset_tcp_nodelay true\nlog_type none\n"
        )
        return [executable(), "-c", str(conf)], {}


class NatsMqtt(OtherBroker):
    name = "nats-server"
    limits = False
    cannot = MappingProxyType(
        {
            "refusal": "acknowledges what it denies; the doctor sees that nothing arrives",
            "will": "MQTT 3.1.1: no delay",
            "size": "has no limit for MQTT",
        }
    )

    @classmethod
    def program(cls):
        return shutil.which("nats-server", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")

    @classmethod
    def missing(cls):
        return None if cls.program() else "nats-server is not installed; type: make deps"

    @classmethod
    def version(cls):
        return re.search(r" v(\S+)", subprocess.check_output([cls.program(), "--version"], text=True))[1]

    def command(self):
        conf = self.directory / "conf"
        conf.write_text(
            f"server_name: one\nlisten: 127.0.0.1:{free_port()}\n"
            f"jetstream {{ store_dir: {json.dumps(str(self.directory / 'data'))} }}\n"
            f"mqtt {{ listen: 127.0.0.1:{self.port} }}\n"
            f"authorization {{ users: [ {{ user: {USER}, password: {PASSWORD}, permissions: {{ "
            f'publish: {{ deny: "{self.denied.replace("/", ".")}" }} }} }} ] }}\n'
        )
        return [self.program(), "-c", str(conf)], {}


AEDES = """
const aedes = require('aedes')()
aedes.authenticate = (client, user, password, done) => {
  if (user === USER && password && password.toString() === PASSWORD) return done(null, true)
  const error = new Error('no'); error.returnCode = 4; done(error, null)
}
aedes.authorizePublish = (client, packet, done) => done(packet.topic === DENIED ? new Error('no') : null)
require('net').createServer(aedes.handle).listen(PORT, '127.0.0.1')
"""


class Aedes(OtherBroker):
    name = "aedes"
    limits = False
    cannot = MappingProxyType(
        {
            "size": "has no limit",
            "will": "MQTT 3.1.1: no delay",
            "restart": "keeps everything in memory, unless it is given a store",
        }
    )

    @classmethod
    def missing(cls):
        if (INSTALLED / "node_modules" / "aedes").exists() and shutil.which("node"):
            return None
        why = INSTALLED / "why-not"
        return (
            why.read_text().strip() if why.exists() else "aedes is not installed; type: scripts/brokers .venv-brokers"
        )

    @classmethod
    def version(cls):
        return json.loads((INSTALLED / "node_modules" / "aedes" / "package.json").read_text())["version"]

    def command(self):
        values = {"USER": USER, "PASSWORD": PASSWORD, "DENIED": self.denied, "PORT": self.port}
        constants = "".join(f"const {name} = {json.dumps(value)}\n" for name, value in values.items())
        program = self.directory / "broker.js"
        program.write_text(constants + AEDES)
        return ["node", str(program)], {"NODE_PATH": str(INSTALLED / "node_modules")}


class Amqtt(OtherBroker):
    name = "amqtt"
    user = wrong_password = None
    limits = denies = False
    cannot = MappingProxyType(
        {
            "refusal": "its access list is not examined here",
            "password": "its passwords are not examined here",
            "size": "has no limit",
            "will": "MQTT 3.1.1: no delay",
            "restart": "keeps everything in memory",
        }
    )

    @classmethod
    def missing(cls):
        return None

    @classmethod
    def version(cls):
        return version("amqtt")

    def start(self):
        self._running = contextlib.ExitStack()
        self.port = self._running.enter_context(embedded_broker(port=self.port))

    def stop(self):
        self._running.close()


RUMQTTD = """
id = 0
[router]
id = 0
max_connections = 1000
max_outgoing_packet_count = 200
max_segment_size = 1048576
max_segment_count = 10
[{version}.1]
name = "one"
listen = "127.0.0.1:{port}"
next_connection_delay_ms = 1
[{version}.1.connections]
connection_timeout_ms = 60000
max_payload_size = {limit}
max_inflight_count = 100
[{version}.1.connections.auth]
{user} = "{password}"
"""


class Rumqttd(OtherBroker):
    """rumqttd, which the package iotcore has in it, in a process of its own. It has a listener for each version of
    MQTT, which hangs up on the other version. This is the one for MQTT 3.1.1."""

    name = "rumqttd-v4"
    listener = "v4"
    denies = False
    wrong_password = "sent no CONNACK: the connection was lost; is the user name or the password wrong"
    cannot = MappingProxyType(
        {
            "refusal": "has no access list",
            "password": "closes the connection without a reason; the doctor asks whether the password is wrong",
            "restart": "keeps everything in memory",
            "will": "MQTT 3.1.1: no delay",
        }
    )

    @classmethod
    def missing(cls):
        there = find_spec("iotcore") is not None
        return None if there else "rumqttd cannot be had here: the package iotcore has no wheel for this machine"

    @classmethod
    def version(cls):
        """The version of the crate, from the list of parts in the wheel: iotcore has versions of its own."""
        parts = next(each for each in files("iotcore") if each.name.endswith(".cyclonedx.json"))
        components = json.loads(parts.read_text())["components"]
        return next(each["version"] for each in components if each["name"] == "rumqttd")

    def command(self):
        conf = self.directory / "conf.toml"
        conf.write_text(
            RUMQTTD.format(version=self.listener, port=self.port, limit=LIMIT, user=USER, password=PASSWORD)
        )
        return [sys.executable, "-m", "iotcore", "--config", str(conf), "--log-level", "CRITICAL"], {}


class RumqttdV5(Rumqttd):
    """Its listener for MQTT 5."""

    name = "rumqttd-v5"
    listener = "v5"
    protocol = paho.MQTTv5
    cannot = MappingProxyType({check: words for check, words in Rumqttd.cannot.items() if check != "will"})


RABBIT = Path("/usr/lib/rabbitmq/bin")
ERLANG_PORTS = ("ERL_EPMD_PORT", "RABBITMQ_DIST_PORT")


class RabbitMq(OtherBroker):
    name = "RabbitMQ"
    limits = False
    cannot = MappingProxyType(
        {
            "size": "has no limit for MQTT",
            "will": "MQTT 3.1.1: no delay",
            "doctor": "keeps messages for exact topics, and not for filters with wildcards; the doctor warns",
        }
    )

    def __init__(self):
        super().__init__()
        self._epmd = free_port()
        self._variables = {
            "HOME": str(self.directory),
            "ERL_EPMD_PORT": str(self._epmd),
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_NODENAME": f"rabbit{self.port}@localhost",
            "RABBITMQ_MNESIA_BASE": str(self.directory / "data"),
            "RABBITMQ_LOG_BASE": str(self.directory / "logs"),
            "RABBITMQ_CONFIG_FILE": str(self.directory / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.directory / "plugins"),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_PID_FILE": str(self.directory / "pid"),
        }

    @classmethod
    def missing(cls):
        return (
            None if RABBIT.exists() else "RabbitMQ is examined by night; to have it: scripts/brokers .venv-brokers all"
        )

    @classmethod
    def version(cls):
        found = subprocess.check_output(["dpkg-query", "-W", "-f", "${Version}", "rabbitmq-server"], text=True)
        return found.partition("-")[0]

    def command(self):
        (self.directory / "rabbitmq.conf").write_text(
            f"listeners.tcp = none\nmqtt.listeners.tcp.1 = 127.0.0.1:{self.port}\nmqtt.allow_anonymous = false\n"
            f"default_user = {USER}\ndefault_pass = {PASSWORD}\n"
        )
        (self.directory / "plugins").write_text("[rabbitmq_mqtt].\n")
        return [str(RABBIT / "rabbitmq-server")], self._variables

    def ready(self):
        """Deny the topic. RabbitMQ has a pattern of the topics that may be published to, with dots for slashes. It
        listens before it takes commands."""
        allowed = rf"^(?!{re.escape(self.denied.replace('/', '.'))}$).*"
        command = [RABBIT / "rabbitmqctl", "set_topic_permissions", USER, "amq.topic", allowed, ".*"]
        variables, deadline = {**os.environ, **self._variables}, time.monotonic() + START_TIMEOUT
        while (said := subprocess.run(command, env=variables, check=False, capture_output=True, text=True)).returncode:
            assert time.monotonic() < deadline, said.stderr
            time.sleep(0.2)

    def __exit__(self, *exc_info):
        super().__exit__(*exc_info)
        end_epmd(self._epmd)


class Ejabberd(OtherBroker):
    name = "ejabberd"
    wrong_password = None
    user = f"{USER}@localhost"
    cannot = MappingProxyType(
        {
            "password": "takes any password of a user here, since it is set up to take everybody",
        }
    )

    def __init__(self):
        super().__init__()
        self._epmd = free_port()

    @classmethod
    def missing(cls):
        there = Path("/usr/sbin/ejabberdctl").exists()
        return None if there else "ejabberd is examined by night; to have it: scripts/brokers .venv-brokers all"

    @classmethod
    def version(cls):
        found = subprocess.check_output(["dpkg-query", "-W", "-f", "${Version}", "ejabberd"], text=True)
        return found.partition("-")[0]

    def command(self):
        conf = self.directory / "ejabberd.yml"
        # The first filter that matches decides, in the order of the alphabet, and what matches none is denied.
        topics = (*ALLOWED_AT_EJABBERD, *([] if self.denied == DENIED else [DENIED]))
        allowed = "".join(f'      "{each}": [allow: all]\n' for each in topics)
        conf.write_text(
            "hosts: [localhost]\nloglevel: error\nauth_method: [anonymous]\nanonymous_protocol: both\n"
            "allow_multiple_connections: true\n"
            f'listen:\n  - port: {self.port}\n    ip: "127.0.0.1"\n    module: mod_mqtt\n'
            f"    max_payload_size: {LIMIT}\nmodules:\n  mod_mqtt:\n    access_publish:\n{allowed}"
        )
        command = ["erl", "-noinput", "-sname", f"ejabberd{self.port}@localhost", "-s", "ejabberd"]
        command += ["-mnesia", "dir", json.dumps(str(self.directory / "data"))]
        library = next(Path("/usr/lib").glob("*/ejabberd-*/ebin/ejabberd.app")).parents[1]
        return command, {
            "HOME": str(self.directory),
            "ERL_EPMD_PORT": str(self._epmd),
            "ERL_LIBS": str(library.parent),
            "EJABBERD_CONFIG_PATH": str(conf),
            "EJABBERD_LOG_PATH": str(self.directory / "ejabberd.log"),
        }

    def __exit__(self, *exc_info):
        super().__exit__(*exc_info)
        end_epmd(self._epmd)


ALLOWED_AT_EJABBERD = (
    *("homeassistant/#", "quiet/#", "sys/status", "sys/error", "sys/registry/#", "sys/registry", "sys/introspect/#"),
    *("sys/introspect", "sys/doctor/#", "sys/good/#", "sys/large/#", "sys/denied/availability", "sys/denied/ledger"),
    *("sys/denied/error", "sys/denied/health"),
)


def end_epmd(port):
    """End the name server of Erlang that a broker started, which outlives it. It refuses until it has seen that the
    broker is gone."""
    command = ["epmd", "-port", str(port), "-kill"]
    for _ in range(50 if shutil.which("epmd") else 0):
        said = subprocess.run(command, check=False, capture_output=True, text=True)
        if said.returncode == 0 or "Cannot connect" in said.stdout + said.stderr:
            return
        time.sleep(0.1)


BROKERS = (MosquittoBroker, Ejabberd, RabbitMq, NatsMqtt, Aedes, Amqtt, Rumqttd, RumqttdV5)
