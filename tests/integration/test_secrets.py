"""The values of secret settings appear nowhere, whatever repeats them."""

import base64
import io
import json
import logging
from argparse import Namespace
from pathlib import Path
from urllib.parse import quote

import pytest
from pydantic import BaseModel, SecretBytes, SecretStr

from leadsman import App, CircuitBreaker, RetryRequested
from leadsman.cli.main import run_command
from leadsman.monitoring.log_format import Journal, Json, Text
from leadsman.testing import Harness
from leadsman.text import clean

NESTED, LISTED, KEYED, BY_NAME, RAW = (
    "nested canary/1",
    "listed+canary&2",
    'keyed"canary\\3',
    "named canary=4",
    "raw canary 5",
)
CANARIES = (NESTED, LISTED, KEYED, BY_NAME, RAW)


class Account(BaseModel):
    pin: SecretStr = SecretStr("")


class Settings(BaseModel):
    account: Account = Account()
    keys: list[SecretStr] = []
    by_site: dict[str, SecretStr] = {}
    api_key: str = ""
    blob: SecretBytes = SecretBytes(b"")


GIVEN = {
    "account": {"pin": NESTED},
    "keys": [LISTED],
    "by_site": {"roof": KEYED},
    "api_key": BY_NAME,
    "blob": RAW,
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
    for formatter in (Text(colour=False), Json(), Journal()):
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


@pytest.mark.parametrize("secret", CANARIES)
def test_no_outlet_has_the_value_of_a_secret_setting_whatever_repeats_it(secret, logs, tmp_path):
    app = App("house", settings=Settings, keep_state=True)

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
    with Harness(app, settings=GIVEN, state_directory=tmp_path) as harness:
        harness.run("15s")
        harness.broker.send("house/command/set", b"{}")
        harness.broker.send("other/topic", b'"x"')
        harness.run("1m")
        for request in ({}, {"sections": ["trace"]}, {"sections": ["devices", "settings"]}):
            harness.broker.send("house/introspect", json.dumps(request).encode())
        harness.run("1m")
        found += [(message.topic, message.payload.decode()) for message in harness.broker.log]
    found += [(path.name, path.read_bytes().decode("latin-1")) for path in Path(tmp_path).rglob("*") if path.is_file()]
    found += [("log", handler.stream.getvalue()) for handler in logs]

    assert "***" in dict(found)["log"]
    assert {topic for topic, _ in found} >= {"house/poll/error", "house/bug/error", "house/introspect/response"}
    assert [(where, text[:3000]) for where, text in found if holds(text, secret)] == []


def test_a_word_that_is_a_name_of_the_app_is_no_secret():
    app = App("gas2mqtt", mqtt="mqtt://gas2mqtt:gas2mqtt@broker.lan")
    app.load()

    assert app.setup.secrets() == set()


def test_the_password_of_a_broker_is_a_secret():
    app = App("house", mqtt="mqtt://ann:canary%20six@broker.lan")
    app.load()

    assert app.setup.secrets() == {"canary six"}


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
