"""Functions for the messages of other programs."""

from leadsman.core.parts.kinds import SUBSCRIBERS
from leadsman.core.runtime.subscriber import Subscriber
from leadsman.core.wiring.core import Core


def join(core: Core) -> None:
    """Subscribe to their topics."""
    enabled = (each for each in core.plan.registry.subscriptions.values() if each.enabled)
    subscribers = {each.topic_filter: Subscriber(each, core.environment, core.shared) for each in enabled}
    core.offer(SUBSCRIBERS, subscribers)
    for topic_filter, subscriber in subscribers.items():
        core.link.listen(topic_filter, subscriber.on_message)
    core.life.stop_handlers.extend(each.stop for each in subscribers.values())
