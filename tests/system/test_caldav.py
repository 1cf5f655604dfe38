"""The real client on a real server, with faults in between; and the twin, which must do the same."""

import asyncio
import contextlib
import time
from datetime import date, datetime
from types import SimpleNamespace
from zoneinfo import ZoneInfo

import psutil
import pytest

from leadsman import RetryRequested
from leadsman.adapters.caldav import CalDav, calendar
from leadsman.errors import (
    DeviceTimeout,
    DeviceUnavailable,
    GarbledData,
    InvalidType,
    InvalidValue,
    PermanentError,
    TransientError,
)
from leadsman.testing import CalDavTwin
from leadsman_rigs.dav import SERVERS, Proxy, Radicale, event, multistatus
from leadsman_rigs.watched import on

BERLIN = ZoneInfo("Europe/Berlin")
FIRST = date(2026, 10, 23)
EVENTS = {
    "meeting": [
        "SUMMARY:Meeting",
        "DTSTART;TZID=Europe/Berlin:20261023T090000",
        "DTEND;TZID=Europe/Berlin:20261023T100000",
    ],
    "bins": ["SUMMARY:Paper bin ", "DTSTART;VALUE=DATE:20261026", "DTEND;VALUE=DATE:20261027"],
    "heating": [
        "SUMMARY:Heating",
        "DTSTART;TZID=Europe/Berlin:20261019T063000",
        "RRULE:FREQ=DAILY;COUNT=12",
        "EXDATE;TZID=Europe/Berlin:20261024T063000",
    ],
    "utc": ["SUMMARY:Call", "DTSTART:20261024T220000Z", "DURATION:PT30M", "LOCATION:Lisbon"],
    "floating": ["SUMMARY:Lunch", "DTSTART:20261024T120000", "DTEND:20261024T130000"],
    "off": ["SUMMARY:Called off", "DTSTART;VALUE=DATE:20261024", "STATUS:CANCELLED"],
}
RECURRING = {
    "paper": ["SUMMARY:Paper", "DTSTART;VALUE=DATE:20260105", "RRULE:FREQ=WEEKLY;INTERVAL=2"],
    "glass": ["SUMMARY:Glass", "DTSTART;VALUE=DATE:20260106", "RDATE;VALUE=DATE:20261027"],
    "birthday": ["SUMMARY:Ann 36", "DTSTART;VALUE=DATE:19901026", "RRULE:FREQ=YEARLY"],
    "practice": [
        "SUMMARY:Practice",
        "DTSTART;TZID=Europe/Berlin:20260204T180000",
        "DTEND;TZID=Europe/Berlin:20260204T190000",
        "RRULE:FREQ=MONTHLY;BYDAY=-1SU",
    ],
    "long over": ["SUMMARY:Over", "DTSTART;VALUE=DATE:20260105", "RRULE:FREQ=WEEKLY;COUNT=3"],
    "once": ["SUMMARY:Garden", "DTSTART;VALUE=DATE:20261027"],
    "once, long ago": ["SUMMARY:Attic", "DTSTART;VALUE=DATE:20250105"],
}
"""What several servers leave out of a search by time, among events that they find."""
CALENDARS = {"Home & bins": EVENTS, "Waste": RECURRING}


def fill(server):
    for path, (title, events) in zip(("home", "waste"), CALENDARS.items(), strict=True):
        server.calendar(path, title)
        for uid, lines in events.items():
            server.add(path, uid.replace(" ", "-").replace(",", ""), *lines)


@pytest.fixture(scope="module")
def server():
    with Radicale() as radicale:
        fill(radicale)
        yield radicale


@pytest.fixture(scope="module", params=[*SERVERS, None], ids=lambda kind: "twin" if kind is None else kind.name)
def each_server(request):
    """Each server, and None for the twin."""
    if request.param is None:
        yield None
        return
    with request.param() as server:
        fill(server)
        yield server


@pytest.fixture
def proxy(server):
    with Proxy(server.port) as proxy:
        yield proxy


