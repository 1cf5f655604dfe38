"""The values of secret settings appear nowhere, whatever repeats them."""

import asyncio
import base64
import contextlib
import gc
import importlib
import inspect
import io
import json
import logging
import pkgutil
import re
import threading
from argparse import Namespace
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, SecretBytes, SecretStr, field_validator, model_validator
from tests.extensions.http.conftest import serving

import leadsman
from leadsman import App, Broker, CircuitBreaker, RetryRequested
from leadsman.adapters.caldav import CalDav
from leadsman.core.monitoring.log_format import Journal, Json, TextFormatter
from leadsman.core.settings.sources import Where
from leadsman.core.text import clean
from leadsman.errors import ConnectionRefused, InvalidType, InvalidValue, LeadsmanError
from leadsman.extensions.nodes.lease.jetstream import JetStreamStore
from leadsman.extensions.nodes.lease.lease import Member, Terms
from leadsman.testing import Harness
from leadsman.tools.cli.main import main, run_command
from leadsman_rigs.examples import examples

TERMS = Terms("house")
MEMBER = Member("one", "run")
TOKEN = "token-canary-0123456789"

NESTED, LISTED, KEYED, BY_NAME, RAW, DERIVED, EXTRA, DEEP = (
    "nested canary/1",
    "listed+canary&2",
    'keyed"canary\\3',
    "named canary=4",
    "raw canary 5",
    "derived canary 6",
    "extra canary 7",
    "deep canary 8",
)
USER, QUERY, LEVEL, PASSWORD, BROKER = (
    "user canary",
    "query canary",
    "level-canary-0123",
    "url canary",
    "broker canary",
)
CALENDARS, FILE, NATS = "calendars canary", "file canary", "second canary"
CANARIES = (NESTED, LISTED, KEYED, BY_NAME, RAW, DERIVED, EXTRA, DEEP, USER, QUERY, LEVEL, PASSWORD)


class Pin(SecretStr):
    """A secret of a class of the user's own."""


class Account(BaseModel):
    pin: SecretStr = SecretStr("")


class Settings(BaseModel, extra="allow"):
    account: Account = Account()
    keys: list[SecretStr] = []
    by_site: dict[str, SecretStr] = {}
    api_key: str = ""
    blob: SecretBytes = SecretBytes(b"")
    own: Pin = Pin("")
    accounts: list[dict[str, list[Account]]] = []
    hook: SecretStr = SecretStr("")
    site: str = ""


GIVEN = {
    "account": {"pin": NESTED},
    "keys": [LISTED],
    "by_site": {"roof": KEYED},
    "api_key": BY_NAME,
    "blob": RAW,
    "own": DERIVED,
    "more_tokens": [EXTRA],
    "accounts": [{"roof": [{"pin": DEEP}]}],
    "hook": f"https://{quote(USER)}@hooks.lan/services/{LEVEL}?id={quote(QUERY)}",
    "site": f"https://ann:{quote(PASSWORD)}@site.lan/api",
}


def said(secret):
    """What errors make of a secret: as it is, quoted, encoded, and cut at the end."""
    basic = base64.b64encode(f"ann:{secret}".encode()).decode()
    return (
        f"refused {secret} and {secret!r} and {json.dumps(secret)} at http://x/{quote(secret, safe='')}/data"
        f" with {quote(secret)} and Foo {basic}; the last was {secret[:-2]}"
    )


def holds(text, secret):
    """Whether a text has a secret, or most of it, in one of its forms."""
    inner = base64.b64encode(f"ann:{secret}".encode()).decode()[6:-4]
    shapes = (secret[:-2], repr(secret)[1:-3], json.dumps(secret)[1:-3], quote(secret, safe="")[:-2], inner)
    return any(shape in text for shape in shapes)


@pytest.fixture
def logs():
    """The log, in each format."""
    streams = []
    logger = logging.getLogger("leadsman")
    for formatter in (TextFormatter(colour=False), Json(), Journal()):
        handler = logging.StreamHandler(io.StringIO())
        handler.setFormatter(formatter)
        logger.addHandler(handler)
        streams.append(handler)
    before = logger.level
    logger.setLevel(logging.DEBUG)
    yield streams
    logger.setLevel(before)
    for handler in streams:
        logger.removeHandler(handler)


