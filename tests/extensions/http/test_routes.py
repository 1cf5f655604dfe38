"""What the endpoint answers, asked over a real port."""

import asyncio
import json
import sys
from pathlib import Path

import pytest
from pydantic import ConfigDict, TypeAdapter
from tests.extensions.http.conftest import events, house_app, streams
from typing_extensions import is_typeddict

from leadsman import App
from leadsman.core.introspection import document
from leadsman.core.introspection.declared import documents_of
from leadsman.core.introspection.document import (
    Beat,
    By,
    Happening,
    HealthDocument,
    PollAnswer,
    Problem,
    RegistryDocument,
)
from leadsman.core.mqtt.answers import decode
from leadsman.extensions.http import routes
from leadsman.extensions.http.routes import static_files
from leadsman.extensions.http.rules import PROTECTION

PAGE = Path(routes.__file__).with_name("page")

for module in {kind.__module__ for kind in vars(document).values() if is_typeddict(kind)}:
    for each in vars(sys.modules[module]).values():
        if is_typeddict(each):
            each.__pydantic_config__ = ConfigDict(extra="forbid", strict=True)


def strictly(kind, value):
    return TypeAdapter(kind).validate_python(value)


def test_documents_keep_to_their_types_and_leave_secrets_out(run):
    async def ask(house):
        await house.polled()
        return [(await house.get(path)).json() for path in ("/introspect", "/introspect/door", "/trace", "/registry")]

    whole, one, trace, registry = run(ask)

    assert set(strictly(documents_of().introspection, whole)) == {"app", "mqtt", "adapters", "devices", "jobs"}
    assert set(strictly(documents_of().introspection, one)["devices"]) == {"door"}
    assert one["recent"]["door"]["outcomes"]["words"] == ["failed"]
    assert [row["handler"] for row in strictly(documents_of().introspection, trace)["trace"]] == ["door"]
    assert set(strictly(RegistryDocument, registry)["devices"]) == {"boiler", "door", "meter"}
    assert "hunter2" not in json.dumps([whole, one, trace])


def test_it_is_said_why_a_device_is_silent(run):
    async def ask(house):
        await house.polled()
        return [(await house.get(f"/why/{name}")) for name in ("door", "boiler", "bolier")]

    door, boiler, unknown = run(ask)

    assert strictly(document.Verdict, door.json())["device"] == "door"
    assert "stuck, password=***" in door.text
    assert "hunter2" not in door.text
    assert strictly(document.Verdict, boiler.json()) != door.json()
    assert (unknown.status_code, "did you mean 'boiler'?" in unknown.text) == (404, True)


def test_the_ledger_says_what_became_of_the_slots(run):
    async def ask(house):
        await house.polled()
        return (await house.get("/ledger")).json(), (await house.get("/ledger?devices=door")).json()

    whole, one = run(ask)

    assert {"boiler", "door"} <= set(strictly(documents_of().introspection, whole)["ledger"])
    assert set(one["ledger"]) == {"door"}


def test_a_query_chooses_sections_and_devices(run):
    async def ask(house):
        return (await house.get("/introspect?sections=app,devices&sections=mqtt&devices=boiler&devices=door")).json()

    found = run(ask)

    assert set(found) == {"app", "mqtt", "devices"}
    assert set(found["devices"]) == {"boiler", "door"}


