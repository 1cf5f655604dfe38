"""The time zone of the host: what the C library takes for it, so that a schedule and the times of the log agree.

The variable TZ may have the name of a zone, with or without a colon, the path of its file, or a rule of POSIX
(POSIX.1-2017 §8.3) such as ``CET-1CEST,M3.5.0,M10.5.0/3``, as routers and small distributions have it
(regebro/tzlocal#132). tzlocal knows names only, and raises where files in ``/etc`` contradict each other.
"""

import os
import struct
import warnings
from collections.abc import Mapping
from datetime import tzinfo
from io import BytesIO
from pathlib import Path

from leadsman.errors import InvalidValue

LOCALTIME = Path("/etc/localtime")
"""Where the C library reads the zone if TZ is not there. If neither is, it takes UTC."""
_REMEDY = "write the name of a zone, such as TZ=Europe/Berlin"


def host_zone(environment: Mapping[str, str] = os.environ, localtime: Path = LOCALTIME) -> tzinfo:
    """The time zone of the host.

    Args:
        environment: the variables; TZ that is there and empty stands for UTC, as for the C library.
        localtime: the file of the zone, if there is no such variable.

    Raises:
        InvalidValue: TZ names no zone, or the file cannot be read.
    """
    from zoneinfo import ZoneInfo  # only what has a schedule needs it

    given = environment.get("TZ")
    if given is None:
        return _of_files(localtime)
    name = given.removeprefix(":")
    if not name:
        return ZoneInfo("UTC")
    try:
        return _of_file(Path(name)) if name.startswith("/") else ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # no such zone, or a name that can be none
        pass
    try:
        return _of_rule(name)
    except (ValueError, UnicodeError):
        raise InvalidValue(f"TZ is {given!r}, which is no time zone; {_REMEDY}") from None


def _of_files(localtime: Path) -> tzinfo:
    from tzlocal import get_localzone

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # nothing names a zone, so that UTC is taken, as by the C library
            return get_localzone()
    except Exception:  # of whatever kind: files contradict each other, or one of them names no zone
        try:
            return _of_file(localtime)
        except FileNotFoundError:
            return _of_rule("UTC0")
        except (ValueError, OSError) as error:
            raise InvalidValue(
                f"the time zone of this machine, {localtime}, cannot be read: {error}; {_REMEDY}"
            ) from None


def _of_file(path: Path) -> tzinfo:
    from zoneinfo import ZoneInfo

    with path.open("rb") as file:
        return ZoneInfo.from_file(file, key=str(path))


def _of_rule(rule: str) -> tzinfo:
    """A zone of a rule of POSIX. The file of a zone ends with such a rule (RFC 8536 §3.3), so one of nothing else is
    read."""
    from zoneinfo import ZoneInfo

    if not rule.isascii() or not rule.isprintable():
        raise ValueError(rule)
    counts = struct.pack(">6l", 0, 0, 0, 0, 1, 1)
    block = b"TZif2" + bytes(15) + counts + struct.pack(">lbb", 0, 0, 0) + b"\0"
    return ZoneInfo.from_file(BytesIO(block * 2 + b"\n" + rule.encode() + b"\n"), key=rule)
