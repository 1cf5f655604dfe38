"""Calls and callers for the tests of the guards."""

import asyncio
import math


class Recorder:
    """A caller that remembers what it is informed of."""

    def __init__(self):
        self.errors = []
        self.isolations = 0
        self.next_poll = math.inf

    def facts(self):
        return {"handler": "d"}

    def taken(self, result):
        return result

    def horizon(self):
        return self.next_poll

    def abandoned(self, error):
        self.errors.append(error)

    def isolated(self):
        self.isolations += 1


class Answers:
    """A device that gives these answers one after the other, and then the last one again and again."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.calls = 0

    async def __call__(self):
        answer = self.answers[min(self.calls, len(self.answers) - 1)]
        self.calls += 1
        if isinstance(answer, BaseException):
            raise answer
        return answer


def stubborn(until):
    """A call that ignores its cancellation, and ends at this time of the loop."""

    async def call():
        loop = asyncio.get_running_loop()
        while loop.time() < until:
            try:
                await asyncio.sleep(until - loop.time())
            except asyncio.CancelledError:
                continue
        return "late"

    return call


async def hang():
    """A call that never ends by itself."""
    await asyncio.sleep(1e6)


async def raised(call):
    """The error that a call raises, or None."""
    try:
        await call()
    except BaseException as error:
        return error
    return None