class TestBoth:
    """What the real adapter and its twin both do."""

    @pytest.fixture
    def there(self, each_server):
        if each_server is None:
            texts = {
                title: [event(uid, *lines) for uid, lines in events.items()] for title, events in CALENDARS.items()
            }
            twin = CalDavTwin(texts, zone="Europe/Berlin")
            yield SimpleNamespace(
                adapter=twin,
                adapter_for_all=CalDavTwin(texts, zone="Europe/Berlin", search="all"),
                add=lambda uid, *lines: texts_of(twin).append(event(uid, *lines)),
                remove=lambda uid: texts_of(twin).pop(),
                asked=lambda: twin._store.searches,
            )
        else:
            with Proxy(each_server.port) as proxy:
                adapter = client(proxy.url)
                yield SimpleNamespace(
                    adapter=adapter,
                    adapter_for_all=client(proxy.url, search="all"),
                    add=lambda uid, *lines: each_server.add("home", uid, *lines),
                    remove=lambda uid: each_server.remove("home", uid),
                    asked=lambda: proxy.asked.count("REPORT"),
                )

    def test_what_takes_place_comes_in_order_with_days_moments_and_floating_times_apart(self, there):
        found = on(there.adapter, lambda calendars: calendars.events("Home & bins", start=FIRST, days=5))

        assert [(each.summary, each.start, each.all_day) for each in found] == [
            ("Heating", datetime(2026, 10, 23, 6, 30, tzinfo=BERLIN), False),
            ("Meeting", datetime(2026, 10, 23, 9, 0, tzinfo=BERLIN), False),
            ("Lunch", datetime(2026, 10, 24, 12, 0), False),
            ("Call", datetime(2026, 10, 25, 0, 0, tzinfo=BERLIN), False),
            ("Heating", datetime(2026, 10, 25, 6, 30, tzinfo=BERLIN), False),
            ("Paper bin", date(2026, 10, 26), True),
            ("Heating", datetime(2026, 10, 26, 6, 30, tzinfo=BERLIN), False),
            ("Heating", datetime(2026, 10, 27, 6, 30, tzinfo=BERLIN), False),
        ]
        assert found[2].start.tzinfo is None
        assert found[3].location == "Lisbon"
        assert found[5].end == date(2026, 10, 27)
        assert found[4].start.utcoffset().total_seconds() == 3600  # after the clocks went back

    def test_recurring_events_come_from_each_server(self, there):
        found = on(there.adapter, lambda calendars: calendars.events("Waste", start=FIRST, days=5))

        assert [(each.summary, each.start) for each in found] == [
            ("Practice", datetime(2026, 10, 25, 18, 0, tzinfo=BERLIN)),
            ("Ann 36", date(2026, 10, 26)),
            ("Paper", date(2026, 10, 26)),
            ("Garden", date(2026, 10, 27)),
            ("Glass", date(2026, 10, 27)),
        ]

    def test_a_small_calendar_is_requested_once_whatever_the_days(self, there):
        async def scenario(calendars):
            await calendars.events("Waste", start=FIRST, days=5)
            before = there.asked()
            assert len(await calendars.events("Waste", start=date(2027, 10, 25), days=10)) == 3
            assert there.asked() - before <= 1
            assert calendars.health["read_whole"] == 1

        on(there.adapter, scenario)

    def test_a_large_calendar_is_searched_by_time_unless_it_is_to_be_read_whole(self, there, monkeypatch):
        monkeypatch.setattr(calendar, "MAX_OBJECTS", len(RECURRING) - 1)

        async def scenario(calendars):
            titles = {each.summary for each in await calendars.events("Waste", start=FIRST, days=5)}
            return titles, calendars.health["read_whole"]

        titles, read_whole = on(there.adapter, scenario)
        assert "Garden" in titles
        assert read_whole == 0

        titles, read_whole = on(there.adapter_for_all, scenario)
        assert titles == {"Practice", "Ann 36", "Paper", "Garden", "Glass"}
        assert read_whole == 1

    def test_a_calendar_that_was_small_is_still_read_whole_after_an_object_changed(self, there, monkeypatch):
        monkeypatch.setattr(calendar, "MAX_OBJECTS", len(EVENTS) + 1)

        async def scenario(calendars):
            await asyncio.to_thread(there.add, "new", "SUMMARY:New", "DTSTART;VALUE=DATE:20261025")
            await calendars.events("Home & bins", start=FIRST, days=5)
            await asyncio.to_thread(there.remove, "new")
            await asyncio.to_thread(there.add, "new", "SUMMARY:Newer", "DTSTART;VALUE=DATE:20261025")
            titles = {each.summary for each in await calendars.events("Home & bins", start=FIRST, days=5)}
            await asyncio.to_thread(there.remove, "new")
            return "Newer" in titles, calendars.health["read_whole"]

        assert on(there.adapter, scenario) == (True, 1)

    def test_only_what_changed_is_asked_for_again(self, there):
        async def scenario(calendars):
            async def titles():
                return {each.summary for each in await calendars.events("Home & bins", start=FIRST, days=5)}

            assert "New" not in await titles()
            before = there.asked()
            assert "New" not in await titles()
            assert there.asked() - before <= 1
            await asyncio.to_thread(there.add, "new", "SUMMARY:New", "DTSTART;VALUE=DATE:20261025")
            assert "New" in await titles()
            await asyncio.to_thread(there.remove, "new")
            assert "New" not in await titles()

        on(there.adapter, scenario)

    def test_calendars_have_names(self, there):
        assert sorted(on(there.adapter, lambda calendars: calendars.calendars())) == ["Home & bins", "Waste"]

    def test_a_calendar_that_is_not_there_is_a_permanent_error(self, there):
        with pytest.raises(PermanentError, match="no calendar 'Hom & bins'; did you mean 'Home & bins'"):
            on(there.adapter, lambda calendars: calendars.events("Hom & bins"))

    def test_it_may_be_probed_reset_and_entered_again(self, there):
        async def scenario(calendars):
            await calendars.probe()
            await calendars.reset()
            return await calendars.events("Home & bins", start=FIRST, days=1)

        assert len(on(there.adapter, scenario)) == len(on(there.adapter, scenario)) == 2

    def test_a_wrong_question_is_refused(self, there):
        for words in ({"days": 0}, {"days": True}, {"days": 10**6}, {"zone": "Europe/Berln"}):
            with pytest.raises(InvalidValue):
                on(there.adapter, lambda calendars, words=words: calendars.events("Home & bins", **words))


