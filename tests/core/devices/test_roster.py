"""Who learns that a device has joined or left, and in which order."""

import pytest

from leadsman.core.devices.roster import Departure, Device, Follower, Roster, RosterPhase


def device(name):
    return Device(name, None, None, None, None, 0.0)


@pytest.fixture
def noted():
    return []


@pytest.fixture
def roster(noted):
    roster = Roster(None)

    def follower(mark):
        return Follower(
            lambda each: noted.append((mark, each.name, each.name in roster)),
            lambda each, why: noted.append((mark, each.name, why, each.name in roster)),
        )

    for phase, mark in (
        (RosterPhase.REPORT, "registry"),
        (RosterPhase.HEALTH, "health"),
        (RosterPhase.HEALTH, "ledger"),
    ):
        roster.follow(phase, follower(mark))
    return roster


def test_what_joins_is_known_first_to_health_and_last_to_reports(roster, noted):
    roster.join(device("d"))

    assert noted == [("health", "d", True), ("ledger", "d", True), ("registry", "d", True)]
    assert [*roster] == ["d"]


@pytest.mark.parametrize("why", Departure)
def test_what_leaves_is_forgotten_in_the_reverse_order(roster, noted, why):
    roster.join(device("d"))
    noted.clear()
    roster.leave("d", why)

    assert noted == [("registry", "d", why, False), ("ledger", "d", why, False), ("health", "d", why, False)]
    assert not roster


def test_a_name_is_taken_once(roster, noted):
    roster.join(device("d"))
    noted.clear()

    with pytest.raises(ValueError, match="there is a device 'd' already"):
        roster.join(device("d"))
    with pytest.raises(KeyError):
        roster.leave("e", Departure.MOVED)
    assert noted == []


def test_a_view_has_only_the_devices_that_have_what_it_shows(roster):
    runner, queue = object(), object()
    roster.join(device("nothing"))
    roster.join(device("read")._replace(runner=runner))
    roster.join(device("both")._replace(runner=runner, queue=queue))

    assert dict(roster.readers) == {"read": runner, "both": runner}
    assert dict(roster.queues) == {"both": queue}
    assert len(roster.readers) == 2
    assert "nothing" not in roster.readers
    assert roster.readers.get("invented") is None
    assert not roster.polls
