"""The time zone of the host, as the C library takes it."""

import os
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path

import pytest
import tzlocal

from leadsman.core.loop.host_zone import host_zone
from leadsman.errors import InvalidValue

MOMENTS = range(1_760_000_000, 1_830_000_000, 5 * 3600)
OF_THE_C_LIBRARY = f"""
import time
print(*(time.localtime(at).tm_gmtoff for at in range({MOMENTS.start}, {MOMENTS.stop}, {MOMENTS.step})))
"""
LEGACY = [each for each in ("EST5EDT",) if Path("/usr/share/zoneinfo", each).exists()]
"""Without a file of this name, as in a Debian that has no tzdata-legacy, the C library takes rules of its own."""


def offsets(zone):
    return [datetime.fromtimestamp(at, zone).utcoffset() for at in MOMENTS]


@pytest.mark.parametrize(
    "tz",
    [
        *("UTC0", "UTC", "", ":", "Europe/Berlin", ":Europe/Berlin", "<+07>-7", "IST-5:30", "UTC+3"),
        *LEGACY,
        *("CET-1CEST,M3.5.0,M10.5.0/3", "AEST-10AEDT,M10.1.0,M4.1.0/3", "GMT0BST,M3.5.0/1,M10.5.0"),
        *("EST5EDT4,J60/2,J300/1:30", "<-03>3<-02>,M3.5.0/-2,M10.5.0/-1", "IST-1GMT0,M10.5.0,M3.5.0/1"),
        *("/usr/share/zoneinfo/Asia/Kolkata", ":/usr/share/zoneinfo/Asia/Kolkata"),
    ],
)
def test_a_zone_has_the_offsets_of_the_c_library(tz):
    """POSIX.1-2017 §8.3; regebro/tzlocal#132."""
    environment = {**os.environ, "TZ": tz}
    done = subprocess.run(
        [sys.executable, "-c", OF_THE_C_LIBRARY], env=environment, capture_output=True, text=True, check=True
    )

    assert offsets(host_zone({"TZ": tz})) == [timedelta(seconds=int(each)) for each in done.stdout.split()]


@pytest.mark.parametrize("tz", ["Mars/Olympus", "Europe", "berlin", "CET-1CEST", "../../etc/passwd", "\x00", "ä", "/"])
def test_a_name_of_no_zone_is_an_error_that_names_the_variable(tz):
    with pytest.raises(InvalidValue, match="TZ is .*, which is no time zone; write the name of a zone"):
        host_zone({"TZ": tz})


def confused():
    raise KeyError("Multiple conflicting time zone configurations found")


def test_files_that_contradict_each_other_leave_the_one_that_the_c_library_reads(monkeypatch):
    monkeypatch.setattr(tzlocal, "get_localzone", confused)

    assert offsets(host_zone({}, Path("/usr/share/zoneinfo/Asia/Kolkata"))) == [timedelta(hours=5.5)] * len(MOMENTS)


def test_a_machine_without_a_zone_has_utc(monkeypatch, tmp_path):
    monkeypatch.setattr(tzlocal, "get_localzone", confused)

    assert set(offsets(host_zone({}, tmp_path / "none"))) == {timedelta(0)}


def test_a_file_that_is_no_zone_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(tzlocal, "get_localzone", confused)
    (tmp_path / "localtime").write_bytes(b"no zone")

    for path in (tmp_path / "localtime", tmp_path):
        with pytest.raises(InvalidValue, match="the time zone of this machine, .* write the name of a zone"):
            host_zone({}, path)
