import contextlib
import os
import re
import subprocess
import sys
import tempfile
from datetime import date
from pathlib import Path
from typing import Annotated, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, SecretStr

from leadsman import App
from leadsman.core.mqtt.broker import brokers_of
from leadsman.core.settings import documents
from leadsman.core.settings.documents import toml_document
from leadsman.core.settings.load import load, load_broker
from leadsman.core.settings.secrets import secrets_in
from leadsman.core.settings.sections import SECTIONS, Sections, keys_of
from leadsman.core.settings.sources import Where
from leadsman.errors import ConfigurationError, InvalidValue, SettingsError

MASK = "********"


class Boiler(BaseModel):
    port: str = "/dev/boiler"
    baud: int = 4800
    password: SecretStr | None = None


class Room(BaseModel):
    address: int
    offset: float = 0.0


class Settings(BaseModel):
    boiler: Boiler = Boiler()
    rooms: dict[str, Room] = {}
    tags: list[str] = []
    log_file: str = "none"
    level: Annotated[int, Field(ge=0, le=9)] = 5
    enabled: bool = True
    api_key: str = ""


@pytest.fixture
def here(tmp_path):
    """Load from a directory that the test fills."""
    secrets = tmp_path / "secrets"

    class Here:
        path = tmp_path

        def file(self, content, name="leadsman.toml"):
            data = content.encode() if isinstance(content, str) else content
            (tmp_path / name).write_bytes(data)
            return self

        def secret(self, name, content):
            secrets.mkdir(exist_ok=True)
            (secrets / name).write_text(content)
            return self

        def where(self, config=None, flags=None, **environment):
            return Where(environment, tmp_path, config, flags or {}, secrets)

        def load(self, model=Settings, **options):
            return load("house", model, self.where(**options))

    return Here()


def origins(loaded):
    return {row.path: row.origin for row in loaded.rows}


def test_without_anything_the_defaults_hold(here):
    loaded = here.load()

    assert loaded.settings == Settings()
    assert set(origins(loaded).values()) == {"default"}


def test_a_higher_source_wins_over_a_lower_one(here):
    here.file("level = 1\nenabled = false\n[boiler]\nbaud = 1200\nport = '/dev/file'\n")
    here.file("HOUSE_LEVEL=2\nHOUSE_BOILER__BAUD=2400\n", ".env")
    here.secret("house_level", "4\n")

    loaded = here.load(HOUSE_LEVEL="3", HOUSE_BOILER__BAUD="9600", flags={"level": "6"})

    assert loaded.settings.level == 6
    assert loaded.settings.boiler == Boiler(port="/dev/file", baud=9600)
    assert loaded.settings.enabled is False
    told = origins(loaded)
    assert told["level"] == "flag level"
    assert told["boiler.baud"] == "environment HOUSE_BOILER__BAUD"
    assert told["boiler.port"] == told["enabled"] == str(here.path / "leadsman.toml")
    assert told["tags"] == "default"


@pytest.mark.parametrize(
    ("steps", "level"),
    [(("file",), 1), (("file", ".env"), 2), (("file", ".env", "env"), 3), (("file", ".env", "env", "secret"), 4)],
)
def test_the_order_of_sources_is_file_dotenv_environment_secret(here, steps, level):
    environment = {}
    for step in steps:
        match step:
            case "file":
                here.file("level = 1")
            case ".env":
                here.file("HOUSE_LEVEL=2", ".env")
            case "env":
                environment["HOUSE_LEVEL"] = "3"
            case "secret":
                here.secret("HOUSE_LEVEL", "4")

    assert here.load(**environment).settings.level == level


def test_secrets_are_read_from_credentials_run_secrets_and_named_files(here, tmp_path):
    credentials = tmp_path / "credentials"
    credentials.mkdir()
    (credentials / "house_boiler__password").write_text("c\n")
    named = tmp_path / "named"
    named.write_text("n\n")
    here.secret("house_boiler__password", "r\n")

    by_name = here.load(HOUSE_API_KEY_FILE=str(named))
    by_systemd = here.load(CREDENTIALS_DIRECTORY=str(credentials), HOUSE_BOILER__PASSWORD="e")

    assert by_name.settings.api_key == "n"
    assert by_name.settings.boiler.password.get_secret_value() == "r"
    assert by_systemd.settings.boiler.password.get_secret_value() == "c"


def test_a_setting_may_be_called_file(here):
    assert here.load(HOUSE_LOG_FILE="/tmp/x").settings.log_file == "/tmp/x"


def test_secrets_are_masked_in_what_is_shown(here):
    here.file("api_key = 'abc'\n[boiler]\npassword = 'def'\n[mqtt]\nhost = 'h'\npassword = 'ghi'\n")

    shown = {row.path: row.value for row in here.load().rows}

    assert shown["api_key"] == shown["boiler.password"] == shown["mqtt.password"] == MASK
    assert not any(secret in str(shown) for secret in ("abc", "def", "ghi"))


def test_mappings_and_lists_are_filled_from_variables(here):
    here.file("[rooms.Kitchen]\naddress = 3\n")

    loaded = here.load(HOUSE_ROOMS__KITCHEN__OFFSET="1.5", HOUSE_ROOMS__ATTIC='{"address": 4}', HOUSE_TAGS='["a","b"]')

    assert loaded.settings.rooms == {"Kitchen": Room(address=3, offset=1.5), "attic": Room(address=4)}
    assert loaded.settings.tags == ["a", "b"]


class Line(BaseModel):
    bits: Literal[7, 8] = 8
    stop: Annotated[Literal[1, 2] | None, "a bit"] = None
    flow: Literal[False, "hard", "8"] = False


