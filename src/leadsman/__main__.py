"""The command ``leadsman``, and ``python -m leadsman``."""

import sys


def main() -> int:
    """Run the command. The probe of a container is answered before the command line is imported: it runs every half a
    minute, and the import would take most of its time."""
    words = sys.argv[1:]
    if words[:1] == ["health"] and len(words) < 3 and not any(word.startswith("-") for word in words):
        from leadsman.health_file import probe

        return probe(*words[1:])
    from leadsman.tools.cli.main import main as run

    return run()


if __name__ == "__main__":
    raise SystemExit(main())
