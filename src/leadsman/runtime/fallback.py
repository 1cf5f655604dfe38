"""Calls the fallback of a device, which gives a substitute after a poll that has failed for good."""

import asyncio

from leadsman.events import AppFault
from leadsman.reading import Reading, reading_of
from leadsman.registration.telemetry import Fallback, Telemetry
from leadsman.resilience.environment import Environment
from leadsman.runtime.publisher import StatePublisher
from leadsman.tasks import outcome

FALLBACK_TIMEOUT = 60.0
"""Seconds for a fallback after a failed poll."""


async def fall_back(
    telemetry: Telemetry, error: BaseException, publisher: StatePublisher, environment: Environment
) -> None:
    """Call the fallback of `telemetry`, if it has one, with the error of the poll, and publish the reading that it
    returns. A fallback that fails is reported as a fault of the app."""
    fallback = telemetry.on_failure
    if isinstance(fallback, str):
        return
    reading, fault = await outcome(_read(telemetry, fallback, error, environment), environment.stopping)
    if fault is not None:
        environment.events.emit(AppFault(f"on_failure of {telemetry.name}", fault))
    elif reading is not None:
        publisher.try_publish(reading)


async def _read(
    telemetry: Telemetry, fallback: Fallback, error: BaseException, environment: Environment
) -> Reading | None:
    async with asyncio.timeout(FALLBACK_TIMEOUT):
        result = await fallback(error)
    return None if telemetry.job else reading_of(telemetry.name, result, environment.clock)