@pytest.mark.parametrize(
    ("method", "path", "status", "detail"),
    [
        ("GET", "/introspect?sections=apps", 400, "did you mean 'app'?"),
        ("GET", "/introspect?section=app", 400, "did you mean 'sections'?"),
        ("GET", "/introspect?after=soon", 400, "'after' must be a number"),
        ("GET", "/introspect?since=nan", 400, "'since' must be a number"),
        ("GET", "/introspect?devices=bolier", 404, "did you mean 'boiler'?"),
        ("GET", "/introspect/bolier", 404, "did you mean 'boiler'?"),
        ("GET", "/nothing", 404, "Not Found"),
        ("GET", "/page/../conftest.py", 404, "Not Found"),
        ("GET", "/pageXjs", 404, "Not Found"),
        ("GET", "/page.js%0A", 404, "Not Found"),
        ("GET", "/introspect/", 404, "Not Found"),
        ("GET", "/why/", 404, "Not Found"),
        ("GET", "/why/a/b", 404, "Not Found"),
        ("GET", "/why/a%20b%3F", 404, "'a b?'"),
        ("POST", "/devices//poll", 404, "Not Found"),
        ("POST", "/devices/poll/poll", 404, "that can be polled"),
        ("POST", "/introspect", 405, "Method Not Allowed"),
        ("GET", "/devices/boiler/poll", 405, "Method Not Allowed"),
        ("DELETE", "/", 405, "Method Not Allowed"),
        ("POST", "/devices/boiler/sing", 404, "Not Found"),
        ("POST", "/devices/bolier/hold", 404, "did you mean 'boiler'?"),
        ("POST", "/devices/bolier/poll", 404, "that can be polled"),
        ("POST", "/devices/meter/poll", 404, "that can be polled"),
        ("POST", "/devices/meter/hold", 409, "isolate its circuit instead"),
        ("POST", "/devices/boiler/release", 409, "is not held"),
        ("POST", "/devices/door/poll", 502, "OSError: stuck, password=***"),
    ],
)
def test_a_wrong_request_is_answered_with_a_problem_that_says_why(run, method, path, status, detail):
    response = run(lambda house: house.client.request(method, path))

    problem = strictly(Problem, response.json())
    assert (response.status_code, problem["status"]) == (status, status)
    assert detail in problem["detail"]
    assert response.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [("POST", "/", {"GET", "HEAD"}), ("GET", "/devices/boiler/poll", {"POST"}), ("PUT", "/events", {"GET", "HEAD"})],
)
def test_another_method_is_refused_with_those_that_are_allowed(run, method, path, allowed):
    response = run(lambda house: house.client.request(method, path))

    assert response.status_code == 405
    assert set(response.headers["allow"].split(", ")) == allowed


def test_every_answer_protects_the_browser(run):
    async def ask(house):
        return [await house.get(path) for path in ("/", "/introspect", "/healthz", "/nothing", "/openapi.json")]

    for response in run(ask):
        sent = {name.encode(): value.encode() for name, value in response.headers.items()}
        assert sent.items() >= dict(PROTECTION).items()
        assert "access-control-allow-origin" not in response.headers
        assert response.headers["cache-control"] in ("no-store", "no-cache")


def test_a_poll_may_give_the_handler_its_payload_and_a_wrong_one_is_a_problem(run):
    app = App("house")

    @app.telemetry("boiler", interval=60, throttle=0, request="days")
    async def boiler(days: int = 7):
        return {"days": days}

    async def ask(house):
        bodies = ({}, {"payload": 14}, {"payload": {}}, {"payload": "many"}, {"by": "ann", "payload": "9"})
        return [await house.post("/devices/boiler/poll", json=body) for body in bodies]

    first, second, third, wrong, text = run(ask, app)

    assert [each.json()["reading"]["days"] for each in (first, second, third, text)] == [7, 14, 7, 9]
    assert (wrong.status_code, "valid integer" in wrong.json()["detail"]) == (400, True)


def test_a_person_acts_on_a_device_and_is_named(run, caplog):
    caplog.set_level("INFO", "leadsman")

    async def act(house):
        return [
            (await house.post(f"/devices/boiler/{action}", json={"by": "ann"})).json()
            for action in ("poll", "hold", "release", "isolate", "close", "disable")
        ]

    polled, *others = run(act)

    assert strictly(PollAnswer, polled) == {"device": "boiler", "reading": {"t": 21.5, "mode": "eco"}}
    assert [answer.get("held", answer.get("circuit")) for answer in others] == [
        True,
        False,
        "isolated",
        "closed",
        "disabled",
    ]
    assert "boiler: held by ann" in caplog.text
    assert "boiler: released by ann" in caplog.text


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ({"content": b"{", "headers": {"content-type": "application/json"}}, 400),
        ({"json": [1]}, 400),
        ({"json": {"by": 5}}, 400),
        ({"json": {"by": None}}, 400),
        ({"json": "ann"}, 400),
        ({"content": b'{"by": "ann"}'}, 415),
        ({"data": {"by": "ann"}}, 415),
        ({"content": b"x" * 16_385, "headers": {"content-type": "application/json"}}, 413),
        ({"headers": {"Host": "evil"}}, 421),
        ({"headers": {"Origin": "http://evil"}}, 403),
        ({"headers": {"Sec-Fetch-Site": "cross-site"}}, 403),
        ({"json": {}}, 200),
        ({"content": b""}, 200),
    ],
)
def test_a_body_and_the_headers_of_a_request_are_checked_before_anything_happens(run, options, status):
    async def act(house):
        response = await house.post("/devices/boiler/isolate", **options)
        return response.status_code, (await house.get("/introspect/boiler")).json()["devices"]["boiler"]["runtime"]

    given, runtime = run(act)

    assert given == status
    assert runtime["circuit"] == ("isolated" if status == 200 else "closed")


