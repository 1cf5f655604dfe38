"""The rows of the fault matrix with priority 0, at once: each takes seconds, and nearly all of it is waiting."""

import pytest

from fault_matrix.report import produce_all
from fault_matrix.row import all_rows

AT_ONCE = 4
pytestmark = [pytest.mark.system, pytest.mark.timeout(400)]
ROWS = {row.number: row for row in all_rows() if row.in_ci}


@pytest.fixture(scope="module")
def outcomes(request, tmp_path_factory):
    """What came of the rows that were selected."""
    selected = {item.callspec.params["number"] for item in request.session.items if item.module is request.module}
    rows = [row for number, row in ROWS.items() if number in selected]
    return {outcome.row.number: outcome for outcome in produce_all(rows, tmp_path_factory.mktemp("faults"), AT_ONCE)}


@pytest.mark.parametrize("number", ROWS)
def test_the_app_does_what_is_expected_of_it(outcomes, number, tmp_path):
    tried = [outcomes[number]]
    if tried[0].missed:  # beside three others, on a machine that may be busy: once more, alone
        tried += produce_all([ROWS[number]], tmp_path, 1)

    assert not tried[-1].missed, f"{tried[0].row.fault}: {' / '.join(each.words for each in tried)}"
