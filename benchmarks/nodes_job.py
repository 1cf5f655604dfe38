"""A node of a cluster, or an app without one, for `benchmarks.nodes`: so many devices, each read so often.

``python -m benchmarks.nodes_job PORT DEVICES INTERVAL`` runs until SIGTERM. The environment has its settings; each
reading names the node."""

import os
import sys

from leadsman import App


def main() -> None:
    """Do what the command line says, on one core."""
    port, devices, interval = sys.argv[1:]
    os.sched_setaffinity(0, {0})
    node = os.environ.get("CLUSTER__NODE", "alone")
    app = App("job", mqtt=f"mqtt://127.0.0.1:{port}")

    async def read() -> dict[str, str]:
        return {"node": node}

    app.add_telemetry([f"d{number}" for number in range(int(devices))], read, interval=float(interval), retry=3)
    app.run()


if __name__ == "__main__":
    main()