class Lines(BaseModel):
    line: Line = Line()
    lines: dict[str, Line] = {}


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [("bits", "7", 7), ("stop", "2", 2), ("flow", "hard", "hard"), ("flow", "False", False), ("flow", "8", "8")],
)
@pytest.mark.parametrize("way", ["environment", "dotenv", "secret", "flag", "file"])
def test_a_choice_that_is_a_number_may_come_as_text(here, way, name, text, value):
    def loaded():
        match way:
            case "environment":
                return here.load(Lines, **{f"HOUSE_LINE__{name.upper()}": text})
            case "dotenv":
                return here.file(f"HOUSE_LINE__{name.upper()}={text}", ".env").load(Lines)
            case "secret":
                return here.secret(f"house_line__{name}", f"{text}\n").load(Lines)
            case "flag":
                return here.load(Lines, flags={f"line.{name}": text})
        return here.file(f"[line]\n{name} = {str(value).lower() if type(value) is not str else repr(value)}").load(
            Lines
        )

    assert getattr(loaded().settings.line, name) == value


def test_a_choice_in_one_of_several_sections_may_come_as_text_and_a_wrong_one_is_named(here):
    assert here.load(Lines, HOUSE_LINES__A__BITS="7").settings.lines["a"].bits == 7
    with pytest.raises(SettingsError, match=r"lines\.a\.bits: .* 7 or 8"):
        here.load(Lines, HOUSE_LINES__A__BITS="9")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("levell = 1", r"levell: unknown \(from .*leadsman.toml line 1\); did you mean 'level'\?"),
        ("[boiler]\nbuad = 1", r"boiler.buad: unknown .*did you mean 'baud'\?"),
        ("[rooms.a]\naddress = 1\nofset = 2", r"rooms.a.ofset: unknown .*did you mean 'offset'\?"),
        ("[mqtt]\nhots = 'a'", r"mqtt.hots: unknown .*did you mean 'host'\?"),
        ("mqtt = 5", r"mqtt: it must be a section"),
        ("level = 'high'", r"level: Input should be a valid integer.*not 'high' \(from .*leadsman.toml line 1\)"),
        ("level = 10", r"level: Input should be less than or equal to 9"),
        ("[rooms.a]\noffset = 1", r"rooms.a.address: missing; set it in leadsman.toml, or HOUSE_ROOMS__A__ADDRESS"),
        ("boiler = 5", r"boiler: Input should be a valid dictionary"),
        ("level = 1\nx", r"is not TOML: .*line 2|is not TOML: .*end of document"),
        (b"level = 1 # \xff\n", r"is not UTF-8 \(line 1\)"),
        ("level = 1".encode("utf-16"), r"is UTF-16; save it as UTF-8"),
        ("level = " + "9" * 9000, r"is not TOML: Exceeds the limit"),
        ("level = 0x" + "f" * 9000, r"is not TOML: a number has 36,000 bits; 64 are allowed"),
        ("level = " + "[" * 9000, r"is not TOML: it has 50 brackets in a row; write fewer"),
        ("a." * 9000 + "a = 1", r"has a key of 100 parts or more"),
        ("x" * 2_000_000, r"is too large for a settings file"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(here, content, told):
    with pytest.raises(SettingsError, match=told):
        here.file(content).load()


OF_LEADSMAN = [
    ("[supervision]\n\nheartbeats = '1m'", "write one of exit_when_hung", 3),
    ("[log]\nlevel = 'info'\n[log.levels]\nbleak = 'info'\nhttpx = 'debgu'", "did you mean 'debug'", 5),
    ("[log]\nlevel = 'info'\nlevels = { bleak = 'debgu' }", "did you mean 'debug'", 3),
    ("[log.devices]\nattic = 'debug'\nceller = 'debug'", "'celler'", 3),
    ("[outbox]\n# few\nmax_bytes = 3", "outbox.max_bytes", 3),
    ("\nlog = 5", "log: it must be a section", 2),
    ("\n[device.attic]\ninterval = '1m'", "did you mean 'devices'", 2),
    ("\n[device]\n", "did you mean 'devices'", 2),
    ("[retry.api]\nmin_wait = '1s'\nattempts = 3", "did you mean 'max_attempts'", 3),
    ("\n[retry.apis]\nmin_wait = '1s'", "did you mean 'api'", 2),
    ("[[retry.policy]]\nname = 'a'\npolicy = 'never'\n[[retry.policy]]\nname = 'b'\npolicy = 'nevr'", "'nevr'", 6),
    ("[retry.policy.a]\npolicy = 'never'\n[retry.policy.b]\npolicy = 'nevr'", "'nevr'", 4),
    ("[env.lab.log]\nlevel = 'info'\nbackups = 0", "log.backups", 3),
]


@pytest.mark.parametrize(("text", "told", "line"), OF_LEADSMAN, ids=[each[0] for each in OF_LEADSMAN])
def test_a_fault_in_a_section_of_leadsman_is_named_with_its_line(here, text, told, line):
    app = App("house")
    app.add_telemetry("attic", read_nothing, interval="1m")

    with pytest.raises(ConfigurationError) as caught:
        app.load(here.file(text).where(LEADSMAN_ENV="lab" if "env" in text else ""))

    assert told in str(caught.value)
    assert re.search(rf"\(from [^()]*leadsman.toml( \[env.lab\])? line {line}\)", str(caught.value))


@pytest.mark.parametrize(
    "text",
    [
        "[mqtt]\nhost = 'b'\n[log]\nlevels.a = 'info'\n[env.lab]\nmqtt.port = 1884\nlog.levels.b = 'info'",
        "[mqtt]\nhost = 'b'\nport = 1884\n[log]\nlevels = {a = 'info', b = 'info'}\n[env.lab]\nmqtt = {}\nlog = {}",
    ],
)
def test_a_section_for_one_place_leaves_the_other_values_of_the_section_as_they_are(here, text):
    found = load("house", None, here.file(text).where(LEADSMAN_ENV="lab")).sections

    assert {key: each.value for key, each in found["mqtt"].items()} == {"host": "b", "port": 1884}
    assert found["log"]["levels"].value == {"a": "info", "b": "info"}
    assert "toml line 2" in found["mqtt"]["host"].origin


async def read_nothing() -> dict[str, float]:
    return {}


OWN = [
    ("leadsman.toml", "level = 1\n[rooms.a]\naddress = 1\n\nofset = 2\n", "rooms.a.ofset: unknown", 5),
    ("leadsman.toml", "[rooms.a]\naddress = 1\n[rooms.b]\naddress = 'x'\n", "rooms.b.address", 4),
    ("leadsman.toml", "tags = [\n'a',\n3]\n", "tags.1", 1),
    ("leadsman.yaml", "level: 1\nrooms:\n  a: {address: 1}\n  b:\n    address: x\n", "rooms.b.address", 5),
    ("leadsman.yaml", "tags:\n  - a\n  - 3\n", "tags.1", 3),
    ("leadsman.yaml", "level: 1\nlog:\n  levels:\n    a: info\n  path: 1\n  pats: x\n", "log.pats: unknown", 6),
    ("leadsman.yaml", "level: 1\nlevell: 2\n", "levell: unknown", 2),
    ("leadsman.yaml", "rooms:\n  a: &a\n    address: x\n  b:\n    <<: *a\n", "rooms.b.address", 3),
    ("leadsman.toml", 'path = """C:\\\\"""\n\nlevel = "x"\n', "level: Input", 3),
]


@pytest.mark.parametrize(("name", "text", "told", "line"), OWN, ids=[each[1] for each in OWN])
def test_a_fault_in_the_settings_of_the_user_is_named_with_its_line(here, name, text, told, line):
    with pytest.raises(SettingsError) as caught:
        here.file(text, name).load()

    (fault,) = [each for each in str(caught.value).splitlines() if each.startswith(told)]
    assert f"{name} line {line})" in fault


CURES = [
    ("url = mqtt://localhost", "write text in quotes"),
    ("interval = 5s", "write text in quotes"),
    ("level = 1\nlevel = 2", "write each key and each section once"),
    ("[rooms]\n[rooms]", "write each key and each section once"),
    ("level = 1\n[level.a]", "write each key and each section once"),
    ("level: 1", "write key = value; the name of a file with 'key: value' ends in .yaml"),
    ("level", "write key = value"),
    ('{"level": 1}', "write [section], and key = value below it"),
    ("[rooms", "close the bracket: [section]"),
    ("; a comment", "begin a comment with #"),
    ("// a comment", "begin a comment with #"),
    ("level =", "write a value after =, or leave the key out"),
    ("level = # none yet\ntag = 1", "write a value after =, or leave the key out"),
    ("level = True", "write true or false, in small letters"),
    ("level = yes # on", "write true or false, in small letters"),
    ("level = None", "leave out a key that has no value"),
    ("level = 1,5", "write a decimal point: 1.5"),
    ("level = 1,", "leave out the comma at its end"),
    ("level = 0123", "leave out the zeros before the number, or write it in quotes"),
    ('path = "C:\\users"', "write a text with \\ in single quotes: '…'"),
    ("path = “x”", "write straight quotes, \"…\" or '…'"),
    ("path = 'x", "close the quotes"),
    ('path = """x', "close the quotes"),
    ("tags = ['a',\n'b'", "close the bracket"),
    ("tags = ['a' 'b']", "close the bracket"),
]


@pytest.mark.parametrize(("text", "cure"), CURES, ids=[each[0] for each in CURES])
def test_what_toml_does_not_take_is_told_with_what_to_write_and_where(here, text, cure):
    with pytest.raises(SettingsError) as caught:
        here.file(f"\n{text}\n").load()

    said = str(caught.value)
    assert said.endswith(f"; {cure}")
    assert "(at line " in said or "(at end of document)" in said


@given(st.text(alphabet="ab01 =[]{}\"',.:;/#\\“\n\t-", max_size=60))
def test_each_text_is_toml_or_has_one_line_about_it(text):
    said = ""
    try:
        toml_document(Path("leadsman.toml"), text)
    except SettingsError as error:
        said = str(error)

    assert re.fullmatch(r"|leadsman\.toml (is not TOML: .*; [a-z].*|has .*)", said)


@pytest.mark.parametrize(("name", "text"), [("leadsman.toml", "level = 1"), ("leadsman.yaml", "level: 1")])
def test_no_line_is_looked_for_in_a_file_without_a_fault(here, name, text, monkeypatch):
    looked = []
    for each in ("toml_lines", "yaml_lines"):
        monkeypatch.setattr(documents, each, lambda _: looked.append(1) or {})

    assert here.file(text, name).load().settings.level == 1
    assert not looked
    with pytest.raises(SettingsError):
        here.file(text.replace("level", "levell"), name).load()
    assert looked == [1]


@pytest.mark.parametrize("levels", [51, 900, 5_000])
def test_a_variable_that_is_nested_deep_is_a_text_in_the_wrong_place(here, levels):
    with pytest.raises(SettingsError, match="rooms: Input should be a valid dictionary"):
        here.load(HOUSE_ROOMS='{"a": ' * levels + "1" + "}" * levels)


def test_a_file_with_a_byte_order_mark_is_read(here):
    assert here.file("level = 7".encode("utf-8-sig")).load().settings.level == 7


def test_every_fault_is_told_at_once(here):
    here.file("level = 'x'\nenabled = 'maybe'")

    with pytest.raises(SettingsError) as caught:
        here.load()

    assert len(str(caught.value).splitlines()) == 2


def test_a_wrong_secret_is_not_shown(here):
    class Door(BaseModel):
        pin: Annotated[SecretStr, Field(min_length=9)] | None = None

    class Strict(BaseModel):
        token: int = 0
        doors: dict[str, Door] = {}

    with pytest.raises(SettingsError) as caught:
        here.load(Strict, HOUSE_TOKEN="hunter2", HOUSE_DOORS__FRONT__PIN="hunter3")

    assert "hunter" not in str(caught.value)
    assert "environment HOUSE_TOKEN" in str(caught.value)
    assert "environment HOUSE_DOORS__FRONT__PIN" in str(caught.value)


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        ({"HOUSE_LEVLE": "1"}, r"levle: unknown \(from environment HOUSE_LEVLE\); did you mean 'level'\?"),
        ({"MQTT__HOTS": "a"}, r"mqtt.hots: unknown \(from environment MQTT__HOTS\)"),
        ({"HOUSE_LEVEL__X": "1"}, r"level: Input should be a valid integer"),
        ({"HOUSE_API_KEY_FILE": "/nowhere"}, r"/nowhere cannot be read: No such file"),
        ({"LEADSMAN_CONFIG": "/nowhere.toml"}, r"/nowhere.toml cannot be read"),
    ],
)
def test_what_is_wrong_in_the_environment_is_named(here, environment, told):
    with pytest.raises(SettingsError, match=told):
        here.load(**environment)


