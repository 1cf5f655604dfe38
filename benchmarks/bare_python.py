"""A Python that has only what a base install of leadsman has.

A development environment has more, which every start pays for: hooks of coverage and setuptools in ``.pth`` files, and
dnspython, which paho imports where it finds it. So jobs and imports are measured in an environment without them. It is
made of links to the installed packages, without the network.
"""

import atexit
import functools
import re
import shutil
import tempfile
import venv
from importlib import metadata
from pathlib import Path

import leadsman


def base_packages() -> set[str]:
    """The distributions that leadsman needs without any extra, and those that these need."""
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
            if match is not None and "extra" not in marker:
                wanted.append(re.sub(r"[-_.]+", "-", match[0]).lower())
    return found


@functools.cache
def executable() -> str:
    """The path of the interpreter. It is removed when this process ends."""
    directory = Path(tempfile.mkdtemp(prefix="leadsman-bare-python-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    venv.create(directory, symlinks=True, with_pip=False)
    (packages,) = directory.glob("lib/python3.*/site-packages")
    (packages / "leadsman").symlink_to(Path(leadsman.__file__).parent)
    for name in base_packages() - {"leadsman"}:
        distribution = metadata.distribution(name)
        tops = {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}
        for top in tops:
            (packages / top).symlink_to(Path(str(distribution.locate_file(top))).resolve())
    return str(directory / "bin" / "python")
