"""A power cut at any operation of the disk loses nothing that was accepted."""

from leadsman.core.spool import tables
from leadsman_rigs.power import run


def test_a_power_cut_loses_no_accepted_row():
    figures = run(100, 1)

    assert figures["rows_lost"] == figures["rows_invented"] == figures["files_damaged"] == 0
    assert figures["commits"] > 100


def test_the_simulated_disk_loses_commits_that_are_not_synced(monkeypatch):
    settings = tuple(each.replace("= FULL", "= NORMAL") for each in tables.LAYOUT.settings)
    monkeypatch.setattr(tables, "LAYOUT", tables.LAYOUT._replace(settings=settings))

    assert run(20, 1)["rows_lost"] > 0