def test_variables_that_kubernetes_sets_for_a_service_are_none_of_ours(here):
    loaded = here.load(
        HOUSE_SERVICE_HOST="10.0.0.1",
        HOUSE_SERVICE_PORT="80",
        HOUSE_PORT="tcp://10.0.0.1:80",
        HOUSE_PORT_80_TCP_ADDR="x",
        HOUSE_PORT_80_TCP_PORT="80",
        HOUSE_DB_PORT="tcp://10.0.0.2:5432",
    )

    assert loaded.settings == Settings()


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        (
            {"HOUSE_BOILR__PORT": "/dev/x"},
            "boilr: unknown (from environment HOUSE_BOILR__PORT); did you mean 'boiler'?",
        ),
        (
            {"HOUSE_BOILER_PORT": "/dev/x"},
            "boiler_port: unknown (from environment HOUSE_BOILER_PORT); did you mean 'boiler.port'? "
            "As a variable: HOUSE_BOILER__PORT",
        ),
        ({"HOUSE_BOILR__SERVICE_PORT": "1"}, "boilr: unknown (from environment HOUSE_BOILR__SERVICE_PORT)"),
    ],
)
def test_a_misspelt_variable_is_found_though_it_ends_as_those_of_kubernetes(here, environment, told):
    with pytest.raises(SettingsError) as caught:
        here.load(**environment)

    assert told in str(caught.value)


