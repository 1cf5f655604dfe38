"""What of the list of `leadsman.extensions` an app wants, imported."""

from collections.abc import Iterator
from importlib import import_module
from typing import Any

from leadsman.core.extension import Extension
from leadsman.core.question import imported
from leadsman.core.settings.sections import Sections
from leadsman.core.wiring.plan import Plan
from leadsman.extensions import SHIPPED, Shipped


def shipped(plan: Plan) -> list[Extension]:
    """The extensions of the list that an app wants."""
    return [imported(each, each.extension)() for each in _wanted(plan)]


def load_modules(plan: Plan) -> None:
    """Import these extensions, and what they need besides when the app runs."""
    for each in _wanted(plan):
        imported(each, each.extension)
        for module in each.loads:
            import_module(f"{each.package}.{module}")


def server(sections: Sections) -> Any:
    """The function that runs an app on one of several nodes; None where no other node shares it."""
    for each in SHIPPED:
        for name, section in each.sections.items():
            if section.server and name in sections.shipped:
                return imported(each, section.server)
    return None


def _wanted(plan: Plan) -> Iterator[Shipped]:
    on, variables = plan.sections.shipped.keys(), plan.variables.keys()
    for each in SHIPPED:
        if each.extension and (each.always or on & each.sections.keys() or variables & each.variables):
            yield each
