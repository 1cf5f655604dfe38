"""What is built for an app, and what is not; and the order in which it ends."""

import asyncio
import contextlib
import os
import subprocess
import sys
from importlib import import_module

import pytest

from leadsman import App, Context
from leadsman.core.devices.roster import Departure
from leadsman.core.mqtt.link import Access
from leadsman.core.parts.kinds import DISK, SAVED
from leadsman.core.wiring.build import PARTS, build
from leadsman.errors import ConfigurationError, Stopped
from leadsman.testing import Harness, MemoryBroker, Scripted, VirtualLoop, fail

OPTIONAL = (
    "leadsman.core.readings.controls",
    "leadsman.core.introspection.added_measures",
    "leadsman.core.registration.command",
    "leadsman.core.registration.extensions",
    "leadsman.core.registration.source",
    "leadsman.core.settings.documents",
    "leadsman.core.settings.devices",
    "leadsman.core.loop.host_zone",
    "leadsman.core.adapters.resource",
    "leadsman.core.extension_tools",
    "leadsman.core.introspection.registrations",
    "leadsman.core.readings.device_classes",
    "leadsman.extensions.discovery",
    "leadsman.extensions.nodes.cluster.part",
    "leadsman.extensions.nodes.part",
    "leadsman.extensions.discovery.part",
    "leadsman.core.parts.found_devices",
    "leadsman.core.parts.listeners",
    "leadsman.extensions.http.part",
    "leadsman.extensions.nodes.standby.part",
    "leadsman.extensions.watchdog.part",
    "leadsman.core.text.identifiers",
    "leadsman.extensions.discovery.settings",
    "leadsman.extensions.http",
    "leadsman.core.introspection.watching",
    "uvicorn",
    "leadsman.core.introspection.mqtt_door",
    "leadsman.core.introspection.service",
    "leadsman.extensions.trace.trace",
    "leadsman.extensions.watchdog.watchdog",
    "leadsman.extensions.nodes",
    "leadsman.core.registration.subscription",
    "leadsman.core.runtime.adapter_recovery",
    "leadsman.core.runtime.commands",
    "leadsman.core.runtime.context",
    "leadsman.core.runtime.own_requests",
    "leadsman.core.runtime.failure_state",
    "leadsman.core.runtime.sources",
    "leadsman.core.runtime.subscriber",
    "leadsman.core.spool",
    "leadsman.extensions.nodes.settings",
    "leadsman.extensions.http.settings",
    "dataclasses",
    "decimal",
    "pydantic",
    "shlex",
    "sqlite3",
    "uuid",
)

PROGRAM = """
import asyncio, sys
from leadsman import App
from leadsman.errors import BrokerError

app = App("app", mqtt="mqtt://localhost")

@app.telemetry("d", interval=1)
async def read():
    asyncio.get_running_loop().call_soon(app.stop)
    print(*sys.modules)  # at its end the app imports what stores its only reading
    return {"t": 1}

async def connect(*what):
    raise BrokerError("there is none")

asyncio.run(app.serve(connect, environment={"STATE_DIRECTORY": sys.argv[1]}))
"""


def in_memory(brokers):
    """Access to a broker in memory."""
    return Access(brokers, lambda _: MemoryBroker().connect)


def core_of(app, tmp_path, *, then=lambda core: None):
    """The app that is built, without running it. `then` is called with it on its loop."""
    loop = VirtualLoop()
    resources = contextlib.ExitStack()

    async def run():
        app.load()
        plan = app.plan({"STATE_DIRECTORY": str(tmp_path)})
        core = await build(plan, in_memory(plan.brokers), asyncio.Event(), resources)
        then(core)
        return core

    try:
        return loop.run_until_complete(run())
    finally:
        resources.close()
        loop.close()


@pytest.mark.parametrize("part", PARTS, ids=lambda part: f"{part.module}.{part.join}")
def test_each_part_of_the_list_is_where_the_list_says(part):
    assert callable(getattr(import_module(part.module), part.join))


def test_an_app_that_only_polls_imports_no_part_that_it_does_not_use(tmp_path):
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    unseen = {name: value for name, value in os.environ.items() if "COVERAGE" not in name}  # it imports sqlite3 itself
    found = subprocess.run(command, capture_output=True, text=True, check=True, env=unseen).stdout.split()
    bare = [sys.executable, "-c", "import asyncio, sys; print(*sys.modules)"]  # Python 3.15 imports dataclasses for it
    of_asyncio = subprocess.run(bare, capture_output=True, text=True, check=True, env=unseen).stdout.split()

    assert "leadsman.core.runtime.poll_runner" in found
    assert [module for module in OPTIONAL if module in found and module not in of_asyncio] == []


def test_what_lists_the_devices_before_the_first_reading_imports_no_kind_of_device_that_an_app_does_not_have():
    program = "import leadsman, sys, leadsman.core.introspection.registry_publication; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()

    assert "leadsman.core.introspection.registry" in found
    assert [module for module in OPTIONAL if module in found and module.startswith("leadsman")] == []