class Wave(BaseModel):
    serial: int
    name: str = "wave"


class Needy(BaseModel):
    class Bus(BaseModel):
        port: str
        unit: int
        baud: int = 9600

    class Empty(BaseModel):
        level: int = 1

    bus: Bus
    empty: Empty
    rooms: dict[str, Room]
    waves: list[Wave]
    zone: str


def test_what_is_missing_in_a_section_is_named_with_its_variable(here):
    with pytest.raises(SettingsError) as caught:
        here.load(Needy)

    assert str(caught.value).splitlines() == [
        "bus.port: missing; set it in leadsman.toml, or HOUSE_BUS__PORT",
        "bus.unit: missing; set it in leadsman.toml, or HOUSE_BUS__UNIT",
        "empty: missing; write a section [empty] in leadsman.toml",
        "rooms: missing; write a section such as [rooms.NAME] in leadsman.toml",
        "waves: missing; write a section [[waves]] in leadsman.toml",
        "zone: missing; set it in leadsman.toml, or HOUSE_ZONE",
    ]


def test_an_item_of_a_list_is_checked_as_a_section_is_and_no_variable_is_named_for_it(here):
    class Listing(BaseModel):
        waves: list[Wave]

    here.file("[[waves]]\nserial = 1\nnmae = 'x'\n[[waves]]\nname = 'y'\n", "house.toml")

    with pytest.raises(SettingsError) as caught:
        here.load(Listing, config=here.path / "house.toml")

    unknown, missing = str(caught.value).splitlines()
    assert unknown.startswith("waves.0.nmae: unknown")
    assert unknown.endswith("did you mean 'name'?")
    assert missing == "waves.1.serial: missing; set it in house.toml"


def test_the_faults_of_all_sections_are_told_in_one_run(here):
    here.file(
        "levell = 1\nenabled = 'maybe'\n[mqtt]\nhots = 'a'\nport = 0\n[retry.api]\nmax_attempts = 0\n"
        "[retry.ble]\nmin_wiat = 3\n[[retry.policy]]\nname = 'x'\n[[retry.policy]]\npolicy = 'never'\n"
    )
    app = App("house", settings=Settings)

    with pytest.raises(SettingsError) as caught:
        app.load(here.where())

    told = str(caught.value).splitlines()
    for start in (
        "mqtt.hots: unknown",
        "levell: unknown",
        "enabled: Input should be",
        "mqtt.port is 0",
        "retry.api.max_attempts",
        "retry.ble.min_wiat",
        "retry.policy[0]: a named policy lacks",
        "retry.policy[1]: a named policy lacks",
    ):
        assert [line for line in told if line.startswith(start)], (start, told)


