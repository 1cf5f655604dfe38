"""A real Home Assistant, without a window, beside a real broker: the judge of what an app says for discovery.

`scripts/home-assistant` makes the environment that it runs in, with a Python of its own. What people do in its pages
the rig does by the API that those pages use, over a WebSocket; what they do once (an account, the broker's address) is
written before the first start. https://developers.home-assistant.io/docs/api/websocket
"""

import base64
import hashlib
import hmac
import json
import re
import signal
import subprocess
import time
from pathlib import Path

from websockets.exceptions import WebSocketException
from websockets.sync.client import connect

from leadsman.core.text.identifiers import shorten
from leadsman.testing.mosquitto import free_port

ENVIRONMENT = Path(__file__).parents[3] / ".venv-homeassistant"
"""Where `scripts/home-assistant` puts it."""
WHY_NOT = ENVIRONMENT / "why-not"
"""What it writes if this machine cannot have it."""
TIMEOUT = 120.0
"""Seconds. A start takes three on an idle machine."""
CONFIGURATION = """\
homeassistant:
  name: Home
  unit_system: metric
  time_zone: UTC
  country: DE
http:
  server_host: 127.0.0.1
  server_port: {port}
logger:
  default: warning
"""
PLATFORMS = "binary_sensor|button|climate|cover|date|datetime|event|fan|image|light|lock|number|select|sensor|siren"
PLATFORMS += "|switch|text|time|update|valve"
COMPLAINTS = re.compile(rf".*\[homeassistant\.(?:components\.(?:{PLATFORMS}|mqtt(?!\.client))|helpers)\b.*")
"""Lines of the loggers that complain of what an app sent; ``mqtt.client`` complains of a broker that is away."""
FIRST_DAY = "2026-01-01T00:00:00+00:00"
USER, TOKEN, KEY = "1" * 32, "2" * 32, "3" * 128
"""The owner, the name of a token that does not expire, and what the token is signed with."""


class ByName(dict):
    """By unique_id. One asks for the words that leadsman shortens to it: ``house--kitchen--temperature``."""

    def __getitem__(self, name):
        return super().__getitem__(shorten(name))

    def __contains__(self, name):
        return super().__contains__(shorten(name))


