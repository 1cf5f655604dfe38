"""The program that `embedded_broker` starts: amqtt on a port, until standard input ends.

Its parent holds the other end of that pipe and never writes. When the parent ends, even by SIGKILL, the system closes
the pipe. This file imports nothing of leadsman, so that it starts quickly.
"""

import asyncio
import json
import os
import sys
import threading
from collections.abc import Iterator

_ANONYMOUS = {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}}


class Steady(dict[str, object]):
    """A dict that may change while somebody iterates over it.

    When a client connects, amqtt (0.11, 0.12) iterates over the subscriptions of all clients and waits in between. If
    another client subscribes meanwhile, the iteration fails, and the new client is never served.
    """

    def __iter__(self) -> Iterator[str]:
        return iter(list(self.keys()))


def end_with_the_parent() -> None:
    """End this process at the end of standard input."""
    sys.stdin.buffer.read()
    os._exit(0)


async def serve(port: int, plugins: dict[str, object]) -> None:
    """Run the broker, and write a line when it listens."""
    from amqtt.broker import Broker  # takes most of the start; the parent may end meanwhile

    listener = {"type": "tcp", "bind": f"127.0.0.1:{port}"}
    config = {"listeners": {"default": listener}, "plugins": {**_ANONYMOUS, **plugins}}
    broker = Broker(config, asyncio.get_running_loop())
    broker._subscriptions = Steady()  # noqa: SLF001  # there is no other way
    await broker.start()
    sys.stdout.write("listening\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    threading.Thread(target=end_with_the_parent, daemon=True).start()
    asyncio.run(serve(int(sys.argv[1]), json.loads(sys.argv[2])))