def test_an_empty_or_missing_secret_is_shown_as_that_and_a_path_to_one_is_shown(here):
    class Server(BaseModel):
        password: SecretStr | None = None
        token: str = ""
        pin: SecretStr = SecretStr("1234")
        password_file: Path | None = None

    here.file("password_file = '/run/secrets/dav'")

    told = {row.path: row.value for row in here.load(Server).rows}

    assert told == {"password": "not set", "token": "empty", "pin": MASK, "password_file": "/run/secrets/dav"}


def test_a_section_of_the_retry_policies_of_another_framework_is_named_with_ours(here):
    here.file("[[retryPolicyDefaults]]\nname = 'x'\n")

    for model in (None, Settings):
        with pytest.raises(SettingsError, match=r"retryPolicyDefaults: unknown .*did you mean 'retry.policy'\?"):
            load("house", model, here.where())


def test_variables_of_others_are_left_alone(here):
    assert here.load(PATH="/bin", HOME="/root", HOUSE="x", HOUSEHOLD_LEVEL="3").settings == Settings()


@pytest.mark.parametrize(
    ("line", "level"),
    [
        ("HOUSE_LEVEL=3", 3),
        ("export HOUSE_LEVEL = 3  # three", 3),
        ("HOUSE_LEVEL='3'", 3),
        ('HOUSE_LEVEL="3" # three', 3),
        ("# HOUSE_LEVEL=3\n\n", 5),
        ("OTHER=x", 5),
    ],
)
def test_dotenv_is_read_as_people_write_it(here, line, level):
    assert here.file(line, ".env").load().settings.level == level


@pytest.mark.parametrize("line", ["HOUSE_LEVEL", "=3", "HOUSE LEVEL=3", "HOUSE_LEVEL='3"])
def test_a_wrong_line_of_dotenv_is_named(here, line):
    with pytest.raises(SettingsError, match="line 2"):
        here.file(f"A=1\n{line}\n", ".env").load()


def test_yaml_is_read_too(here):
    here.file("level: 7\nrooms:\n  kitchen: {address: 3}\n", "leadsman.yaml")

    assert here.load().settings.rooms == {"kitchen": Room(address=3)}


def test_an_alias_of_yaml_may_stand_for_a_section_and_be_merged_into_another(here):
    here.file("x: &x {address: 3}\nrooms:\n  kitchen: *x\n  attic: {<<: *x, offset: 1}\n", "leadsman.yaml")

    with pytest.raises(SettingsError, match="x: unknown") as caught:
        here.load()
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("a: [", "is not YAML"),
        ("- 1", "does not contain a mapping"),
        ("!!python/object:os.system {}", "could not determine a constructor"),
        ("a: &a [*a]", "line 1 contains itself"),
        ("level: 1\nlevel: 2", "the key 'level' in line 2 is there twice"),
        ("level: " + "9" * 101, "a number has 101 characters; 100 are allowed"),
        ("level: " + "[" * 9000, "50 brackets in a row"),
        ("".join(f"{' ' * n}a:\n" for n in range(500)), "recursion"),
        ("a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{f'*a{n - 1},' * 9}]\n" for n in range(1, 9)), "100,000 values"),
        ("\x1f", "special characters"),
        ("rooms:\n\tlevel: 1", "in line 2; indent with spaces, and not with tabs"),
        ("path: %x", "in line 1; write text with special characters in quotes"),
        ("path: a: b", "in line 1; write text with ': ' in it in quotes"),
        ("level: !secret x", "in line 1; leave tags out"),
        ("level: 1\n---\nlevel: 2", "in line 2; write one document"),
        ("rooms:\n  a: 1\n b: 2", "write the keys of a section in one column"),
        ("rooms: {a: 1", "close the bracket"),
        ("path: 'x", "close the quotes"),
        ("level: !!bool x", "does not fit its tag, such as !!bool; leave tags out"),
        ("level: !!int ''", "does not fit its tag"),
        ("level: !!timestamp x", "does not fit its tag"),
    ],
)
def test_wrong_yaml_is_named(here, content, told):
    with pytest.raises(SettingsError, match=told):
        here.file(content, "leadsman.yaml").load()


@pytest.mark.parametrize("name", ["leadsman.yaml", "leadsman.toml", ".env"])
@pytest.mark.parametrize(
    "text",
    [
        *(
            "pin: %{}",
            "password: %two {}",
            "pins: [1, %{}]",
            "pin: a: {}",
            "pin: *{}",
            "pin: !{} x",
            "pin: &{} @",
            "? {}: {",
        ),
        *(
            "pin: {}\n - x",
            "pin: '{}",
            'pin: "{}\\q"',
            "pin: !!int {}",
            "pin: !!float {}",
            "pin: 2026-99-99 {}",
            "pin: {}\x01",
        ),
        *("pin = {}", "pin = '{}", 'pin = "{}\\q"', "[pin\n{} = 1", "pin = 1\npin = {}", "pin = 1 {}", "{} 7"),
    ],
)
def test_what_is_wrong_with_a_file_is_told_without_what_it_says(here, name, text):
    here.file(text.replace("{}", "canary7bird"), name)

    said = ""
    try:
        here.load()
    except SettingsError as error:
        said = str(error)

    assert "canary7bird" not in said


def test_a_pipe_is_no_settings_file(here, tmp_path):
    os.mkfifo(tmp_path / "pipe.toml")

    with pytest.raises(SettingsError, match="is a pipe, which may never end; write a regular file"):
        here.load(config=tmp_path / "pipe.toml")


def test_a_file_without_end_is_refused_by_its_size(here):
    with pytest.raises(SettingsError, match="is too large for a settings file"):
        here.load(config=Path("/dev/zero"))


def test_a_directory_in_place_of_a_file_is_named(here):
    with pytest.raises(SettingsError, match="cannot be read: Is a directory; write the path of a file"):
        here.load(config=here.path)