def outlets(secret, given, logs, directory):
    """All that leaves an app in which each kind of code repeats a secret: messages, files and the log, by their
    names."""

    class Door:
        async def __aenter__(self):
            raise OSError(said(secret))

        async def __aexit__(self, *exc_info):
            pass

    calendars = CalDav("https://calendars.lan", "ann", SecretStr(CALENDARS))
    mqtt = f"mqtt://ann:{quote(BROKER)}@broker.lan"
    app = App("house", mqtt=mqtt, settings=Settings, keep_state=True, adapters=(Door(), calendars))

    @app.telemetry("shut", interval="10s")
    async def shut(door: Door):
        pass

    @app.telemetry("poll", interval="10s", retry=1, circuit_breaker=CircuitBreaker(3))
    async def poll():
        raise OSError(said(secret)) from ValueError(said(secret))

    @app.telemetry("bug", interval="10s")
    async def bug():
        raise ValueError(said(secret))

    @app.telemetry("asked", interval="10s")
    async def asked():
        raise RetryRequested(delay="30s", reason=said(secret))

    @app.source("source")
    async def source():
        yield {"t": 1}
        raise OSError(said(secret))

    @app.command("command")
    async def command():
        raise RuntimeError(said(secret))

    @app.subscribe("other/topic")
    async def heard(text: str):
        raise RuntimeError(said(secret))

    @app.periodic("job", interval="10s")
    async def job():
        raise RuntimeError(said(secret))

    found = []
    with Harness(app, settings=given, state_directory=directory) as harness:
        harness.run("15s")
        harness.broker.send("house/command/set", b"{}")
        harness.broker.send("other/topic", b'"x"')
        harness.run("1m")
        for request in ({}, {"sections": ["trace"]}, {"sections": ["devices", "settings"]}):
            harness.broker.send("house/introspect", json.dumps(request).encode())
        harness.run("1m")
        harness.broker.refuse_connect = ConnectionRefused(0x87, said(secret))
        harness.broker.cut(said(secret))
        harness.run("1m")
        harness.broker.refuse_connect = None
        harness.run("2m")
        harness.broker.send("house/introspect", b"{}")
        harness.run("1m")
        found += [(message.topic, message.payload.decode()) for message in harness.broker.log]
    found += [(path.name, path.read_bytes().decode("latin-1")) for path in Path(directory).rglob("*") if path.is_file()]
    return [*found, *(("log", handler.stream.getvalue()) for handler in logs)]


@pytest.mark.slow
@pytest.mark.parametrize("secret", [KEYED, LEVEL, BROKER, CALENDARS])
def test_no_outlet_has_the_value_of_a_secret_whatever_repeats_it(secret, logs, tmp_path):
    found = outlets(secret, GIVEN, logs, tmp_path)

    assert "***" in dict(found)["log"]
    assert {topic for topic, _ in found} >= {"house/poll/error", "house/bug/error", "house/introspect/response"}
    assert [(where, text[:3000]) for where, text in found if holds(text, secret)] == []


@pytest.mark.slow
@settings(max_examples=examples(3), suppress_health_check=list(HealthCheck))
@given(st.text(min_size=12, max_size=40).filter(lambda text: "*" not in text and len({*text[:-2]}) > 7))
def test_no_outlet_has_the_value_of_any_secret(logs, tmp_path_factory, secret):
    for handler in logs:
        handler.stream = io.StringIO()
    found = outlets(secret, {"by_site": {"roof": secret}}, logs, tmp_path_factory.mktemp("state"))

    assert "***" in dict(found)["log"]
    assert [(where, text[:3000]) for where, text in found if holds(text, secret)] == []


KEY = [base64.b64encode(bytes([each] * 48)).decode() for each in range(1, 60)]
"""The lines of a key that leadsman does not know: an error shows it."""


@pytest.mark.parametrize("more", ["", "x" * 1500, "\n".join(["another line"] * 300)], ids=["alone", "long", "lines"])
def test_no_outlet_has_a_line_of_a_key_that_an_error_shows(logs, tmp_path, more):
    """RFC 7468 §2: its lines are hidden together, before a text is cut or divided into lines."""
    key = "\n".join(["cannot load", "-----BEGIN PRIVATE KEY-----", *KEY, "-----END PRIVATE KEY-----", more])
    app = App("house", keep_state=True)

    @app.telemetry("poll", interval="10s", circuit_breaker=CircuitBreaker(3))
    async def poll():
        raise OSError(key)

    @app.command("command")
    async def command():
        raise RuntimeError(key)

    with Harness(app, state_directory=tmp_path) as harness:
        harness.run("5s")
        harness.broker.send("house/command/set", b"{}")
        harness.broker.send("house/introspect", b"{}")
        harness.broker.send("house/introspect", json.dumps({"sections": ["trace"]}).encode())
        harness.run("20s")
        found = [(message.topic, message.payload.decode()) for message in harness.broker.log]
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    found += [(path.name, path.read_bytes().decode("latin-1")) for path in files]
    found += [("log", handler.stream.getvalue()) for handler in logs]

    assert "-----BEGIN PRIVATE KEY-----***" in dict(found)["log"]
    assert {"house/poll/error", "house/introspect/response", "resilience.db"} <= dict(found).keys()
    assert [(where, line) for where, text in found for line in KEY if line[4:-4] in text] == []


