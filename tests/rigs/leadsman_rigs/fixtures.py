"""The fixtures of tests with real parts. ``conftest.py`` loads them for all tests, those of the apps included."""

from contextlib import ExitStack, contextmanager

import pytest

from leadsman.testing.embedded import embedded_broker
from leadsman_rigs.dav import Radicale
from leadsman_rigs.listener import Listener
from leadsman_rigs.processes import app_process, program_process
from leadsman_rigs.proxy import Proxy, Way

REAL_PARTS = {
    *("air", "demonstrated", "listen", "listen_all_along", "mosquitto", "old_broker", "old_broker_that_allows"),
    *("program", "proxy", "pty_device", "radicale", "start_app", "start_app_for_all"),
}
"""The fixtures that are real parts, here and in `leadsman.testing.fixtures`."""


def pytest_collection_modifyitems(items):
    """A test that asks for a real part is marked ``system``."""
    for item in items:
        if REAL_PARTS.intersection(item.fixturenames):
            item.add_marker(pytest.mark.system)


@contextmanager
def listening():
    opened = []

    def start(port, **options):
        listener = Listener(port, **options).__enter__()
        opened.append(listener)
        return listener

    yield start
    for listener in opened:
        listener.__exit__()


@pytest.fixture
def listen():
    """Subscribe to everything at a port: ``listen(mosquitto.port)`` gives a `Listener`."""
    with listening() as start:
        yield start


@pytest.fixture(scope="module")
def listen_all_along():
    """As `listen`, for all tests of a module."""
    with listening() as start:
        yield start


@contextmanager
def starting(directory):
    started = []

    def start(code, url, state=None):
        started.append(app_process(code, url, directory / f"app{len(started)}.log", state))
        return started[-1]

    yield start
    end(started)


@pytest.fixture
def start_app(tmp_path):
    """Run the code of an app in a process: ``start_app(code, url)`` gives a `Process`. Each has a state directory of
    its own, unless ``state=`` names one."""
    with starting(tmp_path) as start:
        yield start


@pytest.fixture(scope="module")
def start_app_for_all(tmp_path_factory):
    """As `start_app`, for all tests of a module."""
    with starting(tmp_path_factory.mktemp("apps")) as start:
        yield start


@pytest.fixture
def program(tmp_path):
    """Run an app with its settings: ``program("gas2mqtt", mqtt=url, bus=2)`` gives a `Process`."""
    started = []

    def start(name, *arguments, **settings):
        words = [word for key, value in settings.items() for word in ("--set", f"{key.replace('__', '.')}={value}")]
        state, log = str(tmp_path / "state" / name), tmp_path / f"{name}.log"
        started.append(program_process(name, [*arguments, *words], log, STATE_DIRECTORY=state))
        return started[-1]

    yield start
    end(started)


@pytest.fixture
def demonstrated(program):
    """Run ``NAME --demo`` for some seconds; what it printed."""

    def run(name, seconds):
        running = program(name, "--demo", "--for", f"{seconds}s")
        assert running.process.wait(seconds + 60) == 0, running.log
        assert running.log.startswith("The broker is mqtt://127.0.0.1:"), running.log  # where to subscribe
        return running.log

    return run


@pytest.fixture
def proxy():
    """A bad network before a server: ``proxy(mosquitto.port, delay=0.2)`` gives a `Proxy`; the options are those of
    `Way`."""
    with ExitStack() as started:
        yield lambda port, **way: started.enter_context(Proxy(port, Way(**way)))


@pytest.fixture
def air():
    """A bus with radios; see `leadsman_rigs.bluez`."""
    from leadsman_rigs.bluez import Air  # bumble takes long to import

    with Air() as air:
        yield air


@pytest.fixture
def radicale():
    """A CalDAV server; see `leadsman_rigs.dav`."""
    with Radicale() as radicale:
        yield radicale


@pytest.fixture
def old_broker():
    """The port of a broker that speaks MQTT 3.1.1 only."""
    with embedded_broker() as port:
        yield port


@pytest.fixture
def old_broker_that_allows():
    """A function of topics that makes a broker, MQTT 3.1.1 only, where nothing else may be subscribed to."""

    def start(*topics):
        plugin = "amqtt.plugins.topic_checking.TopicAccessControlListPlugin"
        return embedded_broker({plugin: {"acl": {"anonymous": list(topics)}}})

    return start


def end(started):
    """Kill what still runs, and see that no log has a traceback."""
    for each in started:
        each.kill()
    for each in started:
        assert "Traceback (most" not in each.log, each.log


@pytest.fixture
def stage(monkeypatch, capsys):
    """What a command of the command line finds at its brokers: `leadsman_rigs.stage.Stage`."""
    from leadsman_rigs.stage import Stage  # the tests of apps do without

    return Stage(monkeypatch, capsys)