@pytest.mark.parametrize("make", [Path.mkdir, lambda path: path.symlink_to("nowhere"), os.mkfifo])
def test_a_settings_file_that_is_no_file_is_an_error_and_not_passed_over(here, make):
    make(here.path / "leadsman.toml")

    with pytest.raises(SettingsError, match=r"leadsman\.toml cannot be read: .*; "):
        here.load()


def test_a_directory_env_is_no_file_of_variables_since_some_keep_their_python_in_it(here):
    (here.path / ".env").mkdir()

    here.load()


@pytest.mark.parametrize("name", ["HOUSE_LEVEL_FILE", "LEADSMAN_CONFIG"])
def test_a_file_that_a_variable_names_and_cannot_be_read_is_told_with_the_variable(here, name):
    with pytest.raises(
        SettingsError, match=rf"^/nope cannot be read: .*; correct the path \(from environment {name}\)$"
    ):
        here.load(**{name: "/nope"})


def lines_of(call):
    """How many lines of leadsman run in a call."""
    lines = 0

    def count(frame, event, argument):
        nonlocal lines
        lines += event == "line"
        return count if "leadsman" in frame.f_code.co_filename else None

    before = sys.gettrace()
    sys.settrace(count)
    try:
        call()
    finally:
        sys.settrace(before)
    return lines


@pytest.mark.parametrize("settings", [Settings, None])
def test_so_many_unknown_keys_take_so_many_steps_and_a_few_of_them_are_named(here, settings):
    def refuse(keys):
        here.file("".join(f"key{number} = 1\n" for number in range(keys)))
        with pytest.raises(SettingsError) as caught:
            here.load(settings)
        assert caught.value.args[0].splitlines()[-1].endswith(f"and {keys - 20:,} more unknown keys")
        assert len(caught.value.args[0].splitlines()) == 21

    few, many = lines_of(lambda: refuse(200)), lines_of(lambda: refuse(2000))

    assert many < 15 * few


def test_an_app_without_settings_names_unknown_keys_and_reads_its_broker(here):
    here.file("[mqtt]\nurl = 'mqtt://broker:1884'\n")
    app = App("house")
    app.load(here.where())
    assert str(app.brokers) == "mqtt://broker:1884"

    with pytest.raises(SettingsError, match=r"level: unknown \(from flag level\); this app has no settings"):
        load("house", None, here.where(flags={"level": "1"}))


def test_an_app_without_settings_has_no_claim_to_variables_that_begin_as_its_name(here):
    here.file("HOUSE_HOME=/x", ".env").secret("house_key", "x")

    assert load("house", None, here.where(HOUSE_ENV="production")).rows == ()


@pytest.mark.parametrize(
    ("content", "environment", "flags", "url"),
    [
        ("", {}, {}, "mqtt://localhost:1883"),
        ("[mqtt]\nhost = 'a'", {}, {}, "mqtt://a:1883"),
        ("[mqtt]\nhost = 'a'\ntls = true", {}, {}, "mqtts://a:8883"),
        ("[mqtt]\nurl = 'mqtt://a'", {"MQTT__HOST": "b"}, {}, "mqtt://b:1883"),
        ("[mqtt]\nhost = 'a'", {"MQTT__URL": "mqtts://b"}, {}, "mqtts://b:8883"),
        ("[mqtt]\nurl = 'mqtt://a'", {"MQTT__URL": "mqtt://b"}, {"mqtt.url": "mqtt://c"}, "mqtt://c:1883"),
    ],
)
def test_the_broker_is_that_of_the_highest_source(here, content, environment, flags, url):
    app = App("house")
    app.load(here.file(content).where(flags=flags, **environment))

    assert str(app.brokers) == url


def test_a_tool_reads_the_broker_as_an_app_does_and_nothing_else(here):
    here.file("level = 'x'\n[mqtt]\nurl = 'mqtt://a'\nusername = 'ann'").secret("mqtt__password", "given\n")
    found = load_broker(here.where(MQTT__URL="mqtt://b"))
    assert {key: each.value for key, each in found.items()} == {
        "url": "mqtt://b",
        "username": "ann",
        "password": "given",
    }

    with pytest.raises(SettingsError, match=r"mqtt: it must be a section; write \[mqtt\] and url = … \(from .*toml"):
        load_broker(here.file("mqtt = 5").where())
    with pytest.raises(SettingsError, match=r"mqtt.hots: unknown \(from environment MQTT__HOTS\); did you mean 'host'"):
        load_broker(here.file("").where(MQTT__HOTS="b"))


def test_a_broker_in_the_code_gives_way_to_any_setting(here):
    for where, url in (
        (here.where(), "mqtt://code:1883"),
        (here.where(MQTT__URL="mqtt://environment"), "mqtt://environment:1883"),
        (here.where(MQTT__HOST="host"), "mqtt://host:1883"),
        (here.where(flags={"mqtt.url": "mqtt://flag"}), "mqtt://flag:1883"),
    ):
        app = App("house", mqtt="mqtt://code")
        app.load(where)
        assert str(app.brokers) == url


def test_a_broker_in_the_code_gets_the_credentials_of_the_settings(here):
    app = App("house", mqtt=["mqtt://one", "mqtt://ann:own@two"])
    app.load(here.secret("mqtt__password", "given").where(MQTT__USERNAME="bob"))

    assert [(each.username, each.password) for each in app.brokers.all] == [("bob", "given"), ("ann", "own")]


def test_a_part_of_a_broker_that_the_settings_do_not_name_is_an_error(here):
    with pytest.raises(InvalidValue, match=r"mqtt.port \(from environment MQTT__PORT\) belongs to no broker"):
        App("house", mqtt="mqtt://code").load(here.where(MQTT__PORT="1884"))


