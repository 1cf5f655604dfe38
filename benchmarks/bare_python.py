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
from collections.abc import Collection
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
    directory = Path(tempfile.mkdtemp(prefix="leadsman-bare-python-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    venv.create(directory, symlinks=True, with_pip=False)
    (library,) = directory.glob("lib/python3.*/site-packages")
    (library / "leadsman").symlink_to(Path(leadsman.__file__).parent)
    for name in packages(extras) - {"leadsman"}:
        distribution = metadata.distribution(name)
        tops = {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}
        for top in tops:
            (library / top).symlink_to(Path(str(distribution.locate_file(top))).resolve())
    compileall.compile_dir(library, maxlevels=0, quiet=1)  # modules that are a file; pip compiles what it installs
    return str(directory / "bin" / "python")
