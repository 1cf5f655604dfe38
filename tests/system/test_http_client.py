"""The real client on a real server, also with TLS, with faults in between; and the twin, which must do the same."""

import asyncio
import datetime
import gzip
import os
import time
from contextlib import ExitStack
from email.utils import formatdate
from itertools import repeat
from types import SimpleNamespace

import psutil
import pytest
import trustme
from pydantic import BaseModel, SecretStr

from leadsman import RetryRequested
from leadsman.adapters.http import HttpClient, HttpRefused, HttpUnavailable
from leadsman.core.tls import client_context
from leadsman.errors import (
    ConfigurationError,
    DeviceTimeout,
    DeviceUnavailable,
    GarbledData,
    InvalidType,
    InvalidValue,
    PermanentError,
    TransientError,
)
from leadsman.testing import HttpTwin, Recorded
from leadsman_rigs.watched import on
from leadsman_rigs.web import Silent, Web, send, server_context


class Power(BaseModel):
    watts: float


AUTHORITY = trustme.CA()
POWER = {"watts": 412.5}
PAGE = "<!DOCTYPE html><html><body>Please log in</body></html>"


def read(http, path="/status"):
    return http.get_json(path, Power)


@pytest.fixture
def ca(tmp_path):
    """The file with the certificate of the authority."""
    AUTHORITY.cert_pem.write_to_path(tmp_path / "ca.pem")
    return tmp_path / "ca.pem"


