"""Build the wheels and the source distributions of leadsman and of the apps, and check them.

Usage: ``python scripts/dist.py [FOLDER]``; FOLDER is `build/dist` unless it is named, and is emptied first. One commit
gives the same bytes each time: files have the time of the commit. Each wheel is built from its source distribution, so
that this has all that a build needs.
"""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PROJECTS = (ROOT, *sorted(each.parent for each in ROOT.glob("apps/*/pyproject.toml")))

KINDS = {"", ".css", ".html", ".js", ".json", ".py", ".service", ".toml", ".txt"}
"""The suffixes of the files of a package."""


def build(project: Path, folder: Path, epoch: dict[str, str]) -> None:
    """Build the source distribution of a project, and from that its wheel."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(project)]
    done = subprocess.run(
        command, env={**os.environ, **epoch}, check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    if done.returncode:
        raise SystemExit(f"{done.stdout}{project} cannot be built")


def time_of_commit() -> dict[str, str]:
    """The variable with the time of the last commit; nothing if it is set, or if there is no repository or no git,
    where the build takes a time that is always the same."""
    if "SOURCE_DATE_EPOCH" in os.environ or shutil.which("git") is None:
        return {}
    command = ["git", "log", "-1", "--format=%ct"]
    asked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return {"SOURCE_DATE_EPOCH": asked.stdout.strip()} if asked.returncode == 0 else {}


def sources(project: Path) -> set[str]:
    """The files below `src` that belong into a package, as paths from there: no test, and no picture."""
    below = project / "src"
    files = (each for each in below.rglob("*") if each.is_file() and each.suffix in KINDS)
    return {each.relative_to(below).as_posix() for each in files if not each.match("test_*.py")}


def complaints(project: Path, folder: Path) -> Iterator[str]:
    """What is wrong with the contents of the two distributions of a project: they have the package, which is typed, the
    licence, and what a build needs, and nothing else."""
    name = "leadsman" if project == ROOT else project.name
    (wheel,) = folder.glob(f"{name}-*.whl")
    (source,) = folder.glob(f"{name}-*.tar.gz")
    package = sources(project) | {f"{name}/py.typed"}
    about = {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"}
    beside = {".gitignore", "LICENSE", "PKG-INFO", "README.md", "pyproject.toml"}
    with zipfile.ZipFile(wheel) as archive:
        inside = {re.sub(r"^[^/]*\.dist-info/", "*.dist-info/", each) for each in archive.namelist()}
    yield from differences(wheel.name, inside, package | {f"*.dist-info/{each}" for each in about})
    with tarfile.open(source) as archive:
        inside = {each.partition("/")[2] for each in archive.getnames()}
    yield from differences(source.name, inside, beside | {f"src/{each}" for each in package})


def differences(where: str, inside: set[str], wanted: set[str]) -> Iterator[str]:
    """A line for each file that a distribution has too many, or does not have."""
    yield from (f"{where} has {each}, which does not belong there" for each in sorted(inside - wanted))
    yield from (f"{where} has no {each}" for each in sorted(wanted - inside))


def main(folder: Path) -> None:
    """Build everything, and check it."""
    shutil.rmtree(folder, ignore_errors=True)
    epoch = time_of_commit()
    for project in PROJECTS:
        build(project, folder, epoch)
    built = sorted(str(each) for each in folder.iterdir())
    wheels = [each for each in built if each.endswith(".whl")]
    for command in (["twine", "check", "--strict", *built], ["check_wheel_contents", *wheels]):
        done = subprocess.run([sys.executable, "-m", *command], check=False, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(done.stdout + done.stderr)
    if wrong := [line for project in PROJECTS for line in complaints(project, folder)]:
        raise SystemExit("\n".join(wrong))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else ROOT / "build" / "dist")