ODD = {
    "brussels": ["SUMMARY:Leave", "DTSTART;VALUE=DATE;TZID=Europe/Brussels:20261026"],
    "exdate": ["SUMMARY:Bins", "DTSTART;VALUE=DATE:20261024", "RRULE:FREQ=DAILY;INTERVAL=0;COUNT=2", "EXDATE:"],
    "outlook": ["SUMMARY:Call", "DTSTART;TZID=tzone://Microsoft/Utc:20261023T090000"],
}


@pytest.fixture(params=SERVERS, ids=lambda kind: kind.name)
def own_server(request):
    with request.param() as server:
        yield server


class TestCollections:
    def test_a_task_list_of_the_same_name_is_left_out(self, own_server):
        """home-assistant/core#71461: a server may list either first; RFC 4791 §5.2.3 tells them apart."""
        for path, kind in (("a", "VTODO"), ("b", "VEVENT"), ("c", "VTODO")):
            own_server.calendar(path, "Family", kind)
        own_server.calendar("d", "Chores", "VTODO")
        own_server.add("b", "party", "SUMMARY:Party", "DTSTART;VALUE=DATE:20261024")
        calendars = client(f"http://127.0.0.1:{own_server.port}")

        def titles():
            return [each.summary for each in on(calendars, lambda there: there.events("Family", start=FIRST))]

        if own_server.name == "xandikos-of-debian":  # version 0.2.8 says that each collection takes all kinds
            with pytest.raises(PermanentError, match="3 calendars are called 'Family'.* ann/calendars/b/"):
                titles()
            return
        assert titles() == ["Party"]
        assert on(calendars, lambda there: there.calendars()) == ["Family"]
        with pytest.raises(PermanentError, match="'Chores' .* is for tasks"):
            on(calendars, lambda there: there.events("Chores", start=FIRST))

    def test_two_calendars_of_one_name_are_an_error_with_their_paths_and_a_path_is_taken(self, own_server):
        for path in ("a", "b"):
            own_server.calendar(path, "Family")
            own_server.add(path, path, f"SUMMARY:{path}", "DTSTART;VALUE=DATE:20261024")
        calendars = client(f"http://127.0.0.1:{own_server.port}")

        with pytest.raises(
            PermanentError, match="2 calendars are called 'Family'; write the path of one of them"
        ) as no:
            on(calendars, lambda there: there.events("Family", start=FIRST))

        paths = sorted(on(calendars, lambda there: there.calendars()))
        assert len(paths) == 2
        for path, title in zip(paths, "ab", strict=True):
            assert path in str(no.value)
            found = on(calendars, lambda there, path=path: there.events(path, start=FIRST))
            assert [each.summary for each in found] == [title]

    def test_odd_objects_come_from_real_servers_as_they_were_put_there(self, own_server):
        own_server.calendar("odd", "Odd")
        for uid, lines in ODD.items():
            try:
                own_server.add("odd", uid, *lines)
            except AssertionError:  # this server takes no such object, so nobody has one on it
                continue
        own_server.add("odd", "good", "SUMMARY:Good", "DTSTART;VALUE=DATE:20261027")

        found = on(
            client(f"http://127.0.0.1:{own_server.port}"), lambda there: there.events("Odd", start=FIRST, days=5)
        )

        titles = [each.summary for each in found]
        assert "Good" in titles
        assert "Leave" in titles
        assert {each.all_day for each in found if each.summary in ("Leave", "Bins")} == {True}
        assert set(titles) <= {"Good", "Leave", "Bins", "Call"}


