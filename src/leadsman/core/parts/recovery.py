"""Adapters that no longer work are opened again."""

from leadsman.core.event_bus import Phase
from leadsman.core.runtime.adapter_recovery import AdapterRecovery
from leadsman.core.wiring.core import Core


def join(core: Core) -> None:
    """Follow which adapters fail."""
    plan = core.plan
    needs = {each.name: each.needs for each in plan.readers}
    recovery = AdapterRecovery(plan.adapters, needs, plan.last_resort, core.environment)
    core.environment.events.subscribe(recovery.observe, Phase.ACT)