class TestBoth:
    """What the real adapter and its twin both do."""

    @pytest.fixture(params=["http", "https", "twin"])
    def there(self, request, ca):
        """A server or a twin: `client(**options)`, `answers`, `play(path, …)` and `requests`."""
        if request.param == "twin":
            twin = HttpTwin()

            def client(**options):
                made = HttpTwin(**options)
                made.recordings = twin.recordings
                return made

            yield SimpleNamespace(recordings=twin.recordings, client=client, url="http://twin.invalid")
            return
        certificate = server_context(AUTHORITY, "localhost") if request.param == "https" else None
        with Web(certificate=certificate) as web:
            yield SimpleNamespace(
                recordings=web.recordings, client=lambda **options: HttpClient(web.url, ca=ca, **options), url=web.url
            )

    def test_json_is_read_as_it_is_or_as_a_model(self, there):
        there.recordings.answers |= {"/status": POWER, "/list": [1, None, "ä"]}

        async def scenario(http):
            assert await http.get_json("/status") == POWER
            assert await http.get_json("status", Power) == Power(watts=412.5)
            assert await http.get_json("/list", list[int | str | None]) == [1, None, "ä"]
            assert await http.get_text("/list") == '[1, null, "\\u00e4"]'

        on(there.client(), scenario)

    def test_a_query_a_body_and_headers_are_sent(self, there):
        there.recordings.answers |= {"/a": {}, "/b": Recorded({"ok": True}, 201)}

        async def scenario(http):
            await http.get_json("/a?x=1", params={"y": [1, 2], "z": None, "on": True, "q": "ä&b"})
            answer = await http.request("POST", "/b", json={"on": True}, headers={"X-Api-Key": SecretStr("geheim")})
            return answer.status, answer.json()

        assert on(there.client(), scenario) == (201, {"ok": True})
        first, second = there.recordings.requests
        assert first.url.endswith(("/a?x=1&y=1%2C2&on=true&q=%C3%A4%26b", "/a?x=1&y=1,2&on=true&q=%C3%A4%26b"))
        assert first.headers["User-Agent"].startswith("leadsman/")
        assert (second.method, second.body, second.headers["X-Api-Key"]) == ("POST", b'{"on": true}', "geheim")

    @pytest.mark.parametrize(
        ("answer", "error", "message"),
        [
            (Recorded("", 401), HttpRefused, "status 401; it requires an account: set username=… and password=…"),
            (Recorded("", 403), HttpRefused, "status 403; .* check its rights"),
            (Recorded({"error": "no such thing"}, 404), HttpRefused, "404 .*no such thing.*; there is nothing at this"),
            (Recorded("", 418), HttpRefused, "status 418$"),
            (Recorded("", 304), HttpRefused, "status 304"),
            (Recorded("", 408), HttpUnavailable, "status 408"),
            (Recorded("", 425), HttpUnavailable, "status 425"),
            (Recorded("", 429), HttpUnavailable, "status 429"),
            (Recorded("<html>" + "x" * 100_000, 500), HttpUnavailable, "status 500$"),
            (Recorded("", 503, {"Retry-After": "0"}), HttpUnavailable, "status 503"),
            (Recorded("", 503, {"Retry-After": "soon"}), HttpUnavailable, "status 503"),
            (Recorded(PAGE), GarbledData, "a web page with status 200, and not JSON: a log-in page"),
            (Recorded("plain", headers={"Content-Type": "text/html"}), GarbledData, "not JSON"),
            (Recorded("<p>no</p>", headers={"Content-Type": "text/HTML"}), GarbledData, "a web page"),
            (Recorded(""), GarbledData, "the answer is empty"),
            (Recorded("", 204), GarbledData, "the answer is empty"),
            (Recorded('{"watts": 4'), GarbledData, "not JSON .*: '{\"watts\": 4'"),
            (Recorded(b"\xff\xfe"), GarbledData, "the answer is empty"),  # a byte order mark
            (Recorded(b"\x80\x81\x8d"), GarbledData, "the answer is no text"),
            (Recorded("[" * 100_000), GarbledData, "nested deeper than 50"),
            (Recorded({"watt": 5}), PermanentError, "not as expected: watts: Field required"),
            (Recorded({"watts": "many"}), PermanentError, "watts: Input should be a valid number"),
            (Recorded("x" * 2**20 + "y"), PermanentError, "longer than 1,048,576 bytes; most_bytes= allows more"),
            (Recorded(gzip.compress(b"0" * 2**27), headers={"Content-Encoding": "gzip"}), PermanentError, "longer"),
            (Recorded("x", headers={"Content-Encoding": "br"}), PermanentError, "packed as 'br'"),
            (Recorded("not packed", headers={"Content-Encoding": "gzip"}), GarbledData, "cannot be read"),
            (Recorded(gzip.compress(b"{}")[:-9], headers={"Content-Encoding": "gzip"}), GarbledData, "broke off"),
        ],
    )
    def test_each_wrong_answer_is_a_named_error_and_the_next_call_unharmed(self, there, answer, error, message):
        there.recordings.answers["/status"] = POWER
        there.recordings.play("/status", answer)

        async def scenario(http):
            memory = psutil.Process().memory_info().rss
            with pytest.raises(error, match=message) as raised:
                await read(http)
            assert psutil.Process().memory_info().rss - memory < 32 * 2**20
            assert "/status" in str(raised.value)
            assert await read(http) == Power(watts=412.5)

        on(there.client(), scenario)

    @pytest.mark.parametrize("status", [408, 429, 500, 503])
    def test_a_pause_that_the_server_asks_for_is_requested_in_both_forms(self, there, status):
        now = 1_800_000_000
        date, until = formatdate(now, usegmt=True), formatdate(now + 90, usegmt=True)
        there.recordings.play(
            "/status",
            Recorded("", status, {"Retry-After": "120"}),
            Recorded("", status, {"Retry-After": until, "Date": date}),
            Recorded("", status, {"Retry-After": "9" * 30}),
        )

        async def scenario(http):
            delays = []
            for _ in range(3):
                with pytest.raises(RetryRequested, match=f"asks for a pause, with status {status}") as raised:
                    await read(http)
                delays.append(raised.value.delay)
            return delays

        assert on(there.client(), scenario) == [120, 90, 86_400]

    def test_who_sends_a_condition_is_answered_that_nothing_has_changed(self, there):
        there.recordings.answers["/status"] = Recorded(POWER, headers={"ETag": '"one"'})

        async def scenario(http):
            first = await http.request("GET", "/status")
            same = await http.request("GET", "/status", headers={"If-None-Match": first.headers["etag"]})
            there.recordings.answers["/status"] = Recorded({"watts": 1}, headers={"ETag": '"two"'})
            later = await http.request("GET", "/status", headers={"if-none-match": first.headers["etag"]})
            return first.status, (same.status, same.content), (later.status, later.json())

        assert on(there.client(), scenario) == (200, (304, b""), (200, {"watts": 1}))

    def test_an_answer_that_nothing_has_changed_is_refused_where_nobody_asked(self, there):
        there.recordings.answers["/status"] = Recorded(b"", 304)

        with pytest.raises(HttpRefused, match="answers with status 304"):
            on(there.client(), read)

    def test_redirects_are_followed_on_the_server_itself(self, there):
        there.recordings.answers |= {
            "/old": Recorded("", 301, {"Location": "/older"}),
            "/older": Recorded("", 307, {"Location": f"{there.url}/status"}),
            "/status": POWER,
        }

        assert on(there.client(token="abcdefgh"), lambda http: read(http, "/old")) == Power(watts=412.5)
        assert {each.headers["Authorization"] for each in there.recordings.requests} == {"Bearer abcdefgh"}

    @pytest.mark.parametrize(
        ("location", "method", "message"),
        [
            ("/a", "GET", "GET .*/a is redirected to .*/a, so the redirects go in a circle"),
            ("/b", "GET", "/a → .*/b is redirected to .*/a, so the redirects go in a circle"),
            ("/1", "GET", "no more than 5 redirects are followed"),
            (
                "http://elsewhere.invalid/a?key=1",
                "GET",
                "to http://elsewhere.invalid/a, (another server|which is not enc)",
            ),
            ("ftp://elsewhere.invalid/a", "GET", "no address of a server"),
            ("http://[", "GET", "no address of a server"),
            ("//bob:secret@twin.invalid/a", "GET", "to https?://twin.invalid/a, with an account of its own"),
            ("/status", "POST", "only GET is repeated elsewhere"),
        ],
    )
    def test_redirects_that_lead_nowhere_or_elsewhere_are_refused_by_name(self, there, location, method, message):
        there.recordings.answers |= {
            "/a": Recorded("", 302, {"Location": location}),
            "/b": Recorded("", 302, {"Location": "/a"}),
            **{f"/{n}": Recorded("", 302, {"Location": f"/{n + 1}"}) for n in range(1, 9)},
        }

        with pytest.raises(PermanentError, match=message):
            on(there.client(username="ann", password="geheim"), lambda http: http.request(method, "/a"))

    def test_a_redirect_elsewhere_without_credentials_is_followed(self, there):
        with Web({"/status": POWER}) as other:
            there.recordings.answers |= {"/a": Recorded("", 302, {"Location": f"{other.url}/status"}), "/status": POWER}
            scheme = there.url.partition(":")[0]
            if scheme == "https":
                with pytest.raises(PermanentError, match="which is not encrypted"):
                    on(there.client(), lambda http: read(http, "/a"))
            else:
                assert on(there.client(), lambda http: read(http, "/a")) == Power(watts=412.5)

    def test_a_password_goes_to_its_server_only(self, there):
        there.recordings.answers["/status"] = POWER

        with Web({"/status": POWER}) as other:

            async def scenario(http):
                await read(http)
                if "twin" not in there.url:
                    await read(http, f"{other.url}/status")

            on(there.client(username="ann", password=SecretStr("geheim"), headers={"X-Key": "k"}), scenario)
            mine = there.recordings.requests[0].headers
            assert (mine["Authorization"], mine["X-Key"]) == ("Basic YW5uOmdlaGVpbQ==", "k")
            assert not any({"Authorization", "X-Key"} & set(each.headers) for each in other.recordings.requests)

    def test_a_silent_server_costs_the_timeout(self, there):
        async def silence(request):
            await asyncio.sleep(3)
            return POWER

        there.recordings.play("/status", silence)
        there.recordings.answers["/status"] = POWER

        async def scenario(http):
            before = time.perf_counter()
            with pytest.raises(DeviceTimeout, match="the server accepted the request and did not answer within 1s"):
                await read(http)
            assert time.perf_counter() - before < 2.5
            return await read(http)

        assert on(there.client(timeout="1s"), scenario) == Power(watts=412.5)

    def test_it_may_be_entered_again_and_is_closed_in_between(self, there):
        there.recordings.answers["/status"] = POWER
        client = there.client()

        assert on(client, read) == on(client, read) == Power(watts=412.5)
        with pytest.raises(DeviceUnavailable, match="the client is closed"):
            asyncio.run(read(client))

    @pytest.mark.parametrize(
        "call",
        [
            lambda http: http.get_json("/a\nb"),
            lambda http: http.get_json("http://[::1"),
            lambda http: http.get_json("ftp://x/y"),
            lambda http: http.get_json("http://ann:geheim@x/y"),
            lambda http: http.get_json("http://x:99999/y"),
            lambda http: http.get_json(5),
            lambda http: http.request("GET /", "/"),
            lambda http: http.request("POST", "/", json=1, data=b"1"),
            lambda http: http.request("POST", "/", json={"watts": float("nan")}),
            lambda http: http.request("POST", "/", json=object()),
            lambda http: http.request("POST", "/", data="text"),
            lambda http: http.request("GET", "/", params=[("a", 1)]),
            lambda http: http.request("GET", "/", params={"a": "\ud800"}),
            lambda http: http.request("GET", "/", headers={"A": "b\r\nC: d"}),
            lambda http: http.request("GET", "/", headers={"A b": "c"}),
        ],
    )
    def test_a_wrong_call_is_refused_before_anything_is_sent(self, there, call):
        with pytest.raises(ConfigurationError) as raised:
            on(there.client(), call)

        assert "geheim" not in str(raised.value)
        assert not there.recordings.requests


