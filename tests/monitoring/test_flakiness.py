import itertools

from leadsman.monitoring.flakiness import FEW, MANY, WINDOW, step


def told(retried, seconds=60.0):
    """What is told of a device whose polls needed retries or not, with the number of the poll."""
    flaky, found = None, []
    for number, needed in enumerate(retried, 1):
        flaky, word = step(flaky, number, number * seconds, retried=needed)
        if word:
            found.append((number, word))
    return found


def test_a_device_is_flaky_once_half_of_its_last_polls_needed_retries():
    assert told([True, False] * WINDOW)[0] == (WINDOW - 1, "flaky")


def test_it_is_flaky_until_nearly_none_does():
    found = told([True] * MANY + [False] * WINDOW)

    assert found == [(MANY, "flaky"), (MANY + WINDOW - FEW, "steady")]


def test_a_device_that_needs_a_retry_at_every_third_poll_is_not_flaky():
    assert told([True, False, False] * 100) == []


def test_one_that_changes_its_mind_is_told_once_an_hour():
    found = told(([True] * MANY + [False] * WINDOW) * 20, seconds=10)

    flaky = [number for number, word in found if word == "flaky"]
    assert all(after - before >= 360 for before, after in itertools.pairwise(flaky))
    assert len(flaky) >= 1


def test_a_device_without_retries_is_not_remembered():
    assert step(None, 5, 0.0, retried=False) == (None, None)
