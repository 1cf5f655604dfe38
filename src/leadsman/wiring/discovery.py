"""The convention by which an app describes its devices. Imported only where discovery is on."""

from leadsman.discovery.description import AppDescription, Convention
from leadsman.discovery.homeassistant import HomeAssistant
from leadsman.discovery.registered import Registered
from leadsman.settings.discovery import Discovery
from leadsman.wiring.plan import Plan


def registered_of(plan: Plan) -> Registered:
    """The devices that are described."""
    return Registered({each.name: each for each in plan.readers if each.name not in plan.jobs}, plan.commands)


def convention_of(plan: Plan, discovery: Discovery, registered: Registered) -> Convention:
    """What describes them. Its `own` and `topics` say where it publishes, and `births` what else it listens to."""
    app = AppDescription(plan.name, plan.version, plan.leadsman, plan.topics, discovery.ids)
    return HomeAssistant(app, registered.names, discovery.prefix)
