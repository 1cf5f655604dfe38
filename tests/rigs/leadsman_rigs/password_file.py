"""The file of mosquitto that has its users and their passwords."""

import os
import shutil
import subprocess


def write_password_file(path, **users):
    """Write the file anew: ``write_password_file(path, ann="secret")``. Everybody may read it."""
    # pyenv and the like put directories before the path of the system, but no mosquitto
    program = shutil.which("mosquitto_passwd", path=f"/usr/bin:{os.environ['PATH']}")
    assert program, "mosquitto_passwd is not installed; type: make deps"
    path.unlink(missing_ok=True)  # mosquitto 2.1 does not write over a file
    for number, (user, password) in enumerate(users.items()):
        create = [] if number else ["-c"]
        subprocess.run([program, "-b", *create, str(path), user, password], check=True, capture_output=True)
    path.chmod(0o644)
