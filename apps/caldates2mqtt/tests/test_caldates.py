import time

import pytest

from caldates2mqtt import app
from leadsman import RetryRequested
from leadsman.core.settings.sources import Where
from leadsman.errors import ConfigurationError, DeviceUnavailable
from leadsman.testing import CalDavTwin, Harness
from leadsman_rigs.dav import Proxy, event

SETTINGS = {
    "servers": {"home": {"url": "https://x.invalid", "zone": "Europe/Berlin"}},
    "calendars": {"waste": {"calendar": "Waste"}},
}

ACCOUNT = {"username": "ann", "password": "secret"}


@pytest.fixture
def dates():
    """The app in virtual time, from 2026-01-01 on, with its twin."""
    with Harness(app, settings=SETTINGS, twins=True) as harness:
        harness.twin = harness.adapter(CalDavTwin)
        yield harness


def test_whole_days_are_published_with_the_days_left(dates):
    dates.twin.texts["Waste"].append(event("m", "SUMMARY:Meeting", "DTSTART:20260102T090000Z"))
    dates.twin.texts["Waste"].append(event("n", "SUMMARY: ", "DTSTART;VALUE=DATE:20260102"))
    dates.run("3h")

    assert dates.states("waste")[-1] == {
        "events": [
            {"title": "Paper bin", "date": "2026-01-07", "days_left": 6},
            {"title": "Paper bin", "date": "2026-01-14", "days_left": 13},
        ],
        "days_left": 6,
    }


def test_a_whole_day_of_exchange_is_a_whole_day(dates):
    """sabre-io/vobject#95; and with Outlook's mark, from midnight to midnight."""
    dates.twin.texts["Waste"] = [
        event("e", "SUMMARY:Leave", "DTSTART;VALUE=DATE;TZID=Europe/Brussels:20260103"),
        event(
            *("o", "SUMMARY:Trip", "DTSTART:20260103T230000Z", "DTEND:20260104T230000Z"),
            "X-MICROSOFT-CDO-ALLDAYEVENT:TRUE",
        ),
    ]
    dates.run("3h")

    assert dates.states("waste")[-1]["events"] == [
        {"title": "Leave", "date": "2026-01-03", "days_left": 2},
        {"title": "Trip", "date": "2026-01-04", "days_left": 3},
    ]


def test_more_may_be_asked_for_once(dates):
    dates.run("1s")
    dates.broker.send("caldates2mqtt/waste/set", {"entries": 3, "days": 60})
    dates.run("10s")
    assert len(dates.states("waste")[-1]["events"]) == 3

    dates.broker.send("caldates2mqtt/waste/set", {"days": 1000})
    dates.run("10s")
    assert "365" in dates.broker.messages("caldates2mqtt/waste/set/result")[-1].json["error"]


def test_a_calendar_without_anything_says_so(dates):
    dates.twin.texts["Waste"].clear()
    dates.run("3h")

    assert dates.states("waste")[-1] == {"events": [], "days_left": None}


def test_a_virtual_day_with_a_server_that_asks_for_rests_is_no_outage(dates):
    dates.at("5h", lambda: dates.twin.fail(RetryRequested("2m", "503")))
    dates.at("5h30m", lambda: dates.twin.fail(None))
    dates.run("24h")

    times = [message.at for message in dates.broker.messages("caldates2mqtt/waste/state")]
    assert dates.errors("waste") == []
    assert any(5.5 * 3600 <= at <= 5.5 * 3600 + 125 for at in times)  # the poll of 6 h in Berlin


def test_a_real_server_is_read_through_a_real_fault(radicale):
    with Proxy(radicale.port) as proxy:
        radicale.calendar("waste", "Waste")
        radicale.add("waste", "bin", "SUMMARY:Glass", "DTSTART;VALUE=DATE:20260105")
        server = ACCOUNT | {"url": proxy.url, "zone": "Europe/Berlin"}
        with Harness(app, settings=SETTINGS | {"servers": {"home": server}}) as harness:
            proxy.fault = 500
            harness.run("5s")
            assert harness.states("waste") == []
            proxy.fault = None
            harness.run("2m")
            assert harness.states("waste")[-1]["events"] == [{"title": "Glass", "date": "2026-01-05", "days_left": 4}]


def test_two_real_servers_are_read_each_with_its_account(radicale):
    radicale.calendar("waste", "Waste")
    radicale.add("waste", "bin", "SUMMARY:Glass", "DTSTART;VALUE=DATE:20260105")
    with Proxy(radicale.port) as home, Proxy(radicale.port) as club:
        servers = {
            "home": ACCOUNT | {"url": home.url, "zone": "Europe/Berlin"},
            "club": ACCOUNT | {"url": club.url, "zone": "Europe/Berlin"},
        }
        calendars = {name: {"calendar": "Waste", "server": name} for name in servers}
        with Harness(app, settings={"servers": servers, "calendars": calendars}) as harness:
            home.fault = 500
            harness.run("30s")
            assert harness.states("home") == []
            assert [event["title"] for event in harness.states("club")[-1]["events"]] == ["Glass"]
            assert harness.status()["devices"]["club"]["status"] == "ok"
            home.fault = None
            harness.run("2m")
            assert [event["title"] for event in harness.states("home")[-1]["events"]] == ["Glass"]


def test_a_password_may_be_a_secret_file(tmp_path):
    (tmp_path / "caldates2mqtt_servers__home__password").write_text("secret\n")
    with app.unloaded():
        app.load(Where({"CALDATES2MQTT_SERVERS__HOME__URL": "https://c.example"}, tmp_path, secrets=tmp_path))
        assert app.settings.servers["home"].password.get_secret_value() == "secret"