class HomeAssistant:
    """One Home Assistant inside a ``with`` block, with the MQTT integration set up. It may be stopped and started."""

    def __init__(self, directory, broker_port):
        self.directory = Path(directory)
        self.port = free_port()
        self.log_path = self.directory / "printed.log"
        self._forgotten = 0
        self.process = self._socket = None
        self._number = 0
        self._subscription, self._fired = None, []
        storage = self.directory / ".storage"
        storage.mkdir(parents=True)
        (self.directory / "configuration.yaml").write_text(CONFIGURATION.format(port=self.port))
        for key, (version, minor, data) in first_settings(broker_port).items():
            document = {"version": version, "minor_version": minor, "key": key, "data": data}
            (storage / key).write_text(json.dumps(document))

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *exc_info):
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def start(self):
        """Start it, and wait until it has started all that it is configured with; how long that took, in seconds."""
        assert (ENVIRONMENT / ".done").exists(), "Home Assistant is not installed for the tests; type: make test"
        before = time.monotonic()
        program = [ENVIRONMENT / "bin" / "python", "-m", "homeassistant", "--config", self.directory, "--skip-pip"]
        with self.log_path.open("ab") as stream:
            self.process = subprocess.Popen(program, stdout=stream, stderr=stream, stdin=subprocess.DEVNULL)
        self._wait(self._log_in, "it did not answer")
        self._wait(lambda: self.ask("get_config")["state"] == "RUNNING", "it did not start")
        return time.monotonic() - before

    def stop(self):
        """Stop it as a service manager does; how long that took, in seconds."""
        before = time.monotonic()
        self._socket.close()
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(TIMEOUT) == 0, self.log
        return time.monotonic() - before

    def ask(self, kind, **details):
        """Send a command of the API; its result."""
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "type": kind, **details}))
        while (answer := self._hear()).get("id") != self._number:
            pass
        assert answer["success"], answer["error"]
        return answer["result"]

    def states(self):
        """The state of every entity that MQTT brought: `state`, `attributes` and more."""
        ids = {each["entity_id"]: each["unique_id"] for each in self.entities().values()}
        return ByName({ids[each["entity_id"]]: each for each in self.ask("get_states") if each["entity_id"] in ids})

    def wait_for(self, expected, timeout=TIMEOUT):
        """Wait until entities have these states (name to state, as `ByName` has it; None if there must be no such
        entity); all states."""
        deadline = time.monotonic() + timeout
        while True:
            states = self.states()
            found = {name: states[name]["state"] if name in states else None for name in expected}
            if found == expected:
                return states
            assert time.monotonic() < deadline, f"expected {expected}, and found {found}; the log is:\n{self.log}"
            time.sleep(0.05)

    def wait_for_attributes(self, entity, expected, timeout=TIMEOUT):
        """Wait until an entity has these attributes."""
        deadline = time.monotonic() + timeout
        while True:
            attributes = self.states()[entity]["attributes"]
            found = {name: attributes.get(name) for name in expected}
            if found == expected:
                return
            assert time.monotonic() < deadline, (
                f"{entity}: expected {expected}, and found {found}; the log is:\n{self.log}"
            )
            time.sleep(0.05)

    def call(self, service, entity, **data):
        """Call a service for an entity, ``button.press`` for example, and wait until it has been called."""
        domain, name = service.split(".")
        target = {"entity_id": self.entities()[entity]["entity_id"]}
        self.ask("call_service", domain=domain, service=name, service_data=data, target=target)

    def subscribe_to(self, trigger):
        """Listen to a trigger, as an automation does; see `wait_for_trigger`."""
        self.ask("subscribe_trigger", trigger=trigger)
        self._subscription = self._number

    def wait_for_trigger(self):
        """Wait until the trigger was fired for the first time; what an automation knows of it."""
        while not self._fired:
            self._hear()
        return self._fired[0]

    def _hear(self):
        """Take the next message, and keep it if it comes from a trigger."""
        message = json.loads(self._socket.recv(TIMEOUT))
        if message.get("type") == "event" and message["id"] == self._subscription:
            self._fired.append(message["event"]["variables"]["trigger"])
        return message

    def name(self, entity, name):
        """Give an entity a name of its own, as people do in its settings."""
        self.ask("config/entity_registry/update", entity_id=self.entities()[entity]["entity_id"], name=name)

    def devices(self):
        """Every device that MQTT brought, by the first of its identifiers: `name`, `model`, `sw_version`, and more."""
        found = self.ask("config/device_registry/list")
        return {each["identifiers"][0][1]: each for each in found if each["identifiers"][0][0] == "mqtt"}

    def entities(self):
        """Every entity that MQTT brought: `entity_id`, `device_id`, `entity_category`, and more."""
        found = self.ask("config/entity_registry/list")
        return ByName({each["unique_id"]: each for each in found if each["platform"] == "mqtt"})

    def knows(self, platform):
        """Whether entities of a platform may come by MQTT, ``datetime`` for example."""
        code = "import importlib.util, sys; sys.exit(importlib.util.find_spec(sys.argv[1]) is None)"
        command = [ENVIRONMENT / "bin" / "python", "-c", code, f"homeassistant.components.mqtt.{platform}"]
        return subprocess.run(command, check=False).returncode == 0

    @property
    def log(self):
        """What it printed: its warnings and errors."""
        return self.log_path.read_text()

    @property
    def complaints(self):
        """What the log says of configurations, states and templates that came by MQTT, since `forget`."""
        return COMPLAINTS.findall(self.log[self._forgotten :])

    def forget(self):
        """Forget the complaints so far."""
        self._forgotten = len(self.log)

    def _log_in(self):
        try:
            self._socket = connect(f"ws://127.0.0.1:{self.port}/api/websocket", max_size=None)
            assert json.loads(self._socket.recv(TIMEOUT))["type"] == "auth_required"
            self._socket.send(json.dumps({"type": "auth", "access_token": access_token()}))
            answer = json.loads(self._socket.recv(TIMEOUT))
        except (OSError, WebSocketException):
            return False  # the port is not open yet, or the API is not there yet
        assert answer["type"] == "auth_ok", answer
        return True

    def _wait(self, condition, complaint):
        deadline = time.monotonic() + TIMEOUT
        while not condition():
            assert self.process.poll() is None, f"Home Assistant ended:\n{self.log}"
            assert time.monotonic() < deadline, f"{complaint}:\n{self.log}"
            time.sleep(0.05)


def access_token():
    """A token that does not expire, as its page for tokens makes them (RFC 7519, HS256)."""
    words = [{"alg": "HS256", "typ": "JWT"}, {"iss": TOKEN, "iat": 1_767_225_600, "exp": 4_102_444_800}]
    text = b".".join(base64url(json.dumps(each).encode()) for each in words)
    return (text + b"." + base64url(hmac.digest(KEY.encode(), text, hashlib.sha256))).decode()


def base64url(value):
    return base64.urlsafe_b64encode(value).rstrip(b"=")


def first_settings(broker_port):
    """What Home Assistant keeps after its first pages were filled in: a file to its version and its data."""
    owner = {"id": USER, "group_ids": ["system-admin"], "is_owner": True, "is_active": True, "name": "Owner"}
    owner |= {"system_generated": False, "local_only": False}
    token = {"id": TOKEN, "user_id": USER, "client_id": None, "client_name": "tests", "client_icon": None}
    token |= {"token_type": "long_lived_access_token", "created_at": FIRST_DAY, "jwt_key": KEY, "token": KEY}
    token |= {"access_token_expiration": 3e9, "last_used_at": None, "last_used_ip": None, "credential_id": None}
    groups = [{"id": "system-admin", "name": "Administrators"}]
    auth = {"users": [owner], "groups": groups, "credentials": [], "refresh_tokens": [token]}
    entry = {"entry_id": "4" * 32, "domain": "mqtt", "title": "MQTT", "source": "user", "version": 1}
    entry |= {"minor_version": 2, "created_at": FIRST_DAY, "modified_at": FIRST_DAY, "unique_id": None}
    entry |= {"data": {"broker": "127.0.0.1", "port": broker_port, "protocol": "5"}, "options": {"discovery": True}}
    entry |= {"pref_disable_new_entities": False, "pref_disable_polling": False, "disabled_by": None}
    entry |= {"discovery_keys": {}, "subentries": []}
    return {
        "auth": (1, 1, auth),
        "core.config_entries": (1, 4, {"entries": [entry]}),
        "onboarding": (4, 1, {"done": ["user", "core_config", "analytics", "integration"]}),
    }
