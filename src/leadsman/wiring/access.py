"""What an app publishes and subscribes to, as topic filters, for the access list of a broker."""

from typing import NamedTuple

from leadsman.registration.injection import ContextDependency
from leadsman.wiring.plan import Plan


class Access(NamedTuple):
    """The topic filters of an app."""

    publish: tuple[str, ...]
    """What it publishes to. Devices are ``+``, so that the list need not change with them."""
    subscribe: tuple[str, ...]
    """What it subscribes to."""


def access_of(plan: Plan) -> Access:
    """The topic filters that an app needs: readings, availability, errors, history and answers of its devices; its own
    status, registry and errors; and the requests that make sense for it. Whatever it retains it may also remove."""
    topics, own, filters = plan.topics, plan.own_filters, plan.filters
    publish = [topics.status, own["registry"], topics.error, f"{topics.introspect}/response"]
    words = ["state", "availability", "error", "ledger"]
    if "set" in filters:
        words += ["set/result", "set/response"]
    if "get" in filters:
        words.append("get/response")
    if "operator" in filters:
        words.append("+/set/response")
    publish += [topics.of("+", word) for word in words]
    if any(isinstance(need, ContextDependency) for each in plan.handlers for _, need in each.needs):
        publish = [*publish[:4], topics.of("+", "#")]  # a handler may publish to any topic of its device
    return Access(tuple(publish), (*filters.values(), *own.values()))
