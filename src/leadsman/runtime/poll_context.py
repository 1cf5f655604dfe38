"""What all polls of an app share."""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from leadsman.resilience.environment import Environment
from leadsman.runtime.calls import SharedResources
from leadsman.runtime.publisher import PublisherContext, PublishQueue


class PollContext(NamedTuple):
    """What all polls of an app share."""

    environment: Environment
    publishing: PublisherContext
    resources: SharedResources
    queue: PublishQueue
    loop: asyncio.AbstractEventLoop
    end_app: Callable[[str, BaseException], None]
    """Ends the app, because a device that must work does not."""
