"""Who may use the endpoint, as a function of the head of a request."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.extensions.http.conftest import endpoint

from leadsman.extensions.http.rules import AccessRules, RequestHead, host_name

TOKEN = "0123456789abcdef"
OPEN = AccessRules(endpoint("127.0.0.1:8080", hosts=["house.example"]), {"Pi"}, {"/"})
LOCKED = AccessRules(endpoint("0.0.0.0:8080", TOKEN), {"Pi"}, {"/"})


def status(rules, method="GET", path="/introspect", host="localhost:8080", **headers):
    refusal = rules.refusal(RequestHead(method, path, host, **headers))
    return None if refusal is None else refusal.status


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST:8080", "127.0.0.1:8080", "[::1]:8080", "192.0.2.7", "pi", "house.example:443"],
)
def test_addresses_names_of_this_machine_and_configured_names_are_served(host):
    assert status(OPEN, host=host) is None


@pytest.mark.parametrize(
    "host",
    [
        *("evil", "evil:8080", "localhost.evil", "127.0.0.1.evil", "evil#127.0.0.1", "", "localhost:80:80", "[", None),
        *("[::1]evil", "[::1]/x", "[::1]:", "[::1]:x"),
        *("0.0.0.0", "0.0.0.0:8080", "[::]", "[::]:8080"),
    ],
)
def test_another_name_is_not_served(host):
    assert status(OPEN, host=host) == 421


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, None),
        ({"origin": "http://localhost:8080"}, None),
        ({"origin": "https://localhost:8080"}, None),
        ({"origin": "http://localhost:9090"}, 403),
        ({"origin": "http://evil"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://localhost:8080.evil"}, 403),
        ({"site": "same-origin"}, None),
        ({"site": "none"}, None),
        ({"site": "cross-site"}, 403),
        ({"site": "same-site"}, 403),
    ],
)
def test_a_page_of_another_origin_may_change_nothing(headers, expected):
    assert status(OPEN, "POST", "/devices/d/poll", **headers) == expected
    assert status(OPEN, "GET", "/introspect", **headers) is None


@pytest.mark.parametrize(
    ("site", "mode", "expected"),
    [
        ("same-origin", "cors", None),
        ("none", "navigate", None),
        ("cross-site", "navigate", None),  # a link
        ("cross-site", "no-cors", 403),
        ("same-site", "cors", 403),
    ],
)
def test_a_page_of_another_origin_gets_no_data_in_the_background(site, mode, expected):
    assert status(OPEN, path="/events", site=site, mode=mode) == expected
    assert status(OPEN, path="/", site=site, mode=mode) is None


@pytest.mark.parametrize(
    ("authorization", "expected"),
    [
        (f"Bearer {TOKEN}", None),
        (f"bearer  {TOKEN} ", None),
        (None, 401),
        ("", 401),
        ("Bearer", 401),
        ("Bearer ", 401),
        (f"Basic {TOKEN}", 401),
        (f"Bearer {TOKEN[:-1]}", 401),
        (f"Bearer {TOKEN}x", 401),
        ("Bearer \udcff", 401),
        (TOKEN, 401),
    ],
)
def test_a_token_must_be_the_right_one(authorization, expected):
    assert status(LOCKED, authorization=authorization) == expected
    assert status(LOCKED, "POST", "/devices/d/poll", authorization=authorization) == expected
    assert status(LOCKED, path="/", authorization=authorization) is None


@given(st.text(max_size=40))
def test_any_host_and_any_authorization_is_judged(text):
    assert isinstance(host_name(text), str)
    assert status(OPEN, host=text) in (None, 421)
    assert status(LOCKED, authorization=text) in (None, 401)
    assert status(OPEN, "POST", origin=text) in (None, 403)
