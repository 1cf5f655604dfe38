import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadsman.monitoring.totals import MOST, VERSION, Life, Totals, life_of

counts = st.integers(0, 2**40)
totals = st.builds(Totals, *[counts] * len(Totals._fields))


@given(st.floats(0, 1e11), st.lists(totals, min_size=1))
def test_the_counters_of_all_lives_are_the_sum_of_each(since, lives):
    life = Life(since)
    for now in lives:
        life = life_of(json.loads(json.dumps(life.to_json(now))))

    assert life.since == since
    assert tuple(life.before) == tuple(map(sum, zip(*lives, strict=True)))


WHOLE = Life(5.0).to_json(Totals())


@pytest.mark.parametrize(
    "damaged",
    [
        None,
        [],
        {},
        WHOLE | {"version": VERSION + 1},
        {key: value for key, value in WHOLE.items() if key != "opens"},
        WHOLE | {"polls": -1},
        WHOLE | {"polls": True},
        WHOLE | {"polls": 1.5},
        WHOLE | {"polls": MOST + 1},
        WHOLE | {"polls": "9" * 5000},
        WHOLE | {"since": math.nan},
        WHOLE | {"since": None},
    ],
)
def test_counters_that_are_damaged_or_of_a_newer_version_are_refused(damaged):
    with pytest.raises((LookupError, TypeError, ValueError)) as caught:
        life_of(damaged)
    assert len(str(caught.value)) < 200
