"""The log of what happens."""

import logging

from leadsman._version import UNVERSIONED
from leadsman.core.loop.clock import rfc3339
from leadsman.core.monitoring.event_log import Log, on_reading
from leadsman.core.text import clean, count_noun, log_fields
from leadsman.core.wiring.core import Core
from leadsman.core.wiring.plan import Plan

logger = logging.getLogger("leadsman")


def open_log(core: Core) -> None:
    """Log what is started, before any part waits for anything."""
    logger.info("%s", _opening(core.plan), extra=log_fields("start"))


def join(core: Core) -> None:
    """Log what has failed since an earlier run, and what happens."""
    plan, events = core.plan, core.environment.events
    for name, health in core.records.entities.items():
        if health.failing_since is not None:
            since, error = rfc3339(health.failing_since), f"{health.trouble.error_type}: {health.trouble.error_message}"
            logger.info("%s: still failing since %s: %s", name, since, error, extra=log_fields("still failing", name))
    log = Log(plan.identity.name, plan.topics.prefix, core.log_lines, core.environment.timers)
    events.subscribe(log.observe, readings=False)
    if logger.isEnabledFor(logging.DEBUG):
        events.subscribe(on_reading)


def _opening(plan: Plan) -> str:
    """The first line: what is started, and with what."""
    numbers = {
        "source": sum(each.enabled for each in plan.registry.sources.values()),
        "command": sum(each.enabled for each in plan.registry.commands.values()),
        "subscription": len(plan.registry.subscriptions),
    }
    devices = count_noun(len({each.name for each in plan.handlers}), "device")
    devices += "".join(f", {count_noun(number, what)}" for what, number in numbers.items() if number)
    settings = f"settings from {plan.settings_file}" if plan.settings_file else "no settings file"
    where = f"{'broker' if len(plan.brokers) == 1 else 'brokers'} {plan.brokers}"
    about = f"{devices}, {where}, topics below {plan.topics.prefix}/, {settings}"
    version = "" if plan.identity.version == UNVERSIONED else f" {clean(plan.identity.version)}"
    return f"{plan.identity.name}{version} starts with leadsman {plan.identity.leadsman}: {about}"
