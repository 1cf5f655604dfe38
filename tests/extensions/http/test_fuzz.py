"""Requests that are made from the OpenAPI document, right and wrong ones: each answer is one that it describes."""

import asyncio
import json
import os
import threading
import time
from importlib.resources import files
from urllib.parse import quote

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.extensions.http.conftest import house_app

from leadsman.core.settings.sources import Where
from leadsman.testing import MemoryBroker
from leadsman.testing.mosquitto import free_port

DOCUMENT = json.loads(files("leadsman.extensions.http").joinpath("openapi.json").read_text("utf-8"))
OPERATIONS = [
    (method, path, operation)
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
    if path != "/events"  # a stream has no end
]
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
BODIES = st.none() | st.binary(max_size=200) | st.one_of(ANY_JSON, st.just({"by": "ann"})).map(json.dumps)
MEDIA_TYPES = st.sampled_from(["application/json", "application/json; charset=utf-8", "text/plain", ""])
NAMES = st.sampled_from(["boiler", "meter"]) | st.text(min_size=1, max_size=30).filter(
    lambda name: "/" not in name and name not in (".", "..")  # those make other paths
)


@pytest.fixture(scope="module")
def client():
    """A client of an app that runs in a thread."""
    app, port, loops = house_app(), free_port(), []
    app.load(Where.nowhere({"http.bind": f"127.0.0.1:{port}"}))

    async def serve():
        loops.append(asyncio.get_running_loop())
        await app.serve(MemoryBroker().connect, environment={"XDG_STATE_HOME": os.environ["XDG_STATE_HOME"]})

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=20) as client:
        while True:
            try:
                if client.get("/readyz").status_code == 200:
                    break
            except httpx.TransportError:
                time.sleep(0.02)
        yield client
    loops[0].call_soon_threadsafe(app.stop)
    thread.join()


def value_of(schema):
    """Values for a parameter, most of them of the type that it has."""
    if schema["type"] == "array":
        choices = schema["items"].get("enum")
        return st.lists(st.sampled_from(choices) | st.text(max_size=9) if choices else NAMES, max_size=3)
    return st.lists(st.integers(-5, 10**6).map(str) | st.floats().map(str) | st.text(max_size=9), max_size=2)


@st.composite
def requests(draw):
    method, path, operation = draw(st.sampled_from(OPERATIONS))
    query = []
    for parameter in operation.get("parameters", ()):
        if parameter["in"] == "path":
            path = path.replace("{device}", quote(draw(NAMES), safe=""))
        elif parameter["in"] == "query":
            query += [(parameter["name"], value) for value in draw(value_of(parameter["schema"]))]
    if draw(st.booleans()):
        query += draw(st.lists(st.tuples(st.text(max_size=9), st.text(max_size=9)), max_size=2))
    content = draw(BODIES) if method == "post" else None
    headers = {"content-type": draw(MEDIA_TYPES)} if content else {}
    return method, path, operation, query, content, headers


@pytest.mark.slow
@given(request_=requests())
def test_each_answer_is_one_that_the_document_describes(client, request_):
    method, path, operation, query, content, headers = request_
    response = client.request(method, path, params=query, content=content, headers=headers)

    described = operation["responses"]
    assert str(response.status_code) in described, (method, path, query, content, response.text)
    assert response.status_code < 500
    media_type = response.headers["content-type"].partition(";")[0]
    assert media_type in described[str(response.status_code)]["content"]
    if media_type.endswith("json"):
        json.loads(response.text)
    else:
        assert media_type in ("text/html", "text/plain")


@pytest.mark.slow
@given(
    method=st.sampled_from(["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"]),
    path=st.text(max_size=40).map(lambda text: "/" + quote(text)),
    headers=st.dictionaries(
        st.sampled_from(["Host", "Origin", "Authorization", "Sec-Fetch-Site", "Last-Event-ID", "If-None-Match"]),
        st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=30).map(str.strip),
        max_size=3,
    ),
)
def test_any_path_method_and_headers_are_answered_and_never_with_a_fault(client, method, path, headers):
    if path == "/events":
        return
    response = client.request(method, path, headers=headers)

    assert response.status_code < 500
    if headers.get("Host", "localhost") == "evil":
        assert response.status_code == 421


def test_after_all_that_the_app_is_well(client):
    found = client.get("/introspect").json()

    assert found["devices"]["meter"]["runtime"]["status"] in ("ok", "isolated", "held")
    assert client.get("/readyz").status_code == 200
