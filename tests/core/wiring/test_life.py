"""What a part does at a stage of the life of an app costs no other part, whether it raises or hangs."""

import asyncio

import pytest

from leadsman import App
from leadsman.core.events import AppFault
from leadsman.core.extension import JoinPhase
from leadsman.core.mqtt.link import Access
from leadsman.core.wiring.build import Joining, everything
from leadsman.core.wiring.run import serve
from leadsman.testing import MemoryBroker, Scripted, VirtualLoop

STAGES = ("before_stop", "stop_handlers", "close", "after_delivery")
"""The stages of the end that are waited for."""


async def hang(*_):
    await asyncio.Event().wait()


async def hang_for_ever(*_):
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            continue


async def fail(*_):
    raise ZeroDivisionError("of the part")


def fail_at_once(*_):
    raise ZeroDivisionError("of the part")


@pytest.mark.parametrize("act", [hang, hang_for_ever, fail, fail_at_once], ids=lambda act: act.__name__)
@pytest.mark.parametrize("stage", STAGES)
def test_a_part_that_raises_or_hangs_as_the_app_ends_costs_no_last_message_and_no_other_part(tmp_path, stage, act):
    broker, loop, app, faults, others = MemoryBroker(), VirtualLoop(), App("house", mqtt="mqtt://broker"), [], []
    app.add_telemetry("meter", Scripted({"t": 1}), interval=10)

    async def other(*_):
        others.append(loop.time())
        return 0

    def join(core):
        getattr(core.life, stage).extend((act, other))
        core.environment.events.subscribe_to(AppFault, faults.append)

    times = []

    async def run():
        app.load()
        stopping = asyncio.Event()
        loop.call_later(25, lambda: (times.append(loop.time()), stopping.set()))
        plan = app.plan({"STATE_DIRECTORY": str(tmp_path)})
        access = Access(plan.brokers, lambda _: broker.connect)
        alive = await serve(
            plan, access, stopping, joins=(*everything(plan), Joining(JoinPhase.DOORS, "parts.own", join))
        )
        times.append(loop.time())
        return alive

    try:
        alive = loop.run_until_complete(run())
    finally:
        loop.close()
    assert broker.messages("house/status")[-1].json["state"] == "offline"
    assert len(others) == 1
    assert times[1] - times[0] < 2
    failed = act in (fail, fail_at_once)
    assert alive == (0 if failed else 1)
    assert [str(each.error) for each in faults] == (["of the part"] if failed else [])
