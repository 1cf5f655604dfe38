"""Routers: registrations of a module, included with a prefix."""

import pytest
from tests.integration.rooms import ROOMS, Settings

from leadsman import App, Router
from leadsman.errors import InvalidType
from leadsman.testing import Scripted

READING = {"t": 21.5}


def test_a_router_brings_its_registrations_with_a_prefix(harness):
    router = Router("upstairs")
    router.add_telemetry("bath", Scripted(READING), interval=10)
    router.add_command("lamp", Scripted({}))
    app = App("app")
    app.include(router)
    app.include(router, prefix="east")

    running = harness(app)
    running.run(1)

    assert running.states("upstairs_bath") == running.states("east_upstairs_bath") == [READING]
    assert set(app.commands) == {"upstairs_lamp", "east_upstairs_lamp"}


def test_routers_nest_and_prefix_names_of_every_kind():
    inner, outer = Router("b"), Router("a")
    inner.add_telemetry(["x", "y"], Scripted(READING), interval=5)
    inner.add_telemetry(lambda settings: settings.rooms, Scripted(READING), interval=5)
    inner.add_periodic({"z": None}, Scripted(None), interval=5)
    outer.include(inner)
    app = App("app", settings=Settings(rooms=ROOMS))
    app.include(outer)
    app.load()

    assert set(app.telemetries) == {"a_b_x", "a_b_y", "a_b_z", "a_b_kitchen", "a_b_attic"}


def test_only_routers_are_included():
    with pytest.raises(InvalidType, match="Router"):
        App("app").include(App("other"))