@pytest.fixture
def web():
    with Web({"/status": POWER}) as web:
        yield web


def close(handler):
    handler.close_connection = True


def write(data):
    def fault(handler):
        handler.wfile.write(data)
        handler.close_connection = True

    return fault


@pytest.mark.parametrize(
    ("fault", "error", "message"),
    [
        pytest.param(send(200, repeat(b"0" * 65536)), PermanentError, "longer than 1,048,576 bytes", id="endless"),
        pytest.param(
            send(200, [b" "] * 100, length=10**6, pause=0.1),
            DeviceTimeout,
            "the answer began and did not end, with .* bytes, within 1s",
            id="drip",
        ),
        pytest.param(send(200, [b'{"watts": 4'], length=10**6), DeviceUnavailable, "the answer broke off", id="cut"),
        pytest.param(send(404, [b"no such"], length=10**6), HttpRefused, "status 404", id="cut 404"),
        pytest.param(
            send(503, [b" "] * 30, pause=0.1),
            DeviceTimeout,
            "answered with status 503, and the answer did not end within 1s",
            id="drip 503",
        ),
        pytest.param(close, DeviceUnavailable, "closed the connection without an answer", id="closed"),
        pytest.param(write(b"SSH-2.0-OpenSSH_9.2\r\n"), GarbledData, "answers something else than HTTP", id="ssh"),
        pytest.param(write(b"\x00\xff" * 1000), GarbledData, "answers something else than HTTP", id="noise"),
        pytest.param(
            write(b"HTTP/1.1 200 OK\r\n" + b"X: " + b"y" * 100_000),
            GarbledData,
            "answers something else than HTTP",
            id="long header",
        ),
        pytest.param(
            write(b"HTTP/1.1 999 Odd\r\nContent-Length: 0\r\n\r\n"),
            GarbledData,
            "999 is no status",
            id="odd status",
        ),
        pytest.param(
            write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"),
            TransientError,
            "broke off|else than HTTP",
            id="bad chunk",
        ),
    ],
)
def test_what_a_server_does_wrong_is_a_named_error_and_the_next_call_unharmed(web, fault, error, message):
    async def scenario(http):
        web.fault = fault
        before = time.perf_counter()
        with pytest.raises(error, match=message):
            await read(http)
        assert time.perf_counter() - before < 4
        web.fault = None
        assert await read(http) == Power(watts=412.5)

    on(HttpClient(web.url, timeout="1s"), scenario)