PATHS = (
    *("/", "/healthz", "/readyz", "/metrics", "/introspect", "/introspect/poll", "/trace", "/registry", "/ledger"),
    *("/why/poll", "/why/shut", "/why/nothing", "/openapi.json"),
)


@pytest.mark.parametrize("secret", [KEYED, QUERY, BROKER, TOKEN])
def test_no_page_of_the_endpoint_has_the_value_of_a_secret(secret, tmp_path):
    class Door:
        async def __aenter__(self):
            raise OSError(said(secret))

        async def __aexit__(self, *exc_info):
            pass

    app = App("house", mqtt=f"mqtt://ann:{quote(BROKER)}@broker.lan", settings=Settings, adapters=(Door(),))
    file = tmp_path / "token"
    file.write_text(TOKEN)
    failed = threading.Event()

    @app.telemetry("poll", interval="1h")
    async def poll():
        failed.set()
        raise OSError(said(secret))

    @app.telemetry("shut", interval="1h")
    async def shut(door: Door):
        pass

    async def ask():
        async with serving(app, **GIVEN, **{"http.token_file": str(file)}) as house:
            await asyncio.to_thread(failed.wait, 60)
            while "house/poll/error" not in [message.topic for message in house.broker.log]:
                await asyncio.sleep(0.01)
            right = {"Authorization": f"Bearer {TOKEN}"}
            answers = [await house.get(path, headers=right) for path in PATHS]
            return [*answers, await house.get("/introspect", headers={"Authorization": f"Bearer {TOKEN[:-1]}"})]

    answers = asyncio.run(ask())

    assert [each.status_code for each in answers if each.status_code not in (200, 401, 404, 503)] == []
    assert "***" in answers[PATHS.index("/why/poll")].text
    texts = [(str(each.url), f"{each.headers} {each.text}") for each in answers]
    assert [url for url, text in texts if holds(text, secret)] == []


HOUSE = """
from pydantic import BaseModel, SecretStr
from leadsman import App

class Settings(BaseModel):
    pin: SecretStr

def adapters(settings):
    if settings.pin.get_secret_value().endswith("!"):
        raise ValueError(f"cannot log in with {settings.pin.get_secret_value()!r}")
    return ()

app = App("house", mqtt="mqtt://ann:broker%20canary@127.0.0.1:9", settings=Settings, adapters=adapters)

@app.telemetry("poll", interval="10s")
async def poll():
    return {"t": 1}
"""


