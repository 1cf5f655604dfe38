"""The section `[cluster]`."""

import socket
from pathlib import Path

import pytest

from leadsman import App
from leadsman.core.settings.sources import Where
from leadsman.errors import ConfigurationError
from leadsman.extensions.nodes.settings import ClusterSettings

ENGINE = "nats://localhost:4222"


def loaded(file: str, environment: dict[str, str], directory: Path, flags: dict[str, str] | None = None) -> App:
    app = App("house")
    app.add_telemetry("boiler", lambda: {"t": 1}, interval=1)
    (directory / "leadsman.toml").write_text(file)
    app.load(Where(environment, directory, None, flags or {}, directory))
    return app


def of(file: str, directory: Path, **environment: str) -> tuple[object, ...]:
    found = loaded(file, {f"CLUSTER__{key.upper()}": value for key, value in environment.items()}, directory)
    assert found.setup.sections.of(ClusterSettings) is not None
    return found.setup.sections.of(ClusterSettings)


def test_without_an_engine_there_is_no_cluster(tmp_path: Path) -> None:
    assert loaded("", {}, tmp_path).setup.sections.of(ClusterSettings) is None
    assert loaded("[cluster]\nengine = ''", {}, tmp_path).setup.sections.of(ClusterSettings) is None


def test_the_node_has_the_name_of_the_machine_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "gateway-1.local")
    found = of(f"[cluster]\nengine = '{ENGINE}'", tmp_path)
    assert found == (ENGINE, "gateway-1.local", frozenset(), 15.0, 256)


def test_a_variable_lists_labels_with_commas(tmp_path: Path) -> None:
    found = of("", tmp_path, engine=ENGINE, node="one", labels="ble, serial:/dev/ttyUSB0", ttl="30s", shards="64")
    assert found == (ENGINE, "one", frozenset({"ble", "serial:/dev/ttyUSB0"}), 30.0, 64)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("engine = 'natts://localhost'", "did you mean nats://?"),
        ("engine = 4222", "it is not text"),
        ("node = 'a/b'", "write letters, digits"),
        ("node = 1", "is not text"),
        ("labels = [1]", "is not a list of labels"),
        ('labels = ["a\\u0007"]', "printable characters"),
        ("ttl = '1s'", "too short"),
        ("ttl = '1h'", "too long"),
        ("ttl = true", "is not a duration"),
        ("shards = 0", "0 shards are too few; write 1 to 65536"),
        ("shards = 'many'", "is not a whole number"),
        ("nodes = 3", "unknown"),
    ],
)
def test_a_wrong_value_is_named_with_its_origin(line: str, message: str, tmp_path: Path) -> None:
    engine = "" if line.startswith("engine") else f"engine = '{ENGINE}'\n"
    with pytest.raises(ConfigurationError, match="cluster") as raised:
        loaded(f"[cluster]\n{engine}{line}", {}, tmp_path)
    assert message in str(raised.value)
    assert "leadsman.toml" in str(raised.value)


def test_a_section_without_an_engine_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"cluster\.engine: missing"):
        loaded("[cluster]\nnode = 'one'", {}, tmp_path)


def test_the_name_of_a_machine_that_can_be_no_node_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "küche")
    with pytest.raises(ConfigurationError, match="the name of this machine cannot be used"):
        of(f"[cluster]\nengine = '{ENGINE}'", tmp_path)


def test_credentials_of_the_engine_are_not_shown(tmp_path: Path) -> None:
    app = loaded("[cluster]\nengine = 'nats://me:secret@host'\nnode = 'one'", {}, tmp_path)
    shown = {row.path: row.value for row in app.setup.rows}
    assert shown["cluster.engine"] == "'nats://***@host'"


def test_a_cluster_excludes_a_standby(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="leave standby out"):
        loaded(f"[cluster]\nengine = '{ENGINE}'\nnode = 'one'", {}, tmp_path, {"standby.enabled": "true"})


def test_a_node_has_names_of_its_own(tmp_path: Path) -> None:
    app = loaded(f"[cluster]\nengine = '{ENGINE}'\nnode = 'one'", {}, tmp_path)
    assert app.client_id == "house-one"
    assert app.topics.status == "house/nodes/one/status"
    assert app.topics.registry == "house/nodes/one/registry"
    assert app.topics.state("boiler") == "house/boiler/state"
    assert app.setup.identity.state_name == "house+one"


def test_a_dry_run_is_no_node(tmp_path: Path) -> None:
    app = loaded(f"[cluster]\nengine = '{ENGINE}'\nnode = 'one'", {}, tmp_path)
    app.rehearse()
    assert app.setup.sections.of(ClusterSettings) is None


def test_no_device_of_a_cluster_is_called_nodes(tmp_path: Path) -> None:
    app = App("house")
    app.add_telemetry("nodes", lambda: {"t": 1}, interval=1)
    with pytest.raises(ConfigurationError, match="no device may have the name 'nodes'"):
        app.load(Where.nowhere({"cluster.engine": ENGINE, "cluster.node": "one"}))


def test_readings_of_a_cluster_do_not_wait_on_disk(tmp_path: Path) -> None:
    file = f"[cluster]\nengine = '{ENGINE}'\nnode = 'one'\n[outbox]\ndurability = "
    assert loaded(f"{file}'memory'", {}, tmp_path).setup.sections.of(ClusterSettings) is not None
    with pytest.raises(ConfigurationError, match=r"leave outbox\.durability out"):
        loaded(f"{file}'write-through'", {}, tmp_path)