def test_a_token_opens_everything_and_without_it_only_the_page_and_the_probes(run, tmp_path):
    token = tmp_path / "token"
    token.write_text("0123456789abcdef\n")

    async def ask(house):
        await house.polled()
        right, wrong = ({"Authorization": f"Bearer {text}"} for text in ("0123456789abcdef", "0123456789abcdeg"))
        public = [(await house.get(path)).status_code for path in ("/", "/livez", "/readyz")]
        paths = ("/introspect", "/trace", "/healthz", "/registry", "/openapi.json", "/events")
        closed = [(await house.get(path, headers=wrong)).status_code for path in paths]
        action = (await house.post("/devices/boiler/hold", headers=wrong)).status_code
        opened = await house.get("/introspect", headers=right)
        return public, {*closed, action}, opened

    public, closed, opened = run(ask, **{"http.token_file": str(token)})

    assert public == [200, 200, 200]
    assert closed == {401}
    assert opened.status_code == 200
    assert "0123456789abcdef" not in opened.text


def test_health_says_what_is_in_trouble(run):
    async def ask(house):
        await house.polled()
        return await house.get("/healthz")

    response = run(ask)

    health = strictly(HealthDocument, response.json())
    assert (response.status_code, health["status"]) == (200, "warn")
    assert response.headers["content-type"] == "application/health+json"
    assert health["checks"]["door:status"][0]["output"] == "OSError: stuck, password=***"
    assert health["checks"]["mqtt:connection"][0]["status"] == "pass"
    assert "boiler:status" not in health["checks"]


def test_neither_the_host_nor_the_name_of_a_device_is_taken_for_the_path(run):
    app = house_app()

    @app.telemetry("what?now", interval=60)
    async def odd():
        return {"t": 1}

    async def ask(house):
        return [
            await house.get("/page.js", headers={"host": "[::1]/introspect"}),
            await house.get("/page.js", headers={"host": "[::1]:8080"}),
            await house.post("/devices/what%3Fnow/hold"),
        ]

    strange, page, held = run(ask, app)

    assert strange.status_code == 421
    assert page.headers["content-type"].startswith("text/javascript")
    assert held.json() == {"device": "what?now", "held": True}


def test_the_page_is_sent_once_and_then_only_confirmed(run):
    async def ask(house):
        first = await house.get("/")
        return first, await house.get("/", headers={"If-None-Match": first.headers["etag"]})

    first, again = run(ask)

    assert (first.status_code, again.status_code, again.content) == (200, 304, b"")
    assert first.headers["content-type"] == "text/html; charset=utf-8"


def test_the_page_is_sent_without_its_comments_and_with_its_lines(tmp_path):
    script = tmp_path / "page.js"
    script.write_text("// one\n\tlet a = 1; // two\n\t/** three\n\t * four */\n\tlet b = `/** ${a} */`; /** five */\n")

    content = static_files([script])["/page.js"].content

    assert content == b"\nlet a = 1; // two\n\n\nlet b = `/** ${a} */`; /** five */\n"


@pytest.mark.parametrize("path", sorted(PAGE.glob("*.js")), ids=lambda path: path.name)
def test_no_text_of_the_page_goes_over_several_lines(path):
    assert [line for line in path.read_text().splitlines() if line.count("`") % 2] == []
    assert static_files([path])[f"/{path.name}"].content.count(b"\n") == path.read_bytes().count(b"\n")


