import pytest

from leadsman.core.spool.backlog import MAX_PAGE_ROWS, MIN_PAGE_ROWS, PageSize


def sizes(*pages, window=20):
    """How many rows each page after these has; each was waited for or not, and is the last one or not."""
    size = PageSize()
    found = [size.rows(window)]
    for waited, last in pages:
        size.came(waited=waited, last=last)
        found.append(size.rows(window))
    return found


def test_pages_double_while_the_connection_waits_for_them():
    assert sizes(*[(True, False)] * 6) == [MIN_PAGE_ROWS, 120, 240, 480, MAX_PAGE_ROWS, MAX_PAGE_ROWS, MAX_PAGE_ROWS]


def test_pages_that_come_in_time_stay_as_they_are():
    assert sizes((True, False), (False, False), (False, False)) == [MIN_PAGE_ROWS, 120, 120, 120]


def test_the_last_page_ends_it():
    assert sizes((True, False), (True, True), (False, False)) == [MIN_PAGE_ROWS, 120, MIN_PAGE_ROWS, MIN_PAGE_ROWS]


@pytest.mark.parametrize(("window", "rows"), [(1, MIN_PAGE_ROWS), (20, MIN_PAGE_ROWS), (100, 300), (1000, 3000)])
def test_a_page_has_three_windows_at_the_least(window, rows):
    assert sizes(window=window) == [rows]
