"""Settings, where they are injected, and what is made of them."""

import pytest
from tests.integration.rooms import Bus, Settings

from leadsman import App
from leadsman.core.settings.sources import Where
from leadsman.errors import ConfigurationError, InvalidType, InvalidValue
from leadsman.testing import Scripted

READING = {"t": 21.5}


def test_settings_and_their_sections_are_injected_by_type(harness):
    app = App("app", settings=Settings(offset=1.5, bus=Bus(port="/dev/x")))

    @app.telemetry("d", interval=10)
    async def read(settings: Settings, bus: Bus):
        return {"offset": settings.offset, "port": bus.port}

    running = harness(app)
    running.run(1)

    assert running.states("d") == [{"offset": 1.5, "port": "/dev/x"}]
    assert app.settings.offset == 1.5


def test_adapters_may_be_made_of_the_settings(harness):
    class Port:
        def __init__(self, path):
            self.path = path

        async def __aenter__(self):
            return self

        async def __aexit__(self, *exc_info): ...

    app = App("app", settings=Settings(bus=Bus(port="/dev/x")), adapters=lambda settings: (Port(settings.bus.port),))

    @app.telemetry("d", interval=10)
    async def read(port: Port):
        return {"path": port.path}

    running = harness(app)
    running.run(1)

    assert running.states("d") == [{"path": "/dev/x"}]


def test_settings_that_are_not_loaded_cannot_be_read():
    app = App("app", settings=Settings)
    with pytest.raises(InvalidValue, match="not loaded"):
        _ = app.settings
    with pytest.raises(InvalidValue, match="not known"):
        _ = app.brokers
    with pytest.raises(InvalidType, match="pydantic model"):
        App("app", settings={"a": 1})


def test_an_unknown_need_is_refused_with_what_there_is():
    class Nowhere: ...

    app = App("app", settings=Settings)
    with pytest.raises(ConfigurationError, match="Bus, Context, Settings"):

        @app.telemetry("d", interval=5)
        async def read(thing: Nowhere): ...


def test_a_test_reads_neither_environment_nor_files(harness, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("APP_OFFSET", "3")
    (tmp_path / "leadsman.toml").write_text("nonsense = ")
    app = App("app", settings=Settings)

    @app.telemetry(lambda settings: list(settings.rooms), interval=10)
    async def read(settings: Settings):
        return {"offset": settings.offset}

    running = harness(app, settings={"rooms": {"kitchen": {"address": 3}}, "bus.port": "/dev/x"})
    running.run(1)

    assert running.states("kitchen") == [{"offset": 0.0}]
    assert app.settings.bus.port == "/dev/x"


@pytest.mark.parametrize("where", ["names", "adapters"])
def test_a_function_of_the_settings_that_raises_is_a_named_error_with_its_line(where):
    def wrong(settings):
        raise KeyError("port")

    app = App("app", settings=Settings, adapters=wrong if where == "adapters" else ())
    app.add_telemetry(wrong if where == "names" else "d", Scripted(READING), interval=5)

    with pytest.raises(InvalidValue, match=rf"{where}.*: test_settings.py line \d+: KeyError: 'port'"):
        app.load(Where.nowhere({}))
