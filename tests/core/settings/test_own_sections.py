"""The section of the settings that an extension has, and the extensions that the settings name."""

import sys
from typing import Annotated, NamedTuple

import pytest
from pydantic import BaseModel, SecretStr

from leadsman import App, Extension
from leadsman.core.settings.sources import Where
from leadsman.errors import ConfigurationError
from leadsman.extension import read_duration, read_switch


class AlarmSettings(NamedTuple):
    """When the alarm rings."""

    above: Annotated[float, float]
    silent: Annotated[bool, read_switch] = False
    wait: Annotated[float, read_duration] = 30.0


class Alarm(Extension):
    """Has a section, a NamedTuple."""

    name = "alarm"
    settings = AlarmSettings


class Limits(BaseModel):
    """A part of the section."""

    high: float = 50.0


class MailSettings(BaseModel):
    """Where mail goes."""

    host: str
    password: SecretStr | None = None
    limits: Limits = Limits()


class Mail(Extension):
    """Has a section, a pydantic model."""

    name = "mail"
    settings = MailSettings


class Flagged(NamedTuple):
    """All of it has a default."""

    on: Annotated[bool, read_switch] = False
    token: Annotated[str, int] = ""


class Flag(Extension):
    """Needs no settings."""

    name = "flag"
    settings = Flagged


class HouseSettings(BaseModel):
    """Settings of an app."""

    alarm: float = 1.0


def loaded(tmp_path, *extensions, toml="", environment=None, settings=None):
    """The plan of an app with these settings."""
    (tmp_path / "leadsman.toml").write_text(toml)
    app = App("house", extensions=extensions, settings=settings)
    app.load(Where(environment or {}, tmp_path, None, {}, tmp_path / "nothing"))
    return app.plan({})


def test_a_section_is_read_from_the_file_and_from_variables_and_is_typed(tmp_path):
    plan = loaded(
        tmp_path, Alarm(), toml="[alarm]\nabove = 3\nwait = '2m'", environment={"ALARM__ABOVE": "7.5", "HOUSE_X": "1"}
    )

    assert plan.section(AlarmSettings) == AlarmSettings(7.5, silent=False, wait=120.0)


def test_a_model_is_a_section_with_sections_in_it(tmp_path):
    plan = loaded(
        tmp_path,
        Mail(),
        Flag(),
        toml="[mail]\nhost = 'mail.lan'\n",
        environment={"MAIL__LIMITS__HIGH": "60", "MAIL__PASSWORD": "hush"},
    )

    found = plan.section(MailSettings)
    assert (found.host, found.limits.high, found.password.get_secret_value()) == ("mail.lan", 60.0, "hush")
    assert plan.section(Flagged) == Flagged()


def test_a_secret_of_a_section_may_be_a_file(tmp_path):
    (tmp_path / "password").write_text("hush\n")
    environment = {"MAIL__HOST": "mail.lan", "MAIL__PASSWORD_FILE": str(tmp_path / "password")}

    assert loaded(tmp_path, Mail(), environment=environment).section(MailSettings).password.get_secret_value() == "hush"


def test_what_check_lists_has_the_values_and_hides_secrets(tmp_path):
    (tmp_path / "leadsman.toml").write_text("[mail]\nhost = 'mail.lan'\npassword = 'hush'\n[flag]\non = true\n")
    app = App("house", extensions=[Mail(), Flag()])
    app.load(Where({}, tmp_path, None, {}, tmp_path / "nothing"))

    rows = {row.path: (row.value, row.origin.rpartition("/")[2]) for row in app.setup.rows}
    assert rows["mail.host"] == ("'mail.lan'", "leadsman.toml")
    assert rows["mail.password"][0] == "********"
    assert rows["mail.limits.high"] == ("50.0", "default")
    assert rows["flag.on"] == ("True", "leadsman.toml")


@pytest.mark.parametrize(
    ("extension", "toml", "said"),
    [
        (Alarm, "", "alarm.above: missing; write above = … in [alarm], or set ALARM__ABOVE"),
        (
            Alarm,
            "[alarm]\nabove = 'x'",
            "alarm.above: could not convert string to float: 'x'; write another value (from",
        ),
        (Alarm, "[alarm]\nabove = 1\nwiat = 3", "leadsman.toml line 3); did you mean 'wait'?"),
        (Alarm, "[alarm]\nabove = 1\nwait = true", "alarm.wait: True is not a duration"),
        (Alarm, "alarm = 3", "alarm: it must be a section; write [alarm] and above = …"),
        (Alarm, "[alarn]\nabove = 3", "alarn: unknown"),
        (Alarm, "[alarn]\nabove = 3", "did you mean 'alarm'?"),
        (Mail, "", "mail.host: missing; set it in leadsman.toml, or MAIL__HOST"),
        (Mail, "[mail]\nhost = 3", "mail.host: Input should be a valid string, not 3 (from"),
        (Mail, "[mail]\nhots = 'a'", "leadsman.toml line 2); did you mean 'host'?"),
        (Mail, "mail = 3", "mail: it must be a section; write [mail] and host = …"),
        (Flag, "[flag]\ntoken = 'my secret'", "flag.token: ValueError; write another value"),
    ],
)
def test_what_is_wrong_in_a_section_is_named_with_its_origin_and_what_to_write(tmp_path, extension, toml, said):
    with pytest.raises(ConfigurationError) as raised:
        loaded(tmp_path, extension(), toml=toml)

    assert said in str(raised.value)
    assert "my secret" not in str(raised.value)


class Unread(NamedTuple):
    """Has a field that nothing reads."""

    above: float = 3.0


