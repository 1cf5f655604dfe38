"""Collects facts about calendar servers: logs in, and reads nothing but the names of the calendars."""

import asyncio

from leadsman.adapters.adapter import Resource
from leadsman.doctor.facts import CalendarFacts
from leadsman.text import describe

PATIENCE = 8.0
"""Seconds for one server."""


async def look(resource: Resource) -> CalendarFacts:
    """Log in at a server."""
    try:
        async with asyncio.timeout(PATIENCE):
            if resource.log_in is not None:
                await resource.log_in()
    except TimeoutError:
        return CalendarFacts(resource, f"{resource.name} did not answer within {PATIENCE:g} s")
    except Exception as error:  # whatever the adapter's library raises
        return CalendarFacts(resource, describe(error))
    return CalendarFacts(resource, None)
