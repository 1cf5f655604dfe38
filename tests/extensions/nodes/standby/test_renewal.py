import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadsman.extensions.nodes.brief import is_online
from leadsman.extensions.nodes.standby.renewal import MAX_TOKEN, MAX_TTL_SECONDS, Renewal, read_renewal

WRITTEN = {"owner": "pi-1", "token": 7, "ttl_s": 15.0, "sent": 12.5}


def test_what_is_written_is_read():
    lease = Renewal("pi-1", 7, 15.0, 12.5)

    assert read_renewal(lease.encode("2026-11-22T10:00:00.000Z")) == lease


@pytest.mark.parametrize(
    "change",
    [
        {"owner": ""},
        {"owner": "x" * 201},
        {"owner": 1},
        {"token": 0},
        {"token": True},
        {"token": 1.5},
        {"token": MAX_TOKEN + 1},
        {"ttl_s": 0},
        {"ttl_s": "15"},
        {"ttl_s": True},
        {"ttl_s": float("nan")},
        {"ttl_s": MAX_TTL_SECONDS + 1},
        {"sent": None},
        {"sent": MAX_TOKEN + 1},
        {"sent": -MAX_TOKEN - 1},
        {"sent": 10**400},
        {"sent": float("nan")},
        {"sent": float("inf")},
    ],
)
def test_a_document_with_a_wrong_value_is_no_lease(change):
    assert read_renewal(json.dumps(WRITTEN | change).encode()) is None


@given(st.binary(max_size=60))
def test_nothing_that_comes_raises(payload):
    assert read_renewal(payload) is None
    assert is_online(payload) is None


@pytest.mark.parametrize("payload", [b"[" * 100_000, b" " * 2000 + json.dumps(WRITTEN).encode(), b"[1]", b"\xff"])
def test_a_document_that_is_too_long_or_too_deep_is_no_lease(payload):
    assert read_renewal(payload) is None


@pytest.mark.parametrize(
    ("payload", "online"), [(b'{"state":"online"}', True), (b'{"state":"offline"}', False), (b'{"state":1}', None)]
)
def test_the_status_says_whether_the_app_is_online(payload, online):
    assert is_online(payload) is online
