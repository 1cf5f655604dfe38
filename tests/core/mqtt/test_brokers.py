"""A list of brokers: how it is written, and what is wrong with it."""

import json
import re

import pytest

from leadsman import App, Broker, Brokers, command_line
from leadsman.core.settings.sources import Where
from leadsman.errors import ConfigurationError, InvalidValue, SettingsError

BOTH = [Broker("a"), Broker("b", 1884)]


@pytest.mark.parametrize(
    "given",
    [
        "mqtt://a,mqtt://b:1884",
        "mqtt://a, mqtt://b:1884",
        " mqtt://a\nmqtt://b:1884\n",
        ["mqtt://a", "mqtt://b:1884"],
        ("mqtt://a", Broker("b", 1884)),
        Brokers(*BOTH),
    ],
)
def test_several_brokers_are_written_as_a_list_or_with_commas(given):
    found = Brokers.of(given)

    assert list(found) == BOTH
    assert (found.primary, len(found), str(found)) == (BOTH[0], 2, "mqtt://a:1883, mqtt://b:1884")


def test_one_broker_is_a_list_of_one():
    assert list(Brokers.of("mqtt://a")) == list(Brokers.of(Broker("a"))) == [Broker("a")]


def test_a_comma_in_a_password_does_not_end_the_url():
    (broker,) = Brokers.of("mqtt://ann:a,b@host")

    assert broker.password == "a,b"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["mqtt://a", "b"], "broker 2 of 2: the broker's URL has no mqtt:// before the host; write one such as"),
        (["mqtt://a", 7], "broker 2 of 2: the broker has the type int; write a URL"),
        ("http://u:hunter2@a,mqtt://b", "broker 1 of 2: the broker's URL begins with 'http'; write mqtt://"),
        ([], "the list of brokers is empty; write a URL such as"),
        (
            ["mqtt://a", "mqtt://b", "mqtt://u:hunter2@a"],
            "broker 3 of 3 is mqtt://a:1883 again; write each broker once",
        ),
    ],
)
def test_an_error_says_which_broker_is_wrong_and_what_to_write(given, message):
    with pytest.raises(ConfigurationError) as caught:
        Brokers.of(given)

    assert message in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_all_wrong_brokers_are_named_together():
    with pytest.raises(SettingsError, match=r"broker 1 of 3: .*\nbroker 3 of 3: "):
        Brokers.of(["a", "mqtt://b", "c"])


def test_two_paths_of_a_websocket_are_two_brokers():
    assert len(Brokers.of(["ws://a/one", "ws://a/two"])) == 2


def test_no_password_is_shown():
    found = Brokers.of(["mqtt://u:hunter2@a", "mqtt://u:hunter2@b"])

    assert "hunter2" not in f"{found} {found!r}"


@pytest.fixture
def loaded(tmp_path):
    """An app with these keys in the section ``mqtt`` of its settings file."""

    def loaded(**values):
        (tmp_path / "leadsman.toml").write_text(
            "[mqtt]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())
        )
        app = App("house")
        app.load(Where({}, tmp_path, secrets=tmp_path))
        return app

    return loaded


@pytest.fixture
def brokers_of(loaded):
    """The brokers of such an app."""
    return lambda **values: loaded(**values).brokers


def test_the_credentials_of_the_settings_join_each_url_that_has_none(brokers_of):
    found = brokers_of(url=["mqtt://a", "mqtt://u:q@b"], username="ann", password="p")

    assert [(each.username, each.password) for each in found] == [("ann", "p"), ("u", "q")]


def test_each_fault_of_a_list_in_the_settings_has_its_origin(brokers_of):
    with pytest.raises(SettingsError) as caught:
        brokers_of(url=["a", "mqtt://b", "mqtt://"])
    first, second = str(caught.value).splitlines()
    assert first.startswith("broker 1 of 3: ")
    assert second.startswith("broker 3 of 3: ")
    assert first.endswith("/leadsman.toml line 2)")
    assert second.endswith("/leadsman.toml line 2)")


def test_a_broker_that_is_listed_twice_is_reported_with_its_origin(brokers_of):
    with pytest.raises(InvalidValue, match=r"broker 2 of 2 is mqtt://a:1883 again; .*\(from .*/leadsman.toml line 2\)"):
        brokers_of(url=["mqtt://a", "mqtt://a"])


@pytest.mark.parametrize("value", ["mqtt://u:hunter2@a,mqtt://u:hunter2@b", ["mqtt://u:hunter2@a", "mqtt://b"]])
def test_the_settings_show_each_url_without_its_password(value, loaded):
    (text,) = [row.value for row in loaded(url=value).setup.rows if row.path == "mqtt.url"]

    assert "hunter2" not in text
    assert "@a" in text
    assert "b" in text


def test_the_files_of_all_brokers_are_checked(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    urls = [f"mqtts://{host}?ca={tmp_path}/{host}.pem" for host in "ab"]

    assert command_line(App("house", mqtt=urls))(["--check"]) != 0

    assert re.search(r"mqtts://a:8883: .*a\.pem.*\n.*mqtts://b:8883: .*b\.pem", capsys.readouterr().err)
