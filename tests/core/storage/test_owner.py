"""Which app wrote a state directory: one that was moved, renamed or edited is still the same app."""

import json
import os
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadsman.core.storage import owner
from leadsman.core.storage.owner import FILE, Owner

METER = Owner("m", "/home/ann/meter/m.py", frozenset({"gas", "water"}))


@pytest.mark.parametrize(
    ("app", "program", "devices", "other"),
    [
        ("m", "/home/ann/meter/m.py", {"gas", "water"}, False),
        ("m", "/opt/meter/m.py", {"gas", "water"}, False),  # moved
        ("m", "/home/ann/meter/m.py", {"heat"}, False),  # edited
        ("meter", "/opt/meter/meter.py", {"gas", "heat"}, False),  # all of it, but a device
        ("m", "/opt/meter/m.py", set(), False),  # its devices are found
        ("m", "/home/ann/boiler/m.py", {"boiler"}, True),
        ("boiler", "/home/ann/meter/m.py", {"boiler"}, True),  # two apps of one file, in one STATE_DIRECTORY
        ("boiler", "/home/ann/boiler/b.py", {"boiler"}, True),
    ],
)
def test_an_app_is_another_one_if_it_has_no_device_and_is_another_program_or_has_another_name(
    app, program, devices, other
):
    this = Owner(app, program, frozenset(devices))

    assert (this.is_other(METER), METER.is_other(this)) == (other, other)


def test_what_is_written_is_read(tmp_path):
    this = owner.this_process("m", "/m.py", ["b", "a"])
    owner.write(tmp_path, this)

    assert owner.read(tmp_path) == this
    assert (this.pid, this.host) == (os.getpid(), socket.gethostname())


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)
fields = st.fixed_dictionaries({}, optional=dict.fromkeys(Owner._fields, json_values))


@given(fields.map(json.dumps).map(str.encode) | json_values.map(json.dumps).map(str.encode) | st.binary())
def test_whatever_is_there_is_an_owner_or_none(tmp_path_factory, data):
    directory = tmp_path_factory.mktemp("state")
    (directory / FILE).write_bytes(data)

    found = owner.read(directory)

    assert found is None or isinstance(str(found), str)
    assert owner.in_use(directory).startswith("another process of this app runs")


@pytest.mark.parametrize(
    ("pid", "host", "named"),
    [
        (os.getppid(), socket.gethostname(), True),
        (4711, "another-host", True),
        (os.getpid(), socket.gethostname(), False),  # in containers every app may be process 1
        (1 << 22, socket.gethostname(), False),  # above PID_MAX_LIMIT of Linux
        (0, socket.gethostname(), False),
    ],
    ids=["the parent", "of another host", "this one", "too large", "none"],
)
def test_the_process_is_named_if_it_may_run(tmp_path, pid, host, named):
    owner.write(tmp_path, METER._replace(pid=pid, host=host))

    assert (f" (process {pid} on {host}, {METER.program})" in owner.in_use(tmp_path)) is named


@pytest.mark.parametrize(
    ("names", "missed"),
    [
        ([], False),
        ([FILE, "subscriptions.json"], False),
        ([FILE, "outbox.db"], True),
        ([FILE, "gas.json"], True),
        (["resilience.db"], True),
    ],
)
def test_only_what_an_app_would_miss_counts(tmp_path, names, missed):
    for name in names:
        (tmp_path / name).touch()

    assert owner.holds_something(tmp_path) is missed
    assert not owner.holds_something(tmp_path / "nowhere")