@pytest.mark.parametrize(
    "arguments",
    [
        *(["check", "house.py:app"], ["inspect", "house.py:app"], ["inspect", "house.py:app", "--json"]),
        *(["doctor", "house.py:app"], ["why", "poll", "--app", "house.py:app"], ["acl", "house.py:app"]),
    ],
)
@pytest.mark.parametrize("pin", ["canary ten", "canary ten!", "broker canary"])
def test_no_command_shows_the_value_of_a_secret(arguments, pin, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOUSE_PIN", pin)
    (tmp_path / "house.py").write_text(HOUSE)

    main(arguments)

    told = capsys.readouterr()
    assert told.out + told.err
    assert "canary" not in told.out + told.err


@pytest.mark.parametrize("secret", CANARIES)
def test_a_secret_setting_is_hidden_however_deep_it_is(secret, tmp_path):
    app = App("house", settings=Settings)
    app.load(Where.nowhere(GIVEN))

    assert not holds(clean(said(secret)), secret)


def test_a_word_that_is_a_name_of_the_app_is_no_secret():
    app = App("gas2mqtt", mqtt="mqtt://gas2mqtt:gas2mqtt@broker.lan")
    assert clean("gas2mqtt starts") == "gas2mqtt starts"
    app.load()

    assert clean("gas2mqtt starts") == "gas2mqtt starts"


def caldav(tmp_path):
    return CalDav("https://calendars.lan", "ann", CALENDARS)


def caldav_with_a_secret(tmp_path):
    return CalDav("https://calendars.lan", "ann", SecretStr(CALENDARS))


def caldav_with_a_token(tmp_path):
    return CalDav("https://calendars.lan", token=SecretStr(CALENDARS))


def caldav_with_a_url(tmp_path):
    return CalDav(f"https://ann:{quote(CALENDARS)}@calendars.lan")


def caldav_with_a_secret_url(tmp_path):
    return CalDav(SecretStr(f"https://calendars.lan/?key={quote(CALENDARS)}"))


def broker(tmp_path):
    return Broker("broker.lan", username="ann", password=CALENDARS)


def broker_with_a_secret(tmp_path):
    return Broker("broker.lan", username="ann", password=SecretStr(CALENDARS))


def app_with_a_secret_url(tmp_path):
    return App("house", mqtt=[SecretStr(f"mqtt://ann:{quote(CALENDARS)}@broker.lan"), "mqtt://other.lan"])


def app_with_settings(tmp_path):
    return App("house", settings=Account(pin=SecretStr(CALENDARS)))


def nats(tmp_path):
    return JetStreamStore(f"nats://one:4222,nats://ann:{quote(CALENDARS)}@two:4222", TERMS, MEMBER)


def nats_with_a_token(tmp_path):
    return JetStreamStore(f"nats://{quote(CALENDARS)}@one:4222", TERMS, MEMBER)


def nats_with_a_secret(tmp_path):
    return JetStreamStore(SecretStr(f"nats://one:4222,nats://ann:{quote(CALENDARS)}@two:4222"), TERMS, MEMBER)


def http_token(tmp_path):
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    app = App("house")
    app.load(Where.nowhere({"http.bind": "127.0.0.1:0", "http.token_file": str(file)}))
    return app


def cluster(tmp_path):
    app = App("house")
    engine = f"nats://one:4222,nats://ann:{quote(CALENDARS)}@two:4222"
    app.load(Where.nowhere({"cluster.engine": engine, "cluster.node": "one"}))
    return app


@pytest.mark.parametrize(
    ("make", "secret"),
    [
        (caldav, CALENDARS),
        (caldav_with_a_secret, CALENDARS),
        (caldav_with_a_token, CALENDARS),
        (caldav_with_a_url, CALENDARS),
        (caldav_with_a_secret_url, CALENDARS),
        (broker, CALENDARS),
        (broker_with_a_secret, CALENDARS),
        (app_with_a_secret_url, CALENDARS),
        (app_with_settings, CALENDARS),
        (nats, CALENDARS),
        (nats_with_a_token, CALENDARS),
        (nats_with_a_secret, CALENDARS),
        (http_token, TOKEN),
        (cluster, CALENDARS),
    ],
)
def test_a_secret_that_leadsman_is_given_is_hidden_as_long_as_what_was_given_it_lives(make, secret, tmp_path):
    gc.collect()
    assert holds(clean(said(secret)), secret)
    owner = make(tmp_path)

    assert not holds(clean(said(secret)), secret)
    assert secret not in repr(owner)
    del owner
    gc.collect()
    assert holds(clean(said(secret)), secret)


def test_the_password_in_a_file_is_hidden_once_it_was_read(tmp_path):
    file = tmp_path / "password"
    file.write_text(f"{FILE}\n")
    account = CalDav("http://127.0.0.1:9", "ann", file, timeout="1s")

    async def ask():
        async with account:
            await account.probe()

    with pytest.raises(LeadsmanError):
        asyncio.run(ask())
    assert not holds(clean(said(FILE)), FILE)


@pytest.mark.parametrize("argument", ["password", "token"])
def test_what_is_no_text_is_refused_as_a_secret_without_being_shown(argument):
    with pytest.raises(InvalidType, match=f"{argument} has the type int; write text or a SecretStr"):
        CalDav("https://calendars.lan", **{argument: 4711})


def test_the_error_about_a_wrong_url_has_no_password():
    with pytest.raises(InvalidValue) as caught:
        CalDav(f"ftp://ann:{quote(CALENDARS)}@calendars.lan")

    assert not holds(str(caught.value), CALENDARS)


SECRET_NAME = re.compile("(password|passwd|passphrase|token|secret|credentials?|api_?key|private_key)$")
NO_SECRETS = {
    "CalendarBackend.changes(token)": "how far a server's changes were read (RFC 6578)",
    "CalendarChanges(token)": "the same",
    "Client.changes(token)": "the same",
}


def public_signatures():
    """Each public function, class and method of leadsman, with its name and its signature."""
    for found in pkgutil.walk_packages(leadsman.__path__, "leadsman."):
        if found.name in ("leadsman.__main__", "leadsman.core.text.redaction"):
            continue
        module = importlib.import_module(found.name)
        for name, thing in vars(module).items():
            if name.startswith("_") or getattr(thing, "__module__", None) != module.__name__:
                continue
            members = inspect.getmembers(thing, inspect.isfunction) if inspect.isclass(thing) else ()
            for label, call in [(name, thing), *((f"{name}.{each}", inner) for each, inner in members)]:
                if callable(call) and (label == name or not label.split(".")[1].startswith("_")):
                    with contextlib.suppress(ValueError, TypeError):  # some classes of others have no signature
                        yield label, inspect.signature(call)


def test_each_public_argument_that_is_a_secret_may_be_one_of_pydantic():
    arguments = {
        f"{label}({name})": re.split(r"\W*\|\W*|^'|'$", inspect.formatannotation(parameter.annotation))
        for label, signature in public_signatures()
        for name, parameter in signature.parameters.items()
        if SECRET_NAME.search(name)
    }
    refusing = {each for each, kinds in arguments.items() if "str" in kinds and "SecretValue" not in " ".join(kinds)}

    assert {"CalDav(password)", "CalDav(token)", "Broker(password)"} <= arguments.keys()
    assert refusing == NO_SECRETS.keys()


class Repeats(BaseModel):
    pin: SecretStr = SecretStr("")
    own: Pin | None = None
    keys: list[SecretStr] = []
    password: str = ""
    name: str = ""

    @field_validator("pin", "own", "keys", "password", mode="before")
    @classmethod
    def refuse(cls, value):
        raise ValueError(f"{value!r} is wrong")


class RepeatsAll(BaseModel):
    pin: SecretStr = SecretStr("")

    @model_validator(mode="before")
    @classmethod
    def refuse(cls, values):
        raise ValueError(f"{values} are wrong")


class RepeatsLater(BaseModel):
    pin: SecretStr = SecretStr("")

    @model_validator(mode="after")
    def refuse(self):
        raise AssertionError(self.pin.get_secret_value().strip())


@pytest.mark.parametrize(
    ("model", "given"),
    [
        (Repeats, {"pin": "canary nine"}),
        (Repeats, {"pin": "nine"}),
        (Repeats, {"own": "canary nine"}),
        (Repeats, {"keys": ["canary nine"]}),
        (Repeats, {"password": "canary nine"}),
        (RepeatsAll, {"pin": "canary nine"}),
        (RepeatsLater, {"pin": " canary nine "}),
    ],
)
@pytest.mark.parametrize("origin", ["file", "variable"])
def test_a_validator_that_repeats_a_secret_shows_it_nowhere(model, given, origin, tmp_path, capsys, caplog):
    app = App("house", settings=model)
    file = tmp_path / "leadsman.toml"
    ((name, value),) = given.items()
    file.write_text(f"{name} = {json.dumps(value)}\n" if origin == "file" else "")
    text = value if isinstance(value, str) else json.dumps(value)
    where = Where({f"HOUSE_{name.upper()}": text} if origin == "variable" else {}, tmp_path)

    with caplog.at_level(logging.DEBUG):
        assert run_command(Namespace(run=lambda _: app.load(where)), "house") == 78

    told = capsys.readouterr().err
    assert "***" in told
    assert "nine" not in told + caplog.text


def test_an_error_of_what_is_made_from_the_settings_shows_none_of_their_secrets(capsys):
    class Account(BaseModel):
        pin: SecretStr = SecretStr("canary seven")

    def adapters(settings):
        raise ValueError(f"cannot log in with {settings.pin.get_secret_value()}")

    app = App("house", settings=Account, adapters=adapters)

    assert run_command(Namespace(run=lambda _: app.load()), "house") == 78
    assert capsys.readouterr().err.endswith("ValueError: cannot log in with ***\n")


@pytest.mark.parametrize(
    "text",
    ["the key 'temperature' is missing", "GPIO pin: 4 is no output", "{'key': 'x'}", "monkey=3", "KeyError: 'pass'"],
)
def test_an_ordinary_text_stays_as_it_is(text):
    assert clean(text) == text
