"""Which library an engine loads, and when."""

import subprocess
import sys

import pytest

from leadsman import App
from leadsman.errors import InvalidValue, NotInstalled
from leadsman.nodes.lease.engines import store_at
from leadsman.nodes.lease.lease import Member, Terms
from leadsman_rigs.stage import run_for

TERMS, MEMBER = Terms("house"), Member("a", "1")


def test_the_scheme_of_a_url_chooses_the_engine():
    for url in ("nats://one:4222,nats://two:4222", "tls://one"):
        assert type(store_at(url, TERMS, MEMBER)).__name__ == "JetStreamStore"
    for url in ("postgresql://u:p@host/db", "postgres://host/db"):
        assert type(store_at(url, TERMS, MEMBER)).__name__ == "PostgresStore"


@pytest.mark.parametrize("url", ["", "redis://host", "host:4222", "NATS:/host"])
def test_another_scheme_is_refused_with_an_example_of_each(url):
    with pytest.raises(InvalidValue, match=r"write nats://host:4222 or postgresql://"):
        store_at(url, TERMS, MEMBER)


@pytest.mark.parametrize(
    ("url", "library", "extra"), [("nats://h", "nats", "nats"), ("postgresql://h/d", "psycopg", "postgres")]
)
def test_a_library_that_is_missing_is_named_with_what_to_type(monkeypatch, capsys, url, library, extra):
    for module in [
        name
        for name in sys.modules
        if name.startswith(("leadsman.nodes.lease.jetstream", "leadsman.nodes.lease.postgres"))
    ]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(NotInstalled, match=rf'pip install "leadsman\[{extra}\]"'):
        store_at(url, TERMS, MEMBER)

    assert run_for(App("house"), "check", "--set", f"cluster.engine={url}") == 78
    assert f'pip install "leadsman[{extra}]"' in capsys.readouterr().err


def test_an_app_without_a_cluster_loads_nothing_of_it_and_the_protocol_loads_no_engine():
    code = (
        "import sys, leadsman; app = leadsman.App('a');"
        "assert not [m for m in sys.modules if m.startswith('leadsman.nodes')];"
        "import leadsman.nodes.lease.engines, leadsman.nodes.lease.lease, leadsman.testing.leases;"
        "assert not {'nats', 'psycopg'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