def test_a_server_that_accepts_and_is_silent_is_named():
    with Silent() as silent:
        with pytest.raises(DeviceTimeout, match="the server accepted the request and did not answer within 1s"):
            on(HttpClient(silent.url, timeout="1s"), read)
        with pytest.raises(DeviceTimeout, match=r"no connection to 127.0.0.1:\d+ within (500ms|1s)"):
            on(HttpClient(silent.url.replace("http", "https"), timeout="1s"), read)


def test_the_time_that_certificates_take_to_load_is_time_without_a_connection(monkeypatch):
    """Reading them takes longer than a call may last, on a small or busy machine."""

    def load(ca):
        time.sleep(1)
        return client_context(ca)

    monkeypatch.setattr("leadsman.adapters.http.aiohttp_wire.client_context", load)
    with Silent() as silent, pytest.raises(DeviceTimeout, match=r"no connection to 127.0.0.1:\d+ within 200ms"):
        on(HttpClient(silent.url.replace("http", "https"), timeout="200ms"), read)


@pytest.mark.parametrize(
    ("url", "error", "message"),
    [
        ("http://127.0.0.1:9", DeviceUnavailable, "nothing listens at 127.0.0.1:9"),
        ("http://no-such-host.invalid", DeviceUnavailable, "the name 'no-such-host.invalid' is not known"),
    ],
)
def test_a_server_that_is_not_there_is_unavailable(url, error, message):
    with pytest.raises(error, match=message):
        on(HttpClient(url, timeout="10s"), read)