def test_a_variable_with_one_underscore_is_named(here, caplog):
    App("house").load(here.where(MQTT_URL="mqtt://meant", MQTT_PASSWORD="x"))

    assert [each.getMessage() for each in caplog.records] == [
        "MQTT_URL is not read; write MQTT__URL; MQTT_PASSWORD is not read; write MQTT__PASSWORD"
    ]


@pytest.mark.parametrize(
    "write",
    [
        lambda here: here.file("[mqtt]\nurl = ['mqtt://a', 'mqtt://b']").where(),
        lambda here: here.where(MQTT__URL="mqtt://a,mqtt://b"),
        lambda here: here.where(MQTT__URL='["mqtt://a", "mqtt://b"]'),
        lambda here: here.secret("mqtt__url", "mqtt://a\nmqtt://b\n").where(),
        lambda here: here.file("[mqtt]\nurl = 'mqtt://c'").where(flags={"mqtt.url": "mqtt://a, mqtt://b"}),
    ],
    ids=["file", "variable", "JSON", "secret", "flag"],
)
def test_several_brokers_come_from_any_source(here, write):
    app = App("house")
    app.load(write(here))

    assert str(app.brokers) == "mqtt://a:1883, mqtt://b:1883"


def test_a_wrong_broker_of_a_list_is_named_with_its_origin(here):
    app = App("house")
    with pytest.raises(InvalidValue, match=r"^broker 2 of 2: the broker's URL .*\(from environment MQTT__URL\)$"):
        app.load(here.where(MQTT__URL='["mqtt://a", "b"]'))


def test_the_list_is_shown_without_passwords(here):
    app = App("house")
    app.load(here.file("[mqtt]\nurl = ['mqtt://u:hunter2@a', 'mqtt://b']").where())

    rows = {row.path: row.value for row in app.setup.rows}
    assert rows["mqtt.url"] == "['mqtt://***@a', 'mqtt://b']"


def test_a_text_with_several_brokers_is_shown_without_passwords(here):
    app = App("house")
    app.load(here.where(MQTT__URL="mqtt://u:hunter2@a,mqtt://u:hunter2@b"))

    (row,) = app.setup.rows
    assert row.value == "['mqtt://***@a', 'mqtt://***@b']"


def test_the_password_may_come_apart_from_the_url(here):
    here.file("[mqtt]\nurl = 'mqtts://a'\nusername = 'ann'").secret("mqtt__password", "p\n")
    app = App("house")
    app.load(here.where())

    broker = app.brokers.primary
    assert (broker.username, broker.password, broker.encrypted) == ("ann", "p", True)


def test_a_url_and_a_host_in_one_place_are_one_too_many(here):
    app = App("house")
    with pytest.raises(InvalidValue, match="write only one of them"):
        app.load(here.file("[mqtt]\nurl = 'mqtt://a'\nhost = 'b'").where())
    with pytest.raises(SettingsError, match="(?s)write only one of them.*begins with 'http'.*mqtt.port is 'x'"):
        app.load(here.file("[mqtt]\nurl = 'http://a'\nhost = 'b'\nport = 'x'").where())


def test_every_wrong_value_of_the_broker_is_named_with_where_it_is_from(here):
    app = App("house")
    with pytest.raises(SettingsError) as caught:
        app.load(here.file("[mqtt]\nhost = ''\nusername = 5\ntopic_prefix = 'a//b'").where(MQTT__PORT="many"))

    lines = str(caught.value).splitlines()
    assert [line.split(" ")[0].rstrip(":") for line in lines] == [
        "mqtt.host",
        "mqtt.username",
        "mqtt.port",
        "mqtt.topic_prefix",
    ]
    assert [re.search(r"toml line (\d)\)", line)[1] for line in lines if "mqtt.port" not in line] == ["2", "3", "4"]
    assert lines[2].endswith("(from environment MQTT__PORT)")


@pytest.mark.parametrize(
    ("word", "scheme"),
    [
        ("on", "mqtts"),
        ("yes", "mqtts"),
        ("TRUE", "mqtts"),
        ("1", "mqtts"),
        ("off", "mqtt"),
        ("no", "mqtt"),
        (1, "mqtts"),
    ],
)
def test_a_switch_of_the_broker_is_written_as_any_other(here, word, scheme):
    app = App("house")
    app.load(here.where(flags={"mqtt.host": "b", "mqtt.tls": word}))

    assert app.brokers.primary.scheme == scheme


def test_a_word_that_is_no_switch_does_not_connect_without_tls(here):
    with pytest.raises(InvalidValue, match=r"mqtt.tls: 'onn' is neither true nor false; .*environment MQTT__TLS"):
        App("house").load(here.where(MQTT__HOST="b", MQTT__TLS="onn"))
    with pytest.raises(InvalidValue, match=r"URL has insecure: 'maybe' is neither true nor false"):
        App("house", mqtt="mqtts://b?insecure=maybe")


def test_a_wrong_port_names_where_it_is_from(here):
    app = App("house")
    with pytest.raises(InvalidValue, match=r"mqtt.port is '0'.*environment MQTT__PORT"):
        app.load(here.where(MQTT__PORT="0"))


def test_a_file_is_found_where_systemd_says(here, tmp_path):
    etc = tmp_path / "etc"
    etc.mkdir()
    (etc / "leadsman.toml").write_text("level = 8")
    here.file("level = 7")

    assert here.load(CONFIGURATION_DIRECTORY=str(etc)).settings.level == 8


@given(st.text(max_size=80))
def test_any_text_as_dotenv_or_toml_is_read_or_a_named_error(text):
    with tempfile.TemporaryDirectory() as directory:
        for name in (".env", "leadsman.toml", "leadsman.yaml"):
            path = Path(directory) / name
            path.write_bytes(text.encode("utf-8", "surrogatepass"))
            with contextlib.suppress(SettingsError):
                load("house", Settings, Where({}, Path(directory), None, {}, Path(directory) / "none"))
            path.unlink()


