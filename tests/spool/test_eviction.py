"""The plan of a write, without a file."""

from hypothesis import given
from hypothesis import strategies as st

from leadsman.spool.eviction import LEAST_STEP, Index, Planner, Stored
from leadsman.spool.row import FULL, Quota, Row, size

NOW = 1_800_000_000.0


def stored(count, payload=940, topic="a"):
    index = Index()
    rows = [Stored(number, topic, size(topic, payload)) for number in range(1, count + 1)]
    index.count(topic, count, count * payload, count, None)
    return index, rows


def new(number, payload=b"x" * 940, topic="a"):
    return Row(number, 1, topic, payload, 1, False, NOW, None, False)


def plan(index, rows, quota, add):
    planner = Planner(index, quota, NOW, add, (), frozenset())
    planner.evict(iter(rows))
    return planner


def test_as_much_is_evicted_at_once_as_frees_pages():
    index, rows = stored(5000)
    quota = Quota(most_bytes=index.bytes)

    (evicted,) = plan(index, rows, quota, [new(5001)]).evicted()

    step = evicted.rows * rows[0].size
    assert evicted.reason == FULL
    assert evicted.ids == list(range(1, evicted.rows + 1))
    assert LEAST_STEP <= step <= LEAST_STEP + 2 * rows[0].size


def test_of_a_large_quota_one_per_cent_is_evicted():
    index, rows = stored(30_000)

    (evicted,) = plan(index, rows, Quota(most_bytes=index.bytes), [new(30_001)]).evicted()

    assert index.bytes // 100 <= evicted.rows * rows[0].size < index.bytes // 90


def test_the_oldest_rows_are_read_only_as_far_as_needed():
    index, rows = stored(5000)
    reader = iter(rows)

    (evicted,) = plan(index, reader, Quota(most_bytes=index.bytes), [new(5001)]).evicted()

    assert len(list(reader)) >= 5000 - evicted.rows - 2


def test_nothing_is_read_below_the_quota():
    index, rows = stored(10)

    planner = plan(index, (1 / 0 for _ in rows), Quota(), [new(11)])

    assert planner.evicted() == []
    assert planner.changes().added == [new(11)]


def test_rows_that_are_all_the_newest_of_their_topics_stay_beyond_the_quota():
    index, rows = Index(), [Stored(number, f"t{number}", size(f"t{number}", 100)) for number in range(1, 30)]
    for row in rows:
        index.count(row.topic, 1, 100, row.id, None)

    assert plan(index, rows, Quota(most_bytes=1000), [new(99, topic="u")]).evicted() == []


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 400)), max_size=60), st.integers(100, 20_000))
def test_what_is_kept_fits_unless_only_the_newest_are_left(history, most):
    rows = [new(number, bytes(length), topic) for number, (topic, length) in enumerate(history, 1)]
    newest = {row.topic: row.id for row in rows}

    kept = plan(Index(), (), Quota(most_bytes=most), rows).changes().added

    assert set(newest.values()) <= {row.id for row in kept}
    fits = sum(size(row.topic, len(row.payload)) for row in kept) <= most
    assert fits or len(kept) == len(newest)
