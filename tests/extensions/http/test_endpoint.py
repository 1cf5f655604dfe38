"""The section ``http`` of the settings: where the endpoint is, and who may use it."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from leadsman import App
from leadsman.core.settings.load import load
from leadsman.core.settings.sources import Where
from leadsman.errors import ConfigurationError
from leadsman.extensions.http.settings import Endpoint

TOKEN = "0123456789abcdef"


def endpoint(**values):
    """The endpoint of an app with these settings, of which the token is in a file of secrets."""
    app = App("house")
    with TemporaryDirectory() as directory:
        if "token" in values:
            Path(directory, "HTTP__TOKEN").write_text(values.pop("token"))
        flags = {f"http.{key}": value for key, value in values.items()}
        app.load(Where({}, Path(directory), None, flags, Path(directory)))
    return app.setup.sections.of(Endpoint)


@pytest.mark.parametrize(
    ("bind", "shown"),
    [
        ("127.0.0.1:9000", "http://127.0.0.1:9000"),
        ("127.0.0.1", "http://127.0.0.1:8080"),
        ("localhost:0", "http://127.0.0.1:0"),
        ("[::1]:9000", "http://[::1]:9000"),
        ("[::1]", "http://[::1]:8080"),
        ("::1", "http://[::1]:8080"),
        ("9000", "http://127.0.0.1:9000"),
        (9000, "http://127.0.0.1:9000"),
        ("unix:/run/house/http.sock", "unix:/run/house/http.sock"),
    ],
)
def test_an_address_of_this_machine_needs_no_token(bind, shown):
    found = endpoint(bind=bind)

    assert (str(found), found.is_local, found.token) == (shown, True, None)


@pytest.mark.parametrize("bind", ["0.0.0.0:8080", "192.0.2.7:8080", "[::]:8080", "[2001:db8::1]:80"])
def test_an_address_that_others_reach_needs_a_token(bind):
    with pytest.raises(ConfigurationError, match=r"http.bind: other machines can reach .* http.token_file .*\(from"):
        endpoint(bind=bind)

    assert endpoint(bind=bind, token=TOKEN).token == TOKEN


@pytest.mark.parametrize(
    ("bind", "said"),
    [
        ("house.lan:8080", "'house.lan' is no IP address"),
        (":8080", "'' is no IP address"),
        ("127.0.0.1:http", "'http' is not a port"),
        ("127.0.0.1:70000", "'70000' is not a port"),
        ("[::1", "is no IP address"),
        ("unix:http.sock", "absolute path"),
        ("unix:/" + "x" * 200, "absolute path"),
        (True, "write text such as"),
        (["127.0.0.1"], "write text such as"),
        (70000, "is not a port"),
    ],
)
def test_a_wrong_address_is_named_with_what_to_write(bind, said):
    with pytest.raises(ConfigurationError, match=said):
        endpoint(bind=bind)


@given(st.text(max_size=60))
def test_any_text_is_an_address_or_a_named_error(text):
    said = ""
    try:
        endpoint(bind=text)
    except ConfigurationError as error:
        said = str(error)

    assert said == "" or said.startswith("http.bind: ")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"token": "short"}, "http.token: the token has 5 characters"),
        ({"token": "0123456789 abcdef"}, "characters that a bearer token must not have"),
        ({"token_file": "/nowhere/token"}, "http.token_file: /nowhere/token cannot be read"),
        ({"token_file": 5}, "write the path of a file"),
        ({"token_file": "a\0b"}, "write the path of a file"),
        ({"hosts": 5}, "http.hosts: write a list of host names"),
        ({"hosts": ["house.lan:8080"]}, "'house.lan:8080' is not a host name"),
    ],
)
def test_other_wrong_values_are_named_too(values, said):
    with pytest.raises(ConfigurationError, match=said):
        endpoint(bind="127.0.0.1", **values)


def test_all_faults_are_reported_together():
    with pytest.raises(ConfigurationError) as wrong:
        endpoint(bind="x", token="short", hosts=5)

    assert len(str(wrong.value).splitlines()) == 3


def test_without_an_address_there_is_none():
    assert endpoint() is endpoint(bind="") is endpoint(token=TOKEN) is None


def where(tmp_path, *, flags=None, file="", **environment):
    (tmp_path / "leadsman.toml").write_text(file)
    return Where(environment, tmp_path, None, flags or {}, tmp_path / "secrets")


def setup(tmp_path, **options):
    app = App("house")
    app.load(where(tmp_path, **options))
    return app.setup


def test_it_is_read_from_a_file_from_variables_and_from_flags(tmp_path):
    file = '[http]\nbind = "127.0.0.1:1"\nhosts = ["house.lan"]'

    assert str(setup(tmp_path, file=file).sections.of(Endpoint)) == "http://127.0.0.1:1"
    assert str(setup(tmp_path, file=file, HTTP__BIND="127.0.0.1:2").sections.of(Endpoint)) == "http://127.0.0.1:2"
    flagged = setup(tmp_path, file=file, HTTP__BIND="2", flags={"http.bind": "3"}).sections.of(Endpoint)
    assert (str(flagged), flagged.flag, flagged.hosts) == ("http://127.0.0.1:3", True, {"house.lan"})
    assert setup(tmp_path, HTTP__BIND="1", HTTP__HOSTS="a.lan, B.lan").sections.of(Endpoint).hosts == {"a.lan", "b.lan"}


def test_a_token_comes_from_a_file_and_is_never_shown(tmp_path):
    secret = tmp_path / "token"
    secret.write_text(f"{TOKEN}\n")
    by_variable = setup(tmp_path, HTTP__BIND="0.0.0.0", HTTP__TOKEN_FILE=str(secret))
    by_setting = setup(tmp_path, file=f'[http]\nbind = "0.0.0.0"\ntoken_file = "{secret}"')

    assert by_variable.sections.of(Endpoint).token == by_setting.sections.of(Endpoint).token == TOKEN
    assert TOKEN not in str(by_variable.rows) + str(by_setting.rows)


@pytest.mark.parametrize(
    ("file", "environment", "flags"),
    [
        (f'[http]\nbind = "1"\ntoken = "{TOKEN}"', {}, {}),
        ("", {"HTTP__BIND": "1", "HTTP__TOKEN": TOKEN}, {}),
        ("", {"HTTP__BIND": "1"}, {"http.token": TOKEN}),
    ],
)
def test_a_token_that_others_could_read_is_refused(tmp_path, file, environment, flags):
    with pytest.raises(ConfigurationError, match="a token belongs in a file") as wrong:
        setup(tmp_path, file=file, flags=flags, **environment)

    assert TOKEN not in str(wrong.value)


def test_a_wrong_key_is_named_with_what_was_meant(tmp_path):
    with pytest.raises(ConfigurationError, match=r"http.bnid: unknown .*; did you mean 'bind'"):
        setup(tmp_path, file='[http]\nbnid = "1"')
    with pytest.raises(ConfigurationError, match=r"http: it must be a section; write \[http\] and bind"):
        setup(tmp_path, file="http = 1")


def test_a_section_of_the_apps_own_with_this_name_stays_its_own(tmp_path):
    class Http(BaseModel):
        url: str

    class Settings(BaseModel):
        http: Http

    found = load("house", Settings, where(tmp_path, file='[http]\nurl = "http://device"'))

    assert (found.settings.http.url, found.sections["http"]) == ("http://device", {})


def app_with(**flags):
    app = App("house", twins=lambda settings: ())
    app.load(Where.nowhere(flags))
    return app


def test_an_app_has_none_unless_it_is_set_and_a_dry_run_only_what_the_command_line_asks_for():
    in_file = App("house")
    in_file.load(Where.nowhere({}, {"HTTP__BIND": "8080"}))
    by_flag = app_with(**{"http.bind": "8080"})

    assert app_with().setup.sections.of(Endpoint) is None
    assert (
        str(in_file.setup.sections.of(Endpoint)) == str(by_flag.setup.sections.of(Endpoint)) == "http://127.0.0.1:8080"
    )
    in_file.rehearse()
    by_flag.rehearse()
    assert in_file.setup.sections.of(Endpoint) is None
    assert by_flag.setup.sections.of(Endpoint) is not None


def test_a_missing_library_is_named_with_what_to_type(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    app_with().setup.check_installed()
    with pytest.raises(ConfigurationError, match=r'pip install "leadsman\[http\]"'):
        app_with(**{"http.bind": "8080"}).setup.check_installed()