def made(name, settings):
    """An extension with these members."""
    return type("Made", (Extension,), {"name": name, "settings": settings})()


@pytest.mark.parametrize(
    ("extensions", "said"),
    [
        ([made("outbox", None)], "extensions: 'outbox' is a section of the settings of leadsman; choose another name"),
        ([made("retry", None)], "extensions: 'retry' is a section"),
        ([made("a", Unread)], "settings: nothing reads Unread.above; write a function beside its type, such as above:"),
        ([made("a", int)], "settings: int is neither a NamedTuple nor a pydantic model; write one of them"),
        ([made("a", Flagged), made("b", Flagged)], "extensions: 'a' and 'b' have one class of settings, Flagged"),
    ],
)
def test_a_name_or_a_class_that_cannot_be_is_named_as_the_app_is_made(extensions, said):
    with pytest.raises(ConfigurationError) as raised:
        App("house", extensions=extensions)

    assert said in str(raised.value)


def test_a_section_that_the_settings_of_the_app_have_too_is_an_error_that_names_both(tmp_path):
    with pytest.raises(ConfigurationError, match=r"'alarm' has a section of this name, and HouseSettings\.alarm is a"):
        loaded(tmp_path, Alarm(), settings=HouseSettings)


def test_settings_of_an_extension_that_the_app_does_not_have_are_an_error(tmp_path):
    with pytest.raises(ConfigurationError, match="no extension of the app has the settings AlarmSettings"):
        loaded(tmp_path).section(AlarmSettings)


def install(monkeypatch, tmp_path, name, module, *points):
    """Install a package into a folder that Python searches."""
    site = tmp_path / f"site-{name}"
    info = site / f"{name}-1.2.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text("[leadsman.extensions]\n" + "\n".join(points) + "\n")
    (site / f"{name}_module.py").write_text(module)
    monkeypatch.syspath_prepend(site)
    monkeypatch.delitem(sys.modules, f"{name}_module", raising=False)


BELL = """
from leadsman import Extension

class Bell(Extension):
    name = "bell"

class Other(Extension):
    name = "other"

bell = Bell()
number = 3
"""


@pytest.mark.parametrize("point", ["bell = bells_module:Bell", "bell = bells_module:bell"])
@pytest.mark.parametrize(
    ("toml", "environment"), [("[extensions]\nnames = ['bell']", {}), ("", {"EXTENSIONS__NAMES": "bell"})]
)
def test_an_extension_of_an_installed_package_joins_an_app_that_names_it(
    monkeypatch, tmp_path, point, toml, environment
):
    install(monkeypatch, tmp_path, "bells", BELL, point)

    plan = loaded(tmp_path, Flag(), toml=toml, environment=environment)

    assert [each.name for each in plan.extensions] == ["flag", "bell"]


def test_an_app_that_names_none_neither_joins_one_nor_looks_for_any(monkeypatch, tmp_path):
    install(monkeypatch, tmp_path, "bells", BELL, "bell = bells_module:Bell")
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: 1 / 0)

    assert loaded(tmp_path, toml="[extensions]\nnames = []").extensions == ()
    assert loaded(tmp_path).extensions == ()


@pytest.mark.parametrize(
    ("module", "point", "said"),
    [
        (BELL, "bell = bells_module:Bells", "'bell' of bells 1.2 cannot be loaded: AttributeError: module"),
        ("import nothing_of_this_name", "bell = bells_module:Bell", "ModuleNotFoundError: No module named 'nothing_"),
        ("1 / 0", "bell = bells_module:Bell", "ZeroDivisionError: division by zero; install another version"),
        (BELL, "bell = bells_module:number", "'bell' of bells 1.2: extensions: 3 is no leadsman.Extension"),
        (BELL, "bell = bells_module:Other", "'bell' of bells 1.2 calls itself 'other'; install another version"),
        (BELL, "bells = bells_module:Bell", "no installed package has the extension 'bell'; did you mean 'bells'?"),
    ],
)
def test_a_broken_extension_is_one_error_with_its_package_and_what_to_do(monkeypatch, tmp_path, module, point, said):
    install(monkeypatch, tmp_path, "bells", module, point)

    with pytest.raises(ConfigurationError) as raised:
        loaded(tmp_path, toml="[extensions]\nnames = ['bell']")

    assert str(raised.value).startswith("extensions.names: ")
    assert said in str(raised.value)
    assert "leadsman.toml line 2)" in str(raised.value)


def test_two_packages_with_one_extension_are_an_error_that_names_both(monkeypatch, tmp_path):
    install(monkeypatch, tmp_path, "bells", BELL, "bell = bells_module:Bell")
    install(monkeypatch, tmp_path, "gongs", BELL, "bell = gongs_module:Bell")

    with pytest.raises(ConfigurationError, match=r"bells 1\.2 and gongs 1\.2 both have an extension 'bell'; uninstall"):
        loaded(tmp_path, toml="[extensions]\nnames = ['bell']")


def test_an_extension_that_the_app_and_the_settings_name_is_there_twice(monkeypatch, tmp_path):
    install(monkeypatch, tmp_path, "bells", BELL, "bell = bells_module:Bell")

    with pytest.raises(ConfigurationError, match="two have the name 'bell'; leave out one"):
        loaded(tmp_path, made("bell", None), toml="[extensions]\nnames = ['bell']")


def test_an_app_with_a_setting_of_the_name_extensions_keeps_it(tmp_path):
    class Settings(BaseModel):
        extensions: list[str] = []

    assert loaded(tmp_path, toml="extensions = ['bell']", settings=Settings).extensions == ()
