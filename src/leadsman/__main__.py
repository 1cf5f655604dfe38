"""The command ``leadsman``, and ``python -m leadsman``."""

import os
import sys


def main() -> int:
    """Run the command. The probe of a container is answered before the command line is imported: it runs every half a
    minute, and the import would take most of its time. A person at a terminal gets lines that fit."""
    if os.getpid() == 1:
        from leadsman.core.process_one import leave_process_one

        leave_process_one()
    words = sys.argv[1:]
    typed = sys.stdout is not None and sys.stdout.isatty()
    if not typed and words[:1] == ["health"] and len(words) < 3 and not any(word.startswith("-") for word in words):
        from leadsman.core.monitoring.health_file import probe

        well, line = probe(*words[1:])
        print(line, file=sys.stdout if well else sys.stderr)
        return 0 if well else 1
    from leadsman.tools.cli.main import main as run

    return run()


if __name__ == "__main__":
    raise SystemExit(main())
