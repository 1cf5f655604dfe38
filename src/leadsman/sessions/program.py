"""The wire of `Programs`: each run, with the exit code and what the program wrote. A command is a lane of its own."""

import shlex

from leadsman.adapters.program import Finished, Run
from leadsman.sessions.player import Lanes, Playing
from leadsman.sessions.recorder import WireLog


def recorded(log: WireLog, name: str, wire: Run) -> Run:
    """What runs programs, and writes down how they end."""

    async def run(program: str, arguments: tuple[str, ...]) -> Finished:
        n = log.ask("run", command=shlex.join((program, *arguments)))
        try:
            ended = await wire(program, arguments)
        except Exception as error:
            log.fail(n, error)
            raise
        log.answer(n, "ended", ended.output, code=ended.code, errors=ended.errors.decode(errors="replace"))
        return ended

    return run


def played(lanes: Lanes, name: str) -> Run:
    """Recorded programs."""

    async def run(program: str, arguments: tuple[str, ...]) -> Finished:
        exchange = lanes.take("run", command=shlex.join((program, *arguments)))
        event = await Playing(lambda _: None).reply(exchange, "ended")
        return Finished(event.more["code"], event.data or b"", event.more["errors"].encode(errors="replace"))

    return run