def test_a_store_is_a_file_and_needs_no_database(tmp_path):
    program = PROGRAM.replace("import App", "import App, Context").replace("read():", "read(context: Context):")
    program = program.replace("    print(", "    context.store['n'] = 1\n    print(")
    unseen = {name: value for name, value in os.environ.items() if "COVERAGE" not in name}
    command = [sys.executable, "-c", program, str(tmp_path)]
    found = subprocess.run(command, capture_output=True, text=True, check=True, env=unseen).stdout.split()

    assert "leadsman.core.runtime.store" in found
    assert "sqlite3" not in found
    assert "n" in (tmp_path / "d.json").read_text()


def test_what_is_built_does_not_run_yet(tmp_path):
    handler = Scripted({"t": 1})
    app = App("app")
    app.add_telemetry("d", handler, interval=1)

    core = core_of(app, tmp_path)

    assert not core.link.up
    assert core.link.outbox.messages == 0
    assert handler.calls == []


def test_parts_exist_only_where_an_app_uses_them(tmp_path):
    async def source():
        yield {"t": 1}

    async def command(value: int, context: Context): ...

    bare, full = App("app"), App("app", keep_state=True)
    bare.add_telemetry("d", Scripted({"t": 1}), interval=1)
    full.add_source("s", source)
    full.add_command("c", command)

    without = core_of(bare, tmp_path)
    with_all = core_of(full, tmp_path)

    assert (list(without.runners.readers), list(without.runners.commands)) == (["d"], [])
    assert without.find(SAVED) is None
    assert list(with_all.runners.readers) == ["s"]
    assert list(with_all.runners.commands) == ["c"]
    assert with_all.find(SAVED) is not None


def test_handlers_that_are_disabled_are_not_built(tmp_path):
    app = App("app")
    app.add_telemetry("d", Scripted({"t": 1}), interval=1, enabled=False)
    app.add_command("c", Scripted(None), enabled=False)

    core = core_of(app, tmp_path)

    assert not core.runners.readers
    assert not core.runners.commands
    assert list(core.link.subscriptions.listeners) == ["app/introspect", "app/status", "app/registry/#", "app/registry"]


def test_an_app_that_must_end_says_why_after_everything_was_ended():
    app = App("app")
    app.add_telemetry("d", Scripted(fail(100)), interval=1, on_failure="stop")

    with pytest.raises(Stopped, match="d failed for good"), Harness(app) as harness:
        harness.run(5)

    assert harness.status()["state"] == "offline"


def test_the_state_directory_is_systemds_or_the_users():
    def directory(**variables):
        app = App("house")
        app.load()
        return str(app.plan(variables).state_directory)

    assert directory(STATE_DIRECTORY="/var/lib/house:/var/lib/other") == "/var/lib/house"
    assert directory(XDG_STATE_HOME="/home/me/state") == "/home/me/state/leadsman/house"
    at_home = "/home/me/.local/state/leadsman/house"
    assert directory(HOME="/home/me", STATE_DIRECTORY="", XDG_STATE_HOME="") == at_home
    assert directory(HOME="/home/me", XDG_STATE_HOME="relative") == at_home
    assert directory(HOME="") == directory()


@pytest.mark.parametrize("variables", [{}, {"HOME": "", "XDG_STATE_HOME": "", "STATE_DIRECTORY": ""}])
@pytest.mark.parametrize("keep", [False, True])
def test_a_user_without_a_home_directory_has_readings_in_memory_only(monkeypatch, caplog, variables, keep):
    """docker run --user 54321 (psf/black#2813): no entry in /etc/passwd, and no HOME, or an empty one."""

    def nobody(_):
        raise KeyError("getpwuid(): uid not found: 54321")

    monkeypatch.setattr("pwd.getpwuid", nobody)
    for name in ("XDG_STATE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    app, loop, resources = App("app", keep_state=keep), VirtualLoop(), contextlib.ExitStack()
    app.add_telemetry("d", Scripted({"t": 1}), interval=1)

    async def run():
        app.load()
        plan = app.plan(variables)
        return await build(plan, in_memory(plan.brokers), asyncio.Event(), resources)

    try:
        core = loop.run_until_complete(run())
    finally:
        resources.close()
        loop.close()

    assert core.find(DISK) is None
    assert "set STATE_DIRECTORY" in caplog.text


def test_the_further_topics_of_a_device_that_has_moved_are_listed_no_more(tmp_path):
    app = App("app")
    app.add_telemetry("d", Scripted({"t": 1}), interval=1)

    def move(core):
        core.others.add("d", "app/d/extra")
        core.roster.leave("d", Departure.MOVED)

    assert core_of(app, tmp_path, then=move).others.topics == {}


def test_a_part_that_comes_too_late_for_the_readings_is_told_so(tmp_path):
    app = App("app")
    app.add_telemetry("d", Scripted({"t": 1}), interval=1)
    core = core_of(app, tmp_path)

    with pytest.raises(ConfigurationError, match=r"call it in JoinPhase\.BEFORE_DEVICES"):
        core.listen(print)
