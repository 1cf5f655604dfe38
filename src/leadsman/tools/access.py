"""What an app publishes and subscribes to, as topic filters, for the access list of a broker."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from leadsman.core.introspection.registry import keeps_others
from leadsman.core.mqtt.topics import Topics
from leadsman.core.question import Question
from leadsman.core.wiring.plan import Plan, extension_topics


class Convention(Protocol):
    """What describes the devices of an app to others."""

    own: str
    """The topic filter of what it publishes."""
    births: str
    """The topic at which a reader of the descriptions says that it begins."""

    publishes: tuple[str, ...]
    """The topic filters that it publishes to."""
    topics: Mapping[str, str | None]
    """The device that is described at each topic; None is the app itself."""


_CONVENTION: Question[Callable[[Plan], Convention]] = Question("convention")
_DESCRIBED_TOPICS: Question[Callable[[Plan], Mapping[str | None, Collection[str]]]] = Question("described topics")
_HIDDEN_VALUES: Question[Callable[[Plan], str | None]] = Question("hidden values")
_FAILURE_STATES: Question[Callable[[Topics], tuple[str, ...]]] = Question("failure state")


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
    if plan.shares == "devices":  # one list for all nodes
        topics = Topics(plan.topics.prefix, plan.topics.root, "+")
        plan = plan._replace(identity=plan.identity._replace(topics=topics))
    topics, own, filters, jobs = plan.topics, plan.own_filters, plan.filters, plan.jobs
    publish = [topics.status, own["registry"], topics.error, f"{topics.introspect}/response"]
    if plan.shares == "app":
        publish.append(topics.lease)
    if plan.shares is not None:
        publish += [topics.of_node("+"), f"{topics.drain('+')}/response"]
    states = failure_states(plan)
    words = ["state", "availability", "error", "ledger"]
    if any(reader.delivery.history is not None for reader in plan.readers if reader.name not in jobs):
        words.append("history")
    words += {each.content.name: None for each in plan.readers if each.content is not None}
    if states:
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
    publish += [topic.filter for _, topic in extension_topics(plan) if topic.access == "write"]
    others = [topics.lease, topics.of_node("+")] if plan.shares == "app" else []
    if plan.shares is not None:
        others.append(topics.drain("+"))
    return AccessList(tuple(publish), (*filters.values(), *own.values(), *others, *states, *elsewhere(plan)))


def _of_root(topics: Topics, words: Sequence[str], *, any_topic: bool) -> list[str]:
    """The topics that the root device publishes to; ``{prefix}/error`` is listed already. With `any_topic`, its handler
    may publish to any topic of one level."""
    kept = [word for word in words if word != "error" and not (any_topic and "/" not in word)]
    return [*([f"{topics.prefix}/+"] if any_topic else []), *(f"{topics.prefix}/{word}" for word in kept)]


def elsewhere(plan: Plan) -> tuple[str, ...]:
    """The topic filters that an app subscribes to outside its own topics: those of its handlers, of its extensions, and
    of discovery. Raises as `access_of`."""
    convention = described_by(plan)
    subscriptions = [each.topic_filter for each in plan.registry.subscriptions.values() if each.enabled]
    subscriptions += [topic.filter for _, topic in extension_topics(plan) if topic.access == "read"]
    if convention is None:
        return tuple(subscriptions)
    return (*subscriptions, convention.own, convention.births)


def described_topics(plan: Plan) -> Mapping[str | None, Collection[str]]:
    """The retained topics that describe each device to others, by its name; None is the app itself. Raises as
    `access_of`."""
    ask = _DESCRIBED_TOPICS.answer(plan.sections.shipped)
    return {} if ask is None else ask(plan)


def hidden_values_of(plan: Plan) -> str | None:
    """A text on devices whose values discovery does not show; None if there are none, or discovery is off."""
    ask = _HIDDEN_VALUES.answer(plan.sections.shipped)
    return None if ask is None else ask(plan)


def described_by(plan: Plan) -> Convention | None:
    """What describes the devices of an app to others; None if discovery is off. Raises as `access_of`."""
    ask = _CONVENTION.answer(plan.sections.shipped)
    return None if ask is None else ask(plan)


def failure_states(plan: Plan) -> tuple[str, ...]:
    """The topic filters at which nodes leave the failure state of the devices to each other; none if they do not."""
    ask = _FAILURE_STATES.answer(plan.sections.shipped) if plan.keep_state else None
    return () if ask is None else ask(plan.topics)
