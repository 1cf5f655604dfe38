"""A Dockerfile carried out without an engine. Its steps change a copy in memory of the files of this machine. What it
starts runs there as in a container that is confined: as the user of the image, without capabilities, and able to write
only to its volumes, `/tmp` and `/dev/shm`. An environment of the Python of the tests stands for the base image.
"""

import json
import os
import re
import shlex
import string
import subprocess
import sys

import psutil

COPY = """
set -eu
mount -t tmpfs tmpfs "$PLACE"
mkdir "$PLACE/upper" "$PLACE/work" "$PLACE/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$PLACE/upper,workdir=$PLACE/work" "$PLACE/root"
mount --rbind /dev "$PLACE/root/dev"
mount -t proc proc "$PLACE/root/proc"
cd "$PLACE/root"
"""
BUILD = """
mkdir context
cp -r "$CONTEXT/." context
cp -L /etc/resolv.conf /etc/hosts etc
chmod o+x ".$HOME" # where the Python may be
chroot . "$PYTHON" -m venv /base
for each in $MOUNTED; do mkdir -p ".$each"; cp -r "$MOUNTS$each/." ".$each"; done
env -i $ENVIRONMENT chroot . sh -euc "$STEPS"
"""
START = """
for each in dev/shm tmp; do mount -t tmpfs -o mode=1777 tmpfs "$each"; done
for each in $VOLUMES; do mount --bind ".$each" ".$each"; done
mount -o remount,ro,bind .
exec env -i $ENVIRONMENT chroot . setpriv --reuid "$USER_ID" --regid "$USER_ID" --clear-groups --bounding-set=-all \\
    --inh-caps=-all --no-new-privs sh -euc "cd $FOLDER && exec $COMMAND"
"""
IN_A_SPACE = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "bash", "-c")


def missing(place):
    """What prevents images here; None if nothing does."""
    if os.getuid() != 0:
        return "it needs root"
    done = subprocess.run(
        [*IN_A_SPACE, COPY], env={**os.environ, "PLACE": str(place)}, capture_output=True, check=False
    )
    return f"no copy can be made: {done.stderr.decode()}" if done.returncode else None


class Image:
    """What a Dockerfile says. `arguments` are those of ``--build-arg``."""

    def __init__(self, path, **arguments):
        self.environment = {"PATH": "/base/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
        self.steps, self.volumes, self.user, self.folder, self.command, self.health = [], [], "0", "/", [], []
        known = dict(self.environment)
        text = re.sub(r"^#.*\n", "", path.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
        for line in filter(None, text.splitlines()):
            instruction, words = line.split(None, 1)
            match instruction:
                case "FROM":
                    self.base = words
                case "ARG":
                    name, _, value = words.partition("=")
                    known[name] = arguments.get(name, value)
                case "ENV":
                    for name, value in (each.split("=", 1) for each in shlex.split(words)):
                        known[name] = self.environment[name] = string.Template(value).substitute(known)
                case "WORKDIR":
                    self.folder = words
                    self.steps.append(f"mkdir -p {words}\ncd {words}")
                case "COPY":
                    source, target = words.split()
                    self.steps.append(f"cp -r /context/{source} {target}")
                case "RUN":
                    given = " ".join(f"{name}={shlex.quote(value)}" for name, value in known.items())
                    self.steps.append(f"env {given} sh -c {shlex.quote(words)}")
                case "VOLUME":
                    self.volumes.append(words)
                case "USER":
                    self.user = words
                case "HEALTHCHECK":
                    self.health = json.loads(words.partition("CMD ")[2])
                case "CMD":
                    self.command = json.loads(words)
                case _:
                    raise ValueError(f"an instruction that is not known here: {line}")

    def start(self, context, place, log_path, mounts=None, **environment):
        """Build it, and run it with these variables; a `Popen`. The end of the process ends all of it. `mounts` is a
        folder with what is mounted into it, each by its path."""
        mounted = [f"/{each.name}" for each in mounts.iterdir()] if mounts else []
        given = {
            "PLACE": str(place),
            "PYTHON": f"{sys.base_prefix}/bin/python{sys.version_info.major}.{sys.version_info.minor}",
            "CONTEXT": str(context),
            "ENVIRONMENT": " ".join(f"{name}={value}" for name, value in {**self.environment, **environment}.items()),
            "STEPS": "\n".join(self.steps),
            "MOUNTS": str(mounts),
            "MOUNTED": " ".join(mounted),
            "VOLUMES": " ".join((*self.volumes, *mounted)),
            "USER_ID": self.user,
            "FOLDER": self.folder,
            "COMMAND": shlex.join(self.command),
        }
        with log_path.open("wb") as log:
            self.process = subprocess.Popen(
                [*IN_A_SPACE, COPY + BUILD + START], env={**os.environ, **given}, stdout=log, stderr=log
            )
        return self.process

    def healthy(self):
        """What the health check prints, which fails if the app is not healthy."""
        (first,) = psutil.Process(self.process.pid).children()
        given = [f"{name}={value}" for name, value in self.environment.items()]
        inside = ["nsenter", f"--target={first.pid}", "--mount", "--pid", "--root", "env", "-i", *given, *self.health]
        return subprocess.check_output(inside, text=True)

    def stop(self):
        """End it as an engine does; the exit code of its first process."""
        (first,) = psutil.Process(self.process.pid).children()
        first.terminate()
        return self.process.wait(30)
