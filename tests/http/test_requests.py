"""Who answers a request, and what a handler reads of it. Whole requests are in `test_routes`."""

import asyncio

import pytest

from leadsman.http.messages import DisconnectedError, HttpError, Request, Routes


async def nobody(request):
    raise AssertionError


ROUTES = Routes({"/": nobody, "/page.js": nobody, "/why/{device}": nobody}, {"/devices/{device}/poll": nobody})


@pytest.mark.parametrize(
    ("method", "path", "device"),
    [
        ("GET", "/", ""),
        ("HEAD", "/page.js", ""),
        ("GET", "/why/boiler", "boiler"),
        ("GET", "/why/a b\n?", "a b\n?"),
        ("POST", "/devices/poll/poll", "poll"),
    ],
)
def test_a_path_has_a_handler_and_at_most_one_device(method, path, device):
    assert ROUTES.find(method, path) == (nobody, device)


@pytest.mark.parametrize(
    "path", ["", "//", "/pageXjs", "/page.js\n", "/why/", "/why/a/b", "/devices//poll", "/{device}"]
)
def test_nothing_is_at_another_path(path):
    with pytest.raises(HttpError, match="Not Found") as raised:
        ROUTES.find("GET", path)
    assert raised.value.status == 404


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [("POST", "/", "GET, HEAD"), ("GET", "/devices/d/poll", "POST"), ("", "/", "GET, HEAD")],
)
def test_another_method_is_refused_with_those_that_are_allowed(method, path, allowed):
    with pytest.raises(HttpError, match="Method Not Allowed") as raised:
        ROUTES.find(method, path)
    assert (raised.value.status, raised.value.headers) == (405, {"allow": allowed})


def request(*messages, **scope):
    given = iter(messages)

    async def receive():
        return next(given)

    return Request({"method": "GET", "path": "/", "headers": [], "query_string": b"", **scope}, receive, "")


def part(body, *, more=False):
    return {"type": "http.request", "body": body, "more_body": more}


def test_a_body_is_put_together_up_to_its_limit():
    assert asyncio.run(request(part(b"ab", more=True), part(b"cd")).body(4)) == b"abcd"
    with pytest.raises(HttpError, match="a body may have 3 bytes"):
        asyncio.run(request(part(b"ab", more=True), part(b"cd", more=True)).body(3))


def test_a_client_that_goes_gets_no_answer():
    with pytest.raises(DisconnectedError):
        asyncio.run(request(part(b"ab", more=True), {"type": "http.disconnect"}).body(9))


def test_a_query_keeps_its_order_and_empty_values():
    assert request(query_string=b"a=1&b=&a=%C3%BC+x").query == [("a", "1"), ("b", ""), ("a", "ü x")]


def test_the_first_header_of_a_name_counts():
    headers = [(b"accept", b"x"), (b"origin", b"\xfc"), (b"origin", b"b")]
    assert request(headers=headers).header("origin") == "\xfc"
    assert request(headers=headers).header("host") is None


@pytest.mark.parametrize(
    ("scope", "client"), [({}, "HTTP"), ({"client": None}, "HTTP"), ({"client": ("::1", 5)}, "::1")]
)
def test_the_client_is_an_address_or_a_word(scope, client):
    assert request(**scope).client == client