def test_a_wrong_certificate_is_named_and_permanent(tmp_path, ca, web):
    past = datetime.datetime(2020, 1, 2, tzinfo=datetime.UTC)
    old = server_context(AUTHORITY, "localhost", not_before=past, not_after=past)
    none = tmp_path / "none.pem"
    for certificate, given, message in (
        (server_context(AUTHORITY, "localhost"), None, "give the certificate of its authority, or its own, as ca="),
        (server_context(AUTHORITY, "other.lan"), ca, "the certificate is not for 'localhost'"),
        (old, ca, "has expired"),
        (server_context(AUTHORITY, "localhost"), none, "none.pem', which cannot be read: .*; name a file"),
    ):
        with Web({"/status": POWER}, certificate) as secure, pytest.raises(PermanentError, match=message):
            on(HttpClient(secure.url, ca=given), read)
    with pytest.raises(PermanentError, match="does not speak TLS; write http://"):
        on(HttpClient(web.url.replace("http:", "https:")), read)


@pytest.mark.parametrize("algorithm", ["MD5", "SHA-256"])
def test_a_digest_is_sent_to_who_asks_for_it_and_the_password_never(algorithm):
    with Web({"/status": POWER}, account=("ann", "geheim"), algorithm=algorithm) as web:

        async def scenario(http):
            for _ in range(3):
                assert await read(http) == Power(watts=412.5)

        on(HttpClient(web.url, "ann", "geheim", auth="digest"), scenario)
        assert (web.challenges, web.logins) == (1, 3)
        with pytest.raises(HttpRefused, match='it wants a digest: write auth="digest"'):
            on(HttpClient(web.url, "ann", "geheim"), read)
        with pytest.raises(HttpRefused, match="check username and password"):
            on(HttpClient(web.url, "ann", "wrong!", auth="digest"), read)
        assert all("geheim" not in str(each.headers) for each in web.recordings.requests)


@pytest.mark.parametrize(
    "challenge",
    [
        b'realm="\xff", nonce="1"',
        b'realm="\x01", nonce="1"',
        b'realm="door", nonce="1", domain="http://["',
        b'realm="door", nonce="1", qop="odd"',
    ],
)
def test_a_digest_that_cannot_be_made_is_the_fault_of_the_server(web, challenge):
    web.fault = write(b"HTTP/1.1 401 No\r\nWWW-Authenticate: Digest " + challenge + b"\r\nContent-Length: 0\r\n\r\n")

    with pytest.raises(GarbledData, match=f"the digest that localhost:{web.port} asks for cannot be made"):
        on(HttpClient(web.url, "ann", "geheim", auth="digest"), read)


def test_a_password_may_be_in_a_file_and_is_read_anew_after_it_was_refused(tmp_path):
    file = tmp_path / "password"
    file.write_text("wrong\n")
    with Web({"/status": POWER}, account=("ann", "secret")) as web:

        async def scenario(http):
            with pytest.raises(HttpRefused, match="401"):
                await read(http)
            file.write_text("secret\n")
            assert await read(http) == Power(watts=412.5)

        on(HttpClient(web.url, "ann", file, auth="digest"), scenario)
        file.unlink()
        with pytest.raises(PermanentError, match="the file of the password cannot be read"):
            on(HttpClient(web.url, "ann", file), read)


def test_one_pool_serves_many_devices_and_is_bounded(web):
    under_way, most = 0, 0

    async def slow(request):
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.1)
        under_way -= 1
        return POWER

    web.recordings.answers["/status"] = slow

    async def scenario(http):
        await asyncio.gather(*(read(http, f"{web.url}/status") for _ in range(20)))

    on(HttpClient(most_connections=4), scenario)
    assert most == 4


