import pytest

from leadsman.spool.backlog import FEW, MANY, PageSize


def sizes(*pages, window=20):
    """How many rows each page after these has; each was waited for or not, and is the last one or not."""
    size = PageSize()
    found = [size.rows(window)]
    for waited, last in pages:
        size.came(waited=waited, last=last)
        found.append(size.rows(window))
    return found


def test_pages_double_while_the_connection_waits_for_them():
    assert sizes(*[(True, False)] * 6) == [FEW, 120, 240, 480, MANY, MANY, MANY]


def test_pages_that_come_in_time_stay_as_they_are():
    assert sizes((True, False), (False, False), (False, False)) == [FEW, 120, 120, 120]


def test_the_last_page_ends_it():
    assert sizes((True, False), (True, True), (False, False)) == [FEW, 120, FEW, FEW]


@pytest.mark.parametrize(("window", "rows"), [(1, FEW), (20, FEW), (100, 300), (1000, 3000)])
def test_a_page_has_three_windows_at_the_least(window, rows):
    assert sizes(window=window) == [rows]
