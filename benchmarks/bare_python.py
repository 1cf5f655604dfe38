"""A Python that has only what a base install of leadsman has, or one with some extras.

A development environment has more, which every start pays for: hooks of coverage and setuptools in ``.pth`` files, and
dnspython, which paho imports where it finds it. So jobs and imports are measured in an environment without them. It is
made of links to the installed packages, without the network.
"""

import atexit
import compileall
import functools
import re
import shutil
import tempfile
import venv
from collections.abc import Collection, Iterator
from importlib import metadata
from pathlib import Path

import leadsman


def packages(extras: Collection[str] = ()) -> set[str]:
    """The distributions that leadsman needs with these extras, and those that these need."""
    wanted, found = ["leadsman"], set[str]()
    while wanted:
        name = wanted.pop()
        try:
            requirements = metadata.requires(name) or []
        except metadata.PackageNotFoundError:  # its marker does not hold here
            continue
        if name in found:
            continue
        found.add(name)
        for requirement in requirements:
            named, _, marker = requirement.partition(";")
            match = re.match(r"[A-Za-z0-9._-]+", named)
            extra = re.search(r"extra == ['\"]([^'\"]+)", marker)
            if match is not None and (extra is None or (name == "leadsman" and extra[1] in extras)):
                wanted.append(re.sub(r"[-_.]+", "-", match[0]).lower())
    return found


@functools.cache
def executable(*extras: str) -> str:
    """The path of the interpreter, with the packages of these extras. It is removed when this process ends."""
    library = _library()
    for source in _sources(extras):
        (library / source.name).symlink_to(source)
    compileall.compile_dir(library, maxlevels=0, quiet=1)  # modules that are a file; pip compiles what it installs
    return _interpreter(library)


@functools.cache
def copied() -> str:
    """The same with copies of the packages of a base install, so that their bytecode can be forgotten."""
    library = _library()
    for source in _sources(()):
        (shutil.copytree if source.is_dir() else shutil.copy)(source, library / source.name)
    return _interpreter(library)


def forget_bytecode(python: str) -> None:
    """Remove what was compiled of the packages of `copied`: the next start compiles them, as a first one does."""
    for folder in [*Path(python).parents[1].rglob("__pycache__")]:
        shutil.rmtree(folder)


def size() -> int:
    """Bytes on disk of a base install, without bytecode and without the interpreter."""
    files = (file for source in _sources(()) for file in ([source] if source.is_file() else source.rglob("*")))
    return sum(file.stat().st_size for file in files if file.is_file() and "__pycache__" not in file.parts)


def _library() -> Path:
    """The folder for packages of a new environment."""
    directory = Path(tempfile.mkdtemp(prefix="leadsman-bare-python-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    venv.create(directory, symlinks=True, with_pip=False)
    (library,) = directory.glob("lib/python3.*/site-packages")
    return library


def _interpreter(library: Path) -> str:
    return str(library.parents[2] / "bin" / "python")


def _sources(extras: Collection[str]) -> Iterator[Path]:
    """Where the packages and modules are that leadsman with these extras has, itself among them."""
    yield Path(leadsman.__file__).parent
    for name in packages(extras) - {"leadsman"}:
        distribution = metadata.distribution(name)
        tops = {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}
        for top in tops:
            yield Path(str(distribution.locate_file(top))).absolute()