def texts_of(twin):
    return twin.texts["Home & bins"]


def client(url, **options):
    return CalDav(url, "ann", "secret", **{"zone": "Europe/Berlin", "timeout": 20.0, **options})


def ask(calendars):
    return calendars.events("ann/home/", start=FIRST, days=5)


@pytest.mark.parametrize(
    ("fault", "error", "message"),
    [
        (401, PermanentError, "check username, password"),
        (404, PermanentError, "check url and calendar"),
        (500, DeviceUnavailable, "asking for"),
        (429, RetryRequested, "asks for a pause"),
        (503, RetryRequested, "asks for a pause"),
        ("html", GarbledData, "maybe a web page"),
        ("cut", DeviceUnavailable, "asking for"),
        ("hang", DeviceTimeout, "no answer in time|took longer"),
        ("drip", DeviceTimeout, "took longer than 6s"),
        (b"\x00\xff not XML", GarbledData, "not a calendar"),
        (b"<?xml version='1.0'?><a>" + b"x" * 20_000_000 + b"</a>", GarbledData, "longer than 8 MiB"),
        (b"<multistatus xmlns='DAV:'>" + b"<a/>" * 100_000 + b"</multistatus>", GarbledData, "has 100,002 tags"),
    ],
    ids=["401", "404", "500", "429", "503", "html", "cut", "hang", "drip", "noise", "endless", "tags"],
)
def test_what_a_server_does_wrong_is_a_named_error_and_the_next_call_unharmed(proxy, fault, error, message):
    async def scenario(calendars):
        proxy.fault = fault
        before = time.perf_counter()
        with pytest.raises(error, match=message) as raised:
            await ask(calendars)
        assert time.perf_counter() - before < 15
        if error is RetryRequested:
            assert raised.value.delay == 120
        assert "secret" not in str(raised.value)
        proxy.fault = None
        assert len(await ask(calendars)) == 8

    on(client(proxy.url, timeout=2.0) if error is DeviceTimeout else client(proxy.url), scenario)


@pytest.mark.parametrize("fault", ["html", 500, 503, "cut"])
def test_what_a_server_does_wrong_is_not_taken_for_a_calendar_that_is_missing(proxy, fault):
    async def scenario(calendars):
        proxy.fault = fault
        with pytest.raises((TransientError, RetryRequested)):
            await calendars.events("Home & bins", start=FIRST, days=5)
        proxy.fault = None
        assert len(await calendars.events("Home & bins", start=FIRST, days=5)) == 8

    on(client(proxy.url), scenario)


def test_an_xml_bomb_costs_neither_time_nor_memory(proxy):
    laughs = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))
    bomb = f'<?xml version="1.0"?><!DOCTYPE l [<!ENTITY l0 "ha">{laughs}]><multistatus xmlns="DAV:">&l9;</multistatus>'

    async def scenario(calendars):
        proxy.fault = bomb.encode()
        before, memory = time.perf_counter(), psutil.Process().memory_info().rss
        with contextlib.suppress(GarbledData, DeviceUnavailable):
            await ask(calendars)
        assert time.perf_counter() - before < 15
        assert psutil.Process().memory_info().rss - memory < 64 * 2**20  # unfolded it is 2 GB

    on(client(proxy.url), scenario)


@pytest.mark.parametrize(
    "lines",
    [
        ("DTSTART:20260101T000000Z", "RRULE:FREQ=SECONDLY;UNTIL=21260101T000000Z"),
        ("DTSTART:20260101T000000Z", "RRULE:FREQ=HOURLY;BYMINUTE=" + ",".join(map(str, range(60)))),
        ("DTSTART:20260101T000000Z", "RRULE:FREQ=EVERSO"),
        ("DTSTART:19000101T000000Z", "RRULE:FREQ=HOURLY"),
        ("DTSTART:00010101T000000Z", "RRULE:FREQ=DAILY"),
        ("DTSTART:20260101T000000Z", "RRULE:FREQ=HOURLY;BYMONTH=2;BYMONTHDAY=30"),
        ("DTSTART:20260101T000000Z", "RRULE:FREQ=DAILY;BYMONTH=2;BYMONTHDAY=-30"),
        ("DTSTART:not a date",),
        ("SUMMARY:no start",),
    ],
    ids=[
        "every second",
        "every minute by the hour",
        "no frequency",
        "hours since 1900",
        "days since Christ",
        "no such hour",
        "no such day",
        "no date",
        "no start",
    ],
)
def test_an_event_that_is_a_bomb_or_makes_no_sense_costs_only_itself(proxy, caplog, lines):
    good = event("good", "SUMMARY:Good", "DTSTART;VALUE=DATE:20261025")

    async def scenario(calendars):
        proxy.fault = multistatus(event("bad", *lines), good).encode()
        before = time.perf_counter()
        found = await ask(calendars)
        assert time.perf_counter() - before < 15
        return [each.summary for each in found]

    assert on(client(proxy.url), scenario) == ["Good"]