class TestEvents:
    def test_a_stream_begins_with_a_beat_and_says_what_happens(self, run):
        async def ask(house):
            await house.polled()
            begun = asyncio.Event()
            stream = asyncio.create_task(events(house, 4, begun=begun))
            await begun.wait()
            await house.post("/devices/boiler/hold", json={"by": "ann"})
            await house.post("/devices/boiler/release", json={"by": "ann"})
            return await stream

        (first, beat), *happened = run(ask)

        assert strictly(Beat, beat)["app"]["name"] == "house"
        assert [number for number, _ in happened] == [first + 1, first + 2, first + 3]
        assert [(data["type"], data["device"]) for _, data in happened] == [
            ("device_held", "boiler"),
            ("device_released", "boiler"),
            ("reading_taken", "boiler"),
        ]
        for _, data in happened:
            strictly(Happening, data)

    def test_a_stream_goes_on_where_it_was_left(self, run):
        async def ask(house):
            ((first, _),) = await events(house, 1)
            for action in ("hold", "release"):
                await house.post(f"/devices/boiler/{action}")
            missed = await events(house, 3, {"Last-Event-ID": str(first)})
            return first, missed

        first, missed = run(ask)

        # The beat is first: it has no number of its own.
        assert [data["type"] for _, data in missed] == ["beat", "device_held", "device_released"]
        assert [number for number, _ in missed[1:]] == [first + 1, first + 2]

    @pytest.mark.parametrize("last", ["1", "99999999999999", "x", "", "-5", "9" * 50])
    def test_one_that_cannot_go_on_says_so_first(self, run, last):
        (_, first), (_, second) = run(lambda house: events(house, 2, {"Last-Event-ID": last}))

        assert first == {"type": "reset"}
        assert second["type"] == "beat"

    def test_the_head_of_one_ends(self, run):
        async def ask(house):
            return await house.client.head("/events", timeout=60), await house.client.head("/introspect")

        stream, document = run(ask)

        assert (stream.status_code, stream.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
        assert (document.status_code, document.content) == (200, b"")

    def test_there_is_a_limit_to_them(self, run, monkeypatch):
        monkeypatch.setattr("leadsman.extensions.http.routes.MAX_WATCHERS", 1)

        async def ask(house):
            async with house.client.stream("GET", "/events") as response:
                await anext(response.aiter_lines())
                refused = await house.get("/events")
            while streams():
                await asyncio.sleep(0.01)
            return refused, await events(house, 1)

        refused, again = run(ask)

        assert (refused.status_code, refused.headers["retry-after"]) == (503, "3")
        assert len(again) == 1


def test_many_devices_are_answered_whole(run):
    async def ask(house):
        return await house.get("/introspect?sections=devices&sections=recent")

    found = run(ask, house_app(1000)).json()

    assert len(strictly(documents_of().introspection, found)["devices"]) == 1003
    assert len(found["recent"]) == 1003


def test_a_fault_of_ours_is_answered_and_reported(run, monkeypatch, caplog):
    async def ask(house):
        monkeypatch.setattr("leadsman.core.introspection.service.Service.health", lambda self: 1 / 0)
        return await house.get("/healthz")

    response = run(ask)

    assert response.status_code == 500
    assert strictly(Problem, response.json())["detail"] == "a fault of the app; its log says more"
    assert "the HTTP endpoint: ZeroDivisionError" in caplog.text


def test_what_a_body_may_be_is_what_the_type_says():
    assert strictly(By, decode(b'{"by": "ann"}')[0]) == {"by": "ann"}


def test_who_asks_over_mqtt_for_recent_values_without_the_endpoint_learns_what_to_set(harness):
    running = harness(App("house"))
    running.run(5)
    running.broker.send("house/introspect", b'{"sections": ["recent"]}')
    running.run(1)

    answer = running.broker.messages("house/introspect/response")[-1].json
    assert answer["error"] == "'recent' values are kept only while the HTTP endpoint is on; set http.bind"
