"""The state directory is that of this app, and a second process of the app is told first that it is one."""

import logging

from leadsman.core.storage import owner
from leadsman.core.text import log_fields
from leadsman.core.wiring.core import Core
from leadsman.errors import ConfigurationError

logger = logging.getLogger("leadsman")


class StateOfAnotherApp(ConfigurationError):  # noqa: N818  # as NotInstalled
    """Another app has left something in the state directory, or runs there."""


def join(core: Core) -> None:
    """Lock the directory, if something is there.

    Raises:
        StateOfAnotherApp: nothing of it was read or written.
    """
    directory = core.state_directory
    is_free = directory.lock()
    if (newer := owner.read_newer(directory.path)) is not None:
        directory.newer = newer
        logger.warning("%s", newer, extra=log_fields("state of a newer version", file=str(directory.path)))
    before = owner.read(directory.path)
    if before is not None and directory.app is not None and (not is_free or owner.holds_something(directory.path)):
        _compare(core, directory.app, before)
    if is_free and directory.path.exists():
        core.take_state_directory()


def warn(core: Core) -> None:
    """Report that another process has the directory, in an app that does not wait for it."""
    directory = core.state_directory
    if not directory.lock():
        about = log_fields("state locked", file=str(directory.path))
        logger.warning("%s", owner.in_use(directory.path), extra=about)


def _compare(core: Core, this: owner.Owner, before: owner.Owner) -> None:
    """Compare the app with the one that wrote the directory."""
    path = core.state_directory.path
    if this.is_other(before):
        own = (
            "another STATE_DIRECTORY" if core.plan.variables.get("STATE_DIRECTORY") else "a name or a prefix of its own"
        )
        raise StateOfAnotherApp(
            f"{path} has the state of another app, {before}; this one is {this}. Nothing of it was touched. Give this "
            f"app {own}. If it is the same app after all, delete {path / owner.FILE}"
        )
    about = log_fields("state of an earlier program", file=str(path))
    if not this.has_devices_of(before):
        logger.warning(
            "%s has the state of %s, and none of these devices is in the app any more; what waits there is sent",
            path,
            before,
            extra=about,
        )
    elif this.program != before.program:
        logger.info("%s has the state of %s, which this app continues with", path, before, extra=about)
