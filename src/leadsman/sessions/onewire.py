"""The wire of a `OneWire`: which thermometers are there, and the file of each, which is a lane of its own. All of it
blocks, in a thread."""

from leadsman.adapters.onewire import OneWireFiles
from leadsman.sessions.player import Lanes
from leadsman.sessions.recorder import WireLog


def recorded(log: WireLog, name: str, wire: OneWireFiles) -> OneWireFiles:
    """The files of thermometers, with what they contain written down."""
    return _RecordedFiles(log, wire)


class _RecordedFiles:
    def __init__(self, log: WireLog, files: OneWireFiles) -> None:
        self._log = log
        self._files = files

    def names(self) -> list[str]:
        return self._log.call(self._files.names, lambda found: ("listed", None, {"names": found}), "list")

    def content(self, name: str) -> str:
        call = lambda: self._files.content(name)  # noqa: E731  # a name for what is long
        return self._log.call(call, lambda found: ("content", found.encode(), {}), "read", thermometer=name)


def played(lanes: Lanes, name: str) -> OneWireFiles:
    """Recorded files."""
    return _PlayedFiles(lanes)


class _PlayedFiles:
    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes

    def names(self) -> list[str]:
        return [*self._lanes.ask("listed", "list").more["names"]]

    def content(self, name: str) -> str:
        return (self._lanes.ask("content", "read", thermometer=name).data or b"").decode(errors="replace")
