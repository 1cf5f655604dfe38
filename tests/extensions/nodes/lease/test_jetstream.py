"""When the client of NATS is loaded, and which URLs its store accepts."""

import subprocess
import sys

import pytest

from leadsman import App
from leadsman.errors import InvalidValue
from leadsman.extensions.nodes.lease.jetstream import JetStreamStore
from leadsman.extensions.nodes.lease.lease import Member, Terms
from leadsman_rigs.stage import run_for

TERMS, MEMBER = Terms("house"), Member("a", "1")


@pytest.mark.parametrize("url", ["nats://one:4222,nats://two:4222", "tls://one"])
def test_a_server_or_several_with_or_without_tls_keep_the_leases(url):
    JetStreamStore(url, TERMS, MEMBER)


@pytest.mark.parametrize("url", ["", "redis://host", "postgresql://host/db", "host:4222", "NATS:/host"])
def test_another_engine_is_refused_with_an_example(url):
    with pytest.raises(InvalidValue, match=r"write nats://one:4222,nats://two:4222"):
        JetStreamStore(url, TERMS, MEMBER)


def test_a_library_that_is_missing_is_named_with_what_to_type(monkeypatch, capsys):
    monkeypatch.delitem(sys.modules, "leadsman.extensions.nodes.lease.jetstream")
    monkeypatch.setitem(sys.modules, "nats", None)

    assert run_for(App("house"), "check", "--set", "cluster.engine=nats://h") == 78
    assert 'pip install "leadsman[nats]"' in capsys.readouterr().err


def test_an_app_without_a_cluster_loads_nothing_of_it_and_the_protocol_loads_no_engine():
    code = (
        "import sys, leadsman; app = leadsman.App('a');"
        "assert not [m for m in sys.modules if m.startswith('leadsman.extensions.nodes')];"
        "import leadsman.extensions.nodes.lease.store, leadsman.extensions.nodes.lease.lease;"
        "assert 'nats' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