def test_credentials_in_a_url_are_not_shown(here):
    here.file("log_file = 'https://ann:hunter2@host/x'\n[mqtt]\nurl = 'mqtt://ann:hunter2@host'")

    shown = {row.path: row.value for row in here.load().rows}

    assert shown["mqtt.url"] == "'mqtt://***@host'"
    assert "hunter2" not in str(shown)


class Mode(BaseModel):
    mode: Literal["off", "on", "no"] = "on"
    text: str = ""
    flag: bool = True
    since: date | None = None
    port: int = 1


@pytest.mark.parametrize(
    ("line", "read"),
    [
        ("mode: off", {"mode": "off"}),
        ("mode: no", {"mode": "no"}),
        ("mode: on", {"mode": "on"}),
        ("text: yes", {"text": "yes"}),
        ("text: Off", {"text": "Off"}),
        ("text: 0123", {"text": "0123"}),
        ("text: 1:30", {"text": "1:30"}),
        ("text: 12:30:45", {"text": "12:30:45"}),
        ("text: 2026-11-28", {"text": "2026-11-28"}),
        ("text: 2026-11-28 10:00:00", {"text": "2026-11-28 10:00:00"}),
        ("text: 1e3", {"text": "1e3"}),
        ("text: 0o17", {"text": "0o17"}),
        ("flag: off", {"flag": False}),
        ("flag: No", {"flag": False}),
        ("flag: yes", {"flag": True}),
        ("flag: FALSE", {"flag": False}),
        ("since: 2026-11-28", {"since": date(2026, 11, 28)}),
        ("port: 0x10", {"port": 16}),
        ("port: 1_000", {"port": 1000}),
        ("port: 0123", {"port": 123}),
        ("port: -7", {"port": -7}),
    ],
)
def test_yaml_is_read_as_it_is_written(here, line, read):
    """home-assistant/core#19210: YAML 1.1 reads `off` and `no` as false, 0123 as 83, 1:30 as 90; YAML 1.2 does not."""
    found = here.file(line + "\n", "leadsman.yaml").load(Mode)

    assert found.settings.model_dump(include=read) == read


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("text = 2026-11-28", "text"),
        ("text = 12:30:00", "text"),
        ("text = 123", "text"),
        ("port = 2026-11-28", "port"),
        ("mode = false", "mode"),
        ("mqtt.username = 2026-11-28", "mqtt.username"),
        ("mqtt.password = 123", "mqtt.password"),
    ],
)
def test_a_value_of_another_type_than_text_is_named(here, text, name):
    with pytest.raises(ConfigurationError, match=name):
        brokers_of(here.file(text).load(Mode).sections["mqtt"])


OFF_WORDS = ("off", "Off", "no", "false", "FALSE", '"off"', '"no"')


@pytest.mark.parametrize("word", OFF_WORDS)
def test_off_is_off_in_each_setting_that_takes_it(here, word):
    app = App("house")
    text = f"supervision: {{exit_when_stale: {word}, exit_when_hung: {word}}}"
    app.load(here.file(text, "leadsman.yaml").where())

    assert app.setup.sections == Sections()


def test_no_section_of_leadsman_needs_pydantic():
    flags = {
        "outbox.max_age": "1d",
        "supervision.exit_when_hung": "1m",
        "log.path": "house.log",
    }
    code = "import sys; from leadsman import App; from leadsman.core.settings.sources import Where\n"
    code += f"App('house').load(Where.nowhere({flags!r})); assert not any('pydantic' in each for each in sys.modules)"

    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_variable_that_is_there_and_empty_sets_nothing(here):
    file = "[outbox]\ndurability = 'memory'\n[devices.d]\nenabled = true\n[retry.api]\nmax_attempts = 3\n"
    names = [f"{section.upper()}__{key.upper()}" for section in SECTIONS for key in keys_of(section)]
    names += [
        "MQTT__PASSWORD_FILE",
        "DEVICES__D",
        "DEVICES__D__ENABLED",
        "RETRY__API_MAX_ATTEMPTS",
        "RETRY__",
        "MQTT__",
    ]

    found = here.file(file).load(None, **dict.fromkeys(names, ""))

    assert found.sections["outbox"]["durability"].value == "memory"
    assert found.devices["d"]["enabled"].value is True
    assert found.retry == {"api": {"max_attempts": 3}}
    assert {name: len(entries) for name, entries in found.sections.items() if entries} == {"outbox": 1}


def test_an_empty_variable_of_the_apps_own_is_empty_text(here):
    assert here.load(Mode, HOUSE_TEXT="").settings.text == ""
    with pytest.raises(SettingsError, match="port: .*valid integer"):
        here.load(Mode, HOUSE_PORT="")


class Level(BaseModel):
    below: "Level | None" = None
    values: dict[str, str] = {}
    word: SecretStr = SecretStr("")


@pytest.mark.parametrize("model", [None, Level])
def test_the_secrets_of_deep_settings_are_found_in_one_walk(model):
    def calls(depth):
        tree = {"values": {f"key{n}": "text" for n in range(20)}, "word": "canary"}
        for _ in range(depth):
            tree = {"below": tree, "word": "canary"}
        count = 0

        def step(frame, event, argument):
            nonlocal count
            count += event == "call"

        sys.setprofile(step)
        try:
            found = [*secrets_in(tree, model)]
        finally:
            sys.setprofile(None)
        assert len(found) == (0 if model is None else depth + 1)
        return count

    short, long = calls(40) - calls(20), calls(80) - calls(40)
    assert long < 2.5 * short  # twice as many levels take twice as many steps
