"""What an app publishes and subscribes to, as topic filters, for the access list of a broker."""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from leadsman.core.introspection.registry import keeps_others
from leadsman.core.mqtt.topics import Topics
from leadsman.core.wiring.plan import Plan
from leadsman.extensions.nodes.failure_state import filters_of

if TYPE_CHECKING:
    from leadsman.extensions.discovery.homeassistant import HomeAssistant
    from leadsman.extensions.discovery.registered import DescribedDevices


class AccessList(NamedTuple):
    """The topic filters of an app."""

    publish: tuple[str, ...]
    """What it publishes to. Devices are ``+``, so that the list need not change with them."""
    subscribe: tuple[str, ...]
    """What it subscribes to."""


def access_of(plan: Plan) -> AccessList:
    """The topic filters that an app needs: readings, availability, errors, ledgers and answers of its devices; its own
    status, registry and errors; the requests that make sense for it; what it subscribes to elsewhere; and what it sends
    by discovery. Whatever it retains it may also remove.

    Raises:
        InvalidValue: two devices have one identifier of discovery.
    """
    if plan.sections.cluster is not None:  # one list for all nodes
        topics = Topics(plan.topics.prefix, plan.topics.root, "+")
        plan = plan._replace(identity=plan.identity._replace(topics=topics))
    topics, own, filters, jobs = plan.topics, plan.own_filters, plan.filters, plan.jobs
    publish = [topics.status, own["registry"], topics.error, f"{topics.introspect}/response"]
    if plan.sections.standby is not None:
        publish.append(topics.lease)
    if plan.sections.shared:
        publish += [topics.of_node("+"), f"{topics.drain('+')}/response"]
    shared = plan.sections.shared and plan.keep_state
    words = ["state", "availability", "error", "ledger"]
    if any(reader.delivery.history is not None for reader in plan.readers if reader.name not in jobs):
        words.append("history")
    words += {each.content.name: None for each in plan.readers if each.content is not None}
    if shared:
        words.append("resilience")
    if "set" in filters:
        words += ["set/result", "set/response"]
    if "get" in filters:
        words.append("get/response")
    if "operator" in filters:
        words.append("+/set/response")
    asking = [each for each in plan.handlers if keeps_others((each,))]
    if asking:
        publish.append(topics.of("+", "#"))  # any topic of its device
    else:
        publish += [topics.of("+", word) for word in words]
    convention = described_by(plan)
    if topics.root is not None:
        health = [] if convention is None else ["health"]
        publish += _of_root(topics, [*words, *health], any_topic=any(each.name == topics.root for each in asking))
    if convention is not None:
        publish += convention.publishes
    others = [] if plan.sections.standby is None else [topics.lease, topics.of_node("+")]
    if plan.sections.shared:
        others.append(topics.drain("+"))
    if shared:
        others += filters_of(topics)
    return AccessList(tuple(publish), (*filters.values(), *own.values(), *others, *elsewhere(plan)))


def _of_root(topics: Topics, words: Sequence[str], *, any_topic: bool) -> list[str]:
    """The topics that the root device publishes to; ``{prefix}/error`` is listed already. With `any_topic`, its handler
    may publish to any topic of one level."""
    kept = [word for word in words if word != "error" and not (any_topic and "/" not in word)]
    return [*([f"{topics.prefix}/+"] if any_topic else []), *(f"{topics.prefix}/{word}" for word in kept)]


def elsewhere(plan: Plan) -> tuple[str, ...]:
    """The topic filters that an app subscribes to outside its own topics: those of its handlers, and of discovery.
    Raises as `access_of`."""
    convention = described_by(plan)
    subscriptions = [each.topic_filter for each in plan.registry.subscriptions.values() if each.enabled]
    if convention is None:
        return tuple(subscriptions)
    return (*subscriptions, convention.own, convention.births)


def describe_topics(plan: Plan) -> Mapping[str | None, Collection[str]]:
    """The retained topics that describe each device to others, by its name; None is the app itself. Raises as
    `access_of`."""
    described = _described(plan)
    if described is None:
        return {}
    registered, convention = described
    found: dict[str | None, Collection[str]] = {}
    for topic, name in convention.topics.items():
        messages = () if name is None else convention.describe(registered.device(name))
        found[name] = dict.fromkeys((topic, *(each.topic for each in messages)))
    return found


def hidden_values_of(plan: Plan) -> str | None:
    """A text on devices whose values discovery does not show; None if there are none, or discovery is off."""
    if plan.sections.discovery is None:
        return None
    from leadsman.extensions.discovery.part import hidden_values, registered_of

    return hidden_values(registered_of(plan), plan.sections.discovery)


def described_by(plan: Plan) -> "HomeAssistant | None":
    """What describes the devices of an app to others; None if discovery is off. Raises as `access_of`."""
    described = _described(plan)
    return None if described is None else described[1]


def _described(plan: Plan) -> "tuple[DescribedDevices, HomeAssistant] | None":
    """The devices that are described to others, and what does so; None if discovery is off."""
    if plan.sections.discovery is None:
        return None
    from leadsman.extensions.discovery.part import convention_of, registered_of

    registered = registered_of(plan)
    return registered, convention_of(plan, plan.sections.discovery, registered)
