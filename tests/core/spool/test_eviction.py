"""What a file of limited size keeps."""

import itertools

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from leadsman.core.spool.file import SpoolFile
from leadsman.core.spool.row import FULL, Quota, size
from leadsman_rigs.examples import examples

ROW = size("a", 940)
STEP = 64 * 1024
"""Bytes that are evicted at once, at least."""


@pytest.fixture
def filled(open_spool, row):
    """A file with rows of one size, and room for no further one."""

    def filled(count):
        spool = open_spool(Quota(most_bytes=count * ROW, least_free=0))
        spool.write([row(number, topic="a", payload=bytes(940)) for number in range(1, count + 1)], ())
        return spool

    return filled


def searches(spool):
    """The questions for the oldest rows, as they are asked."""
    asked = []
    spool._file.connection.set_trace_callback(
        lambda text: asked.append(text) if "ORDER BY id LIMIT 500" in text else None
    )
    return asked


def test_as_much_is_evicted_at_once_as_frees_pages(filled, row):
    (evicted,) = filled(5000).write([row(5001, topic="a", payload=bytes(940))], ())

    assert evicted.reason == FULL
    assert evicted.ids == list(range(1, len(evicted.ids) + 1))
    assert STEP <= len(evicted.ids) * ROW <= STEP + 2 * ROW


def test_of_a_large_quota_one_per_cent_is_evicted(filled, row):
    (evicted,) = filled(30_000).write([row(30_001, topic="a", payload=bytes(940))], ())

    assert 30_000 * ROW // 100 <= len(evicted.ids) * ROW < 30_000 * ROW // 90


def test_the_oldest_rows_are_read_only_as_far_as_needed(filled, row):
    spool = filled(5000)
    asked = searches(spool)

    (evicted,) = spool.write([row(5001, topic="a", payload=bytes(940))], ())

    assert len(evicted.ids) < 500
    assert len(asked) == 1


def test_nothing_is_read_below_the_quota(open_spool, row, everything):
    spool = open_spool(Quota(least_free=0))
    spool.write([row(number) for number in range(1, 11)], ())
    asked = searches(spool)

    assert spool.write([row(11)], ()) == []
    assert asked == []
    assert everything(spool)[-1] == row(11)


def test_rows_that_are_all_the_newest_of_their_topics_stay_beyond_the_quota(open_spool, row):
    spool = open_spool(Quota(most_bytes=1000, least_free=0))

    assert spool.write([row(number, topic=f"t{number}", payload=bytes(100)) for number in range(1, 30)], ()) == []
    assert spool.write([row(99, topic="u")], ()) == []


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 400)), max_size=60), st.integers(100, 20_000))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(50), deadline=None)
def test_what_is_kept_fits_unless_only_the_newest_are_left(tmp_path, row, everything, history, most):
    rows = [row(number, topic, bytes(length)) for number, (topic, length) in enumerate(history, 1)]
    newest = {each.topic: each.id for each in rows}
    spool = SpoolFile(tmp_path / f"{next(FILES)}.db", Quota(most_bytes=most, least_free=0), lambda: 1_800_000_000.0)
    spool.open()

    spool.write(rows, ())

    kept = everything(spool)
    spool.close()
    assert set(newest.values()) <= {each.id for each in kept}
    assert sum(size(each.topic, len(each.payload)) for each in kept) <= most or len(kept) == len(newest)


FILES = itertools.count()
