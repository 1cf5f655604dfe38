"""Files of other programs, judged by the schemas that these have published; check-jsonschema brings them along."""

import subprocess
import sys


def complaints(schema, *paths):
    """What is wrong with these files by a schema, such as ``compose-spec``; nothing if they fit."""
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", *map(str, paths)]
    judged = subprocess.run(command, capture_output=True, text=True, check=False)
    return judged.stdout + judged.stderr if judged.returncode else ""
