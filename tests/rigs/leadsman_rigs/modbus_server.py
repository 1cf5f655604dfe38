"""A Modbus device that is not ours: the server of pymodbus in a process of its own, on a pseudo-terminal, or on TCP
with the frames of Modbus TCP or of RTU."""

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
import threading
import time

from leadsman.testing import PtyDevice

WAYS = ("rtu", "tcp", "rtu over tcp")
"""How a client may reach it."""


class ModbusServer:
    """It has the units of `memory`: for each the values from address 0, by kind. Other units do not answer."""

    def __init__(self, way, memory):
        self.way, self._memory = way, memory
        self.url = ""
        """What `Modbus` takes as its port."""

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            path = ""
            if self.way == "rtu":
                near, far = stack.enter_context(PtyDevice()), stack.enter_context(PtyDevice())
                self._line = near
                self._open = True
                stack.callback(setattr, self, "_open", False)
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=self._copy, args=(source, sink), daemon=True).start()
                path = far.path
            process = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-m", "leadsman_rigs.modbus_server", self.way, path],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,  # it logs each request that it refuses
                text=True,
            )
            stack.callback(self._end, process)
            self._process = process
            process.stdin.write(json.dumps(self._memory) + "\n")
            process.stdin.flush()
            word, _, port = process.stdout.readline().partition(" ")
            assert word.strip() == "ready"
            scheme = {"tcp": "tcp", "rtu over tcp": "socket"}.get(self.way)
            self.url = f"{scheme}://127.0.0.1:{port.strip()}" if scheme else near.path
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exc_info):
        self._stack.close()

    def pause(self):
        """Be silent; requests that come are answered after `go_on`."""
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self):
        """Answer, late."""
        self._process.send_signal(signal.SIGCONT)

    def unplug(self):
        """Pull the cable of the pseudo-terminal."""
        self._line.unplug()

    def plug(self):
        """Plug it in again."""
        self._line.plug()

    def _copy(self, source, sink):
        while self._open:
            data = source.receive()
            if data:
                with contextlib.suppress(OSError):
                    sink.send(data)
            time.sleep(0.001)

    @staticmethod
    def _end(process):
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


async def serve(way, path, memory):
    """The process: serve until it is killed."""
    from pymodbus.datastore import ModbusDeviceContext, ModbusSequentialDataBlock, ModbusServerContext
    from pymodbus.framer import FramerType
    from pymodbus.server import ModbusSerialServer, ModbusTcpServer

    letters = {"holding": "hr", "input": "ir", "coil": "co", "discrete": "di"}
    units = {
        int(unit): ModbusDeviceContext(
            **{letters[kind]: ModbusSequentialDataBlock(1, values) for kind, values in kinds.items()}
        )
        for unit, kinds in memory.items()
    }
    context = ModbusServerContext(devices=units, single=False)
    if way == "rtu":
        server = ModbusSerialServer(context, port=path, baudrate=19_200, ignore_missing_devices=True)
    else:
        framer = FramerType.SOCKET if way == "tcp" else FramerType.RTU
        server = ModbusTcpServer(context, framer=framer, address=("127.0.0.1", 0), ignore_missing_devices=True)
    await server.serve_forever(background=True)
    port = "" if way == "rtu" else server.transport.sockets[0].getsockname()[1]
    sys.stdout.write(f"ready {port}\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], sys.argv[2], json.loads(sys.stdin.readline())))
