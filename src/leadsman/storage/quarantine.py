"""Puts databases aside and others in their place, so that a kill or a power cut at any moment leaves one of the two
there.

The new file is complete and synced before the old one is renamed. If it ends between two renames, there is no file but
a new one, which `adopt` puts in place at the next start. If the file is there, a new one is unfinished and is deleted.
"""

import contextlib
import os
from datetime import UTC, datetime
from pathlib import Path

from leadsman.storage import own_file
from leadsman.storage.database import LOG, SHARED, delete, rename
from leadsman.storage.own_file import sync_directory

MOST = 3
"""Files put aside that are kept: the newest."""


def create(path: Path) -> None:
    """Make an empty file that only this user can read, or make sure that nobody else can read the one that is there.

    Raises:
        OSError: it cannot be made, or it is not a regular file.
    """
    handle = own_file.create(path)
    try:
        if os.fstat(handle).st_mode & 0o077:
            os.fchmod(handle, 0o600)
    finally:
        os.close(handle)


def new_beside(path: Path) -> Path:
    """An empty file that can take the place of `path`."""
    new = Path(f"{path}.new")
    delete(new)
    create(new)
    return new


def adopt(path: Path, now: float) -> str | None:
    """Finish a replacement that was interrupted.

    Returns:
        The name of the file that was put aside in it; None if there was none.
    """
    new = Path(f"{path}.new")
    if path.exists():
        delete(new)
        return None
    if not new.exists():
        return None
    replace(path, new, now)
    return next((each.name for each in reversed(_put_aside(path))), None)


def replace(path: Path, new: Path, now: float) -> str:
    """Put a file with its log aside, as ``<path>.bad-<time>``, and a new one in its place.

    Returns:
        The name of the file put aside.
    """
    aside = own_file.free_name(f"{path}.bad-{datetime.fromtimestamp(now, UTC):%Y%m%dT%H%M%S}")
    rename(path, aside)
    new.rename(path)
    sync_directory(path.parent)
    _prune(path)
    return aside.name


def _prune(path: Path) -> None:
    """Delete all files put aside but the newest."""
    with contextlib.suppress(OSError):
        for name in _put_aside(path)[:-MOST]:
            delete(name)


def _put_aside(path: Path) -> list[Path]:
    """The files put aside, oldest first."""
    names = {str(each).removesuffix(LOG).removesuffix(SHARED) for each in path.parent.glob(f"{path.name}.bad-*")}
    return sorted(map(Path, names), key=_age)


def _age(name: Path) -> tuple[float, str]:
    with contextlib.suppress(OSError):
        return name.stat().st_ctime, name.name
    return 0.0, name.name