def test_three_hundred_weekly_series_are_expanded_beside_the_loop(proxy):
    texts = [
        event(
            f"s{n}",
            f"SUMMARY:{n}",
            f"DTSTART:2026{1 + n % 9:02d}{1 + n % 28:02d}T100000Z",
            "RRULE:FREQ=WEEKLY;COUNT=60",
        )
        for n in range(300)
    ]

    async def scenario(calendars):
        proxy.fault = multistatus(*texts).encode()
        return await ask(calendars)

    assert len(on(client(proxy.url), scenario)) > 150  # benchmarks/ has how long the loop was blocked


def without_range(proxy, fault):
    """Let a search without a range fail; one with a range, and all other requests, are passed on."""
    answer = proxy.answer

    def broken(handler):
        whole = b"calendar-query" in handler.body and b"time-range" not in handler.body
        proxy.fault = fault if whole else None
        answer(handler)

    proxy.answer = broken


@pytest.mark.parametrize("fault", [403, b"<multistatus xmlns='DAV:'>" + b"<a/>" * 100_000 + b"</multistatus>"])
def test_a_calendar_that_cannot_be_had_whole_is_searched_by_time(proxy, fault):
    without_range(proxy, fault)

    assert len(on(client(proxy.url), ask)) == 8

    with pytest.raises((GarbledData, PermanentError), match="divide it|check username"):
        on(client(proxy.url, search="all"), ask)


def test_a_server_without_sync_tokens_is_searched_by_time_unless_it_is_to_be_read_whole(proxy):
    answer = proxy.answer

    def without_tokens(handler):
        proxy.fault = 400 if b"sync-collection" in handler.body else None
        answer(handler)

    async def scenario(calendars):
        return len(await ask(calendars)), calendars.health["read_whole"], calendars.health["with_sync_tokens"]

    proxy.answer = without_tokens

    assert on(client(proxy.url), scenario) == (8, 0, 0)
    assert on(client(proxy.url, search="all"), scenario) == (8, 1, 0)


def test_a_password_may_be_in_a_file_and_is_read_anew(server, tmp_path):
    file = tmp_path / "password"
    file.write_text("wrong\n")

    async def scenario(calendars):
        with pytest.raises(PermanentError, match="check username, password"):
            await ask(calendars)
        file.write_text("secret\n")
        return await ask(calendars)

    calendars = CalDav(f"http://127.0.0.1:{server.port}", "ann", password=file, zone="Europe/Berlin")
    assert len(on(calendars, scenario)) == 8


def test_a_bearer_token_is_sent(proxy):
    seen = []
    answer = proxy.answer
    proxy.answer = lambda handler: (seen.append(handler.headers["Authorization"]), answer(handler))

    async def scenario(calendars):
        with pytest.raises(PermanentError):
            await ask(calendars)

    on(CalDav(proxy.url, token="abc"), scenario)
    assert "Bearer abc" in seen


def test_a_server_that_is_not_there_is_unavailable():
    with pytest.raises(DeviceUnavailable, match="asking for"):
        on(client("http://127.0.0.1:9"), ask)


def test_a_cancelled_call_leaves_the_next_one_unharmed(proxy):
    async def scenario(calendars):
        proxy.fault = "hang"
        asking = asyncio.create_task(ask(calendars))
        await asyncio.sleep(0.2)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        proxy.fault = None
        assert len(await ask(calendars)) == 8

    on(client(proxy.url), scenario)


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: CalDav("cloud.example"), InvalidValue),
        (lambda: CalDav("ftp://cloud.example"), InvalidValue),
        (lambda: CalDav(5), InvalidType),
        (lambda: CalDav("https://c.example", password="a", token="b"), InvalidValue),
        (lambda: CalDav("https://c.example", zone="Berlin"), InvalidValue),
        (lambda: CalDav("https://c.example", timeout="soon"), InvalidValue),
        (lambda: CalDav("https://c.example", search="some"), InvalidValue),
    ],
)
def test_a_wrong_argument_is_refused(make, error):
    with pytest.raises(error):
        make()
