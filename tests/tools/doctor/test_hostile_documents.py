"""What anybody may have published where the doctor looks."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadsman import Received
from leadsman.tools.doctor.broker import _data, _live
from leadsman.tools.doctor.checks import _status, left_behind

HUGE = 10**400
VALUES = st.recursive(
    st.sampled_from([None, True, HUGE, -HUGE, "online", "x\x1b[2J", ""]) | st.floats() | st.integers(),
    lambda inner: st.lists(inner, max_size=2),
    max_leaves=3,
)
DOCUMENTS = st.dictionaries(
    st.sampled_from(["state", "mqtt", "app", "uptime", "uptime", "connects", "last_error", "pages", "started_at"]),
    VALUES | st.dictionaries(st.sampled_from(["connects", "uptime", "started_at", "client_id"]), VALUES),
)
PAYLOADS = st.one_of(
    DOCUMENTS.map(lambda each: json.dumps(each).encode()), st.binary(max_size=30), st.just(b"[" * 100_000)
)


@given(PAYLOADS)
def test_a_status_of_any_kind_is_read_or_is_none(payload):
    state, live = _status("house/status", {"house/status": payload})

    assert state is None or isinstance(state, str)
    assert live is None or isinstance(live.connects, int)


@given(PAYLOADS, st.sampled_from(["2", "9" * 5000, "²", "x", ""]))
def test_a_registry_of_any_kind_leaves_a_list_of_topics(payload, page):
    kept = {"house/registry": payload, f"house/registry/{page}": b"{}"}

    assert set(left_behind("house", ["meter"], kept)) <= {"house/registry/2"}


@given(PAYLOADS)
def test_what_is_no_answer_has_no_data(payload):
    assert _data(Received("house/introspect/response", payload, False), "mine") == {}


@given(DOCUMENTS)
def test_the_data_of_any_answer_is_read_or_is_none(data):
    live = _live(data)

    assert live is None or isinstance(live.connects, int)


@pytest.mark.parametrize("transaction", ["mine", "yours"])
def test_only_the_answer_to_ones_own_request_counts(transaction):
    answer = json.dumps({"transaction": transaction, "data": {"app": {"uptime": 5}}}).encode()
    data = _data(Received("house/introspect/response", answer, False), "mine")

    assert bool(data) is (transaction == "mine")
