"""What parts of an app offer each other, and what they leave alone."""

import ast
import asyncio
import contextlib
import re
from pathlib import Path

import pytest

import leadsman
from leadsman import App
from leadsman.core.extension import JoinPhase
from leadsman.core.mqtt.link import Access
from leadsman.core.parts.kinds import DISK, HEARTBEAT, STATUSES
from leadsman.core.wiring.build import Joining, build, everything
from leadsman.core.wiring.offers import Kind, Offers
from leadsman.errors import ConfigurationError
from leadsman.testing import MemoryBroker, Scripted, VirtualLoop

NUMBER: Kind[int] = Kind("the number", "parts.number")
ROOT = Path(leadsman.__file__).parent


def part(name, join):
    """A part of this name."""
    return lambda plan: [Joining(JoinPhase.DEVICES, name, join)]


def without(module):
    """All parts but one."""
    return lambda plan: [each for each in everything(plan) if each.by != module]


def built(tmp_path, *parts):
    """An app of these parts."""
    app, loop, resources = App("app"), VirtualLoop(), contextlib.ExitStack()
    app.add_telemetry("d", Scripted({"t": 1}), interval=1)

    async def run():
        app.load()
        plan = app.plan({"STATE_DIRECTORY": str(tmp_path)})
        access = Access(plan.brokers, lambda _: MemoryBroker().connect)
        return await build(
            plan, access, asyncio.Event(), resources, joins=[each for part in parts for each in part(plan)]
        )

    try:
        return loop.run_until_complete(run())
    finally:
        resources.close()
        loop.close()


def test_what_one_part_offers_another_one_has(tmp_path):
    seen = []
    core = built(
        tmp_path,
        part("parts.number", lambda core: core.offer(NUMBER, 0)),
        part("parts.asks", lambda core: seen.append((core.of(NUMBER), core.find(NUMBER)))),
    )

    assert seen == [(0, 0)]
    assert core.of(NUMBER) == 0


def test_what_nobody_offers_is_nothing_or_an_error_that_names_the_part_and_its_place(tmp_path):
    assert Offers().find(NUMBER) is None
    with pytest.raises(ConfigurationError) as raised:
        built(
            tmp_path,
            part("parts.asks", lambda core: core.of(NUMBER)),
            part("parts.number", lambda core: core.offer(NUMBER, 1)),
        )
    assert str(raised.value) == (
        "parts.number offers the number, and has not joined the app; let parts.asks join in a later phase, or below it"
    )
    with pytest.raises(ConfigurationError, match=r"; let it join$"):
        Offers().of(NUMBER)


def test_two_parts_that_offer_one_thing_are_an_error_that_names_both(tmp_path):
    with pytest.raises(ConfigurationError) as raised:
        built(
            tmp_path,
            part("parts.number", lambda core: core.offer(NUMBER, 1)),
            part("parts.other", lambda core: core.offer(NUMBER, 2)),
        )
    assert str(raised.value) == ("parts.number and parts.other both offer the number; leave one of them out of the app")


def test_an_app_without_one_of_our_parts_names_it_where_it_is_needed(tmp_path):
    with pytest.raises(ConfigurationError, match=r"^leadsman\.core\.parts\.heartbeat offers the heartbeat"):
        built(tmp_path, without("leadsman.core.parts.heartbeat")).of(HEARTBEAT)
    core = built(tmp_path, without("leadsman.core.parts.disk"))
    assert core.find(DISK) is None
    assert core.of(STATUSES)


def assignments(path):
    """The places where a module assigns to what it reaches through the core."""
    for node in ast.walk(ast.parse(path.read_text())):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        for target in targets:
            parts = ast.unparse(target).split(".") if isinstance(target, ast.Attribute | ast.Subscript) else []
            if "core" in parts[:-1] or "_core" in parts[:-1]:
                yield f"{path.name}:{node.lineno} {ast.unparse(target)}"


def test_no_part_assigns_to_the_core():
    modules = sorted([*ROOT.glob("core/parts/*.py"), *ROOT.glob("extensions/**/*.py")])

    assert len(modules) > 20
    assert [each for path in modules for each in assignments(path)] == []


def test_the_core_imports_no_part_and_no_room_that_only_parts_use():
    names = {
        node.module
        for node in ast.walk(ast.parse((ROOT / "core/wiring/core.py").read_text()))
        if isinstance(node, ast.ImportFrom)
    }
    rooms = {name.split(".")[2] for name in names if name.startswith("leadsman.core.")}

    assert "devices" in rooms
    assert "parts" not in rooms
    assert {name for name in names if "introspection" in name} == {"leadsman.core.introspection.added"}  # a hook
    assert not [name for name in names if name.startswith(("leadsman.extensions", "leadsman.tools"))]


def test_the_reference_lists_what_the_core_offers_and_nothing_else_is_reachable(tmp_path):
    page = (ROOT.parents[1] / "docs" / "reference" / "extensions.md").read_text()
    rows = re.findall(r"^\| (`core\..*?) \| .* \| 0\.1\.0 \| (?:yes|no) \|$", page, re.MULTILINE)
    listed = {name for row in rows for name in re.findall(r"`core\.(\w+)", row)}
    listed |= set(re.findall(r"`core\.(take_\w+)`", page))
    core = built(tmp_path)

    reachable = {name for name in dir(core) if not name.startswith("_")}

    assert "listen" in listed
    assert listed == reachable