def test_each_calendar_is_read_from_its_server_and_one_server_that_is_away_holds_up_no_other():
    servers = {"home": {"url": "https://x.invalid"}, "club": {"url": "https://y.invalid"}}
    calendars = {"waste": {"calendar": "Waste", "server": "home"}, "games": {"calendar": "Games", "server": "club"}}
    with Harness(app, settings={"servers": servers, "calendars": calendars}, twins=True) as harness:
        home, club = (harness.adapter(CalDavTwin, name) for name in ("home", "club"))
        club.texts["Games"][:] = [event("g", "SUMMARY:Match", "DTSTART;VALUE=DATE:20260103")]
        home.fail(DeviceUnavailable("away"))
        harness.run("3h")

        assert harness.states("waste") == []
        assert harness.states("games")[-1]["events"][0]["title"] == "Match"
        assert list(home.texts) == ["Waste"]
        assert list(club.texts) == ["Games"]
        home.fail(None)
        harness.run("2m")
        assert harness.states("waste")[-1]["events"][0]["title"] == "Paper bin"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"calendars.waste.server": "hme"}, "Settings: calendars.waste.server is 'hme'; write home"),
        ({"servers.club.url": "https://y.invalid"}, "calendars.waste.server is ''; write home, club"),
        (
            {"servers.home.password": "a", "servers.home.password_file": "/b"},
            "servers.home: password and password_file .*write only one",
        ),
        ({"servers.home.timeout": 300}, "servers.home.timeout"),
        ({"calendars.waste.schedule": "always"}, "always"),
    ],
)
def test_a_setting_that_makes_no_sense_is_told_at_the_start(settings, message):
    before = {"servers.home.url": "https://x.invalid", "calendars.waste.calendar": "Waste"}
    with pytest.raises(ConfigurationError, match=message), app.unloaded():
        app.load(Where.nowhere(before | settings))


def test_an_empty_message_reads_again_at_most_once_a_minute(dates):
    dates.run("2m")
    before = len(dates.states("waste"))
    dates.twin.texts["Waste"].append(event("g", "SUMMARY:Glass", "DTSTART;VALUE=DATE:20260102"))
    for _ in range(5):
        dates.broker.send("caldates2mqtt/waste/set", b"")
        dates.run("10s")
    assert dates.states("waste")[-1]["events"][0]["title"] == "Glass"
    assert len(dates.states("waste")) == before + 1
    dates.run("30s")
    assert len(dates.states("waste")) == before + 2
    assert dates.broker.messages("caldates2mqtt/waste/set/result")[-1].json["status"] == "ok"


def test_a_schedule_is_in_the_zone_in_which_the_days_of_its_server_begin():
    settings = SETTINGS | {"calendars": {"waste": {"calendar": "Waste", "schedule": "5 0 * * *"}}}
    with Harness(app, settings=settings, twins=True) as harness:
        harness.run("24h")

        read = [message.at for message in harness.broker.messages("caldates2mqtt/waste/state")]
        assert read[1] == pytest.approx(23 * 3600 + 5 * 60, abs=60)
        assert [state["days_left"] for state in harness.states("waste")] == [6, 5]


def test_a_title_is_cut_where_no_display_would_show_it(dates):
    dates.twin.texts["Waste"][:] = [event("l", "SUMMARY:" + "x" * 300, "DTSTART;VALUE=DATE:20260102")]
    dates.run("3h")

    assert dates.states("waste")[-1]["events"][0]["title"] == "x" * 100


def test_home_assistant_shows_the_number_of_events_and_has_them_as_an_attribute():
    with Harness(app, settings=SETTINGS | {"discovery.convention": "homeassistant"}, twins=True) as harness:
        harness.run("1m")

        (found,) = harness.broker.messages("homeassistant/device/caldates2mqtt/waste/config")
        shown = {name: each for name, each in found.json["cmps"].items() if not name.startswith("_")}
        assert list(shown) == ["events", "days_left"]
        assert shown["events"]["val_tpl"].endswith("value_json.get('events')|count}}")
        assert "'events': value_json.get('events')" in shown["events"]["json_attr_tpl"]


def test_a_real_server_is_published_through_everything_it_does_wrong(program, mosquitto, listen, radicale):
    listener, topic = listen(mosquitto.port), "caldates2mqtt/waste/state"
    with Proxy(radicale.port) as proxy:
        radicale.calendar("waste", "Waste")
        radicale.add("waste", "bin", "SUMMARY:Glass", "DTSTART;VALUE=DATE:20260105", "RRULE:FREQ=DAILY")
        calendars = '{"waste": {"calendar": "Waste"}}'
        server = {f"servers__home__{name}": value for name, value in ACCOUNT.items()} | {"calendars": calendars}
        running = program(
            *("caldates2mqtt", "--mqtt", mosquitto.url, "--set", "devices.waste.throttle=1s"),
            servers__home__url=proxy.url,
            **server,
        )
        listener.wait_for("caldates2mqtt/status", 2)
        for fault in (None, 500, "html", "cut", b"\xff", None):
            proxy.fault = fault
            before = len(listener.on(topic))
            listener.client.publish("caldates2mqtt/waste/get", b"", 1)
            if fault is None:
                listener.wait_for(topic, before + 1)
            time.sleep(1.5)
        radicale.add("waste", "paper", "SUMMARY:Paper", "DTSTART;VALUE=DATE:20260105", "RRULE:FREQ=DAILY")
        listener.client.publish("caldates2mqtt/waste/get", b"", 1)
        listener.wait_for(topic, where=lambda message: b"Paper" in message.payload)
        assert "secret" not in running.log
        assert running.end()[0] == 0


def test_the_demo_needs_neither_server_nor_broker(demonstrated):
    assert '"title":"Paper bin"' in demonstrated("caldates2mqtt", 6)