def test_few_connections_are_kept_however_many_devices_there_are():
    with ExitStack() as stack:
        webs = [stack.enter_context(Web({"/status": POWER})) for _ in range(12)]

        def opened():
            return sum(len(web.open) for web in webs)

        async def scenario(http):
            for web in webs * 2:
                await read(http, f"{web.url}/status")
            for _ in range(100):
                if opened() <= 4:
                    break
                await asyncio.sleep(0.02)
            return opened()

        assert on(HttpClient(most_connections=4), scenario) <= 4
        assert webs[0].connections == 1


def test_a_call_that_finds_no_free_connection_names_the_limit():
    with Silent() as silent:

        async def scenario(http):
            await http._slots.acquire()
            with pytest.raises(DeviceTimeout, match="none of 1 connections was free within 1s"):
                await read(http)

        on(HttpClient(silent.url, timeout="1s", most_connections=1), scenario)


@pytest.mark.parametrize("secure", [False, True])
def test_a_pool_leaves_no_descriptor_behind_and_closes_at_once_whatever_is_under_way(ca, secure):
    with Web({"/status": POWER}, server_context(AUTHORITY, "localhost") if secure else None) as web:
        close_while_busy(web, ca)


def close_while_busy(web, ca):
    before = len(os.listdir("/proc/self/fd"))

    async def run():
        client = HttpClient(web.url, ca=ca)
        async with client as http:
            await asyncio.gather(*(read(http) for _ in range(20)))
            web.fault = lambda handler: time.sleep(2)
            waiting = [asyncio.create_task(read(http)) for _ in range(5)]
            await asyncio.sleep(0.2)
            began = time.perf_counter()
        assert time.perf_counter() - began < 1
        for error in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(error, DeviceUnavailable)

    asyncio.run(run())
    web.fault = None
    for _ in range(100):
        if len(os.listdir("/proc/self/fd")) <= before:
            break
        time.sleep(0.05)  # the server has its ends of the connections in this process, too
    assert len(os.listdir("/proc/self/fd")) <= before


def test_a_cancelled_call_leaves_the_next_one_unharmed(web):
    async def scenario(http):
        web.fault = lambda handler: time.sleep(1)
        reading = asyncio.create_task(read(http))
        await asyncio.sleep(0.2)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        web.fault = None
        assert http.health["under_way"] == 0
        assert await read(http) == Power(watts=412.5)

    on(HttpClient(web.url, most_connections=1), scenario)


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: HttpClient("inverter.lan"), InvalidValue),
        (lambda: HttpClient("ftp://inverter.lan"), InvalidValue),
        (lambda: HttpClient(5), InvalidType),
        (lambda: HttpClient("http://a", "ann"), InvalidValue),
        (lambda: HttpClient("http://a", password="geheim"), InvalidValue),
        (lambda: HttpClient("http://a", "a:b", "geheim"), InvalidValue),
        (lambda: HttpClient("http://a", 5, "geheim"), InvalidType),
        (lambda: HttpClient("http://a", "ann", 4711), InvalidType),
        (lambda: HttpClient("http://a", "ann", "geheim", token="b"), InvalidValue),
        (lambda: HttpClient("http://a", "ann", token="b"), InvalidValue),
        (lambda: HttpClient("http://a", token="geheim\r\nX: y"), InvalidValue),
        (lambda: HttpClient("http://ann:geheim@a", "ann", "geheim"), InvalidValue),
        (lambda: HttpClient("http://a", auth="ntlm"), InvalidValue),
        (lambda: HttpClient("http://a", timeout="soon"), InvalidValue),
        (lambda: HttpClient("http://a", most_bytes=0), InvalidValue),
        (lambda: HttpClient("http://a", most_bytes=2**40), InvalidValue),
        (lambda: HttpClient("http://a", most_connections=True), InvalidValue),
        (lambda: HttpClient("http://a", headers={"A": "b\n"}), InvalidValue),
        (lambda: HttpClient("http://a", headers=[("A", "b")]), InvalidType),
    ],
)
def test_a_wrong_argument_is_refused(make, error):
    with pytest.raises(error) as raised:
        make()

    assert "geheim" not in str(raised.value)
