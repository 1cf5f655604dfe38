"""The exceptions of leadsman, in one tree. The class of an error shows whose fault it is, and whether a retry makes
sense.

| class                | whose fault                | another attempt?     |
|----------------------|----------------------------|----------------------|
| `ConfigurationError` | the author of the app      | no                   |
| `ResultError`        | the author of the handler  | at the next poll     |
| `PayloadError`       | the sender of the request  | with another request |
| `RequestRefused`     | nobody                     | later                |
| `TransientError`     | the device or its wire     | yes                  |
| `PermanentError`     | the device or its settings | at the next poll     |
| `Stopped`            | a device that must work    | after a restart      |
| `BrokerError`        | the broker or its settings | the link reconnects  |
| `EndpointError`      | the settings               | it is tried again    |
| `SessionError`       | the file of the session    | once it is fixed    |
| `SpoolError`         | the disk, or another app   | see its classes      |
| `LeaseError`         | the engine or its settings | see its classes      |
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self


class LeadsmanError(Exception):
    """The base class of all errors that leadsman raises on purpose."""


class ConfigurationError(LeadsmanError):
    """An argument, a name or a setting is wrong. The message has the correction. A retry never helps.

    Attributes:
        inside: the keys that lead to what is wrong in the table that was checked; empty if all of it is wrong, or if it
            is no table.
    """

    inside: tuple[str, ...] = ()

    def at(self, key: object) -> Self:
        """This error, about a value that has this key in another one."""
        self.inside = (str(key), *self.inside)
        return self

    def reworded(self, message: str) -> Self:
        """The same error with another message."""
        error = type(self)(message)
        error.inside = self.inside
        return error


def two_parts(first: str, second: str, what: str) -> ConfigurationError:
    """The error of an app in which two parts, given by their modules, do what only one can do."""
    return ConfigurationError(f"{first} and {second} both {what}; leave one of them out of the app")


class InvalidValue(ConfigurationError, ValueError):
    """The type is right, but the value is not allowed."""


class InvalidType(ConfigurationError, TypeError):
    """The type is wrong."""


class SettingsError(ConfigurationError):
    """Settings are wrong or cannot be read. The message has one line for each fault, with the origin of the value."""


def raise_together(faults: Sequence[ConfigurationError]) -> None:
    """Raise one error for all faults, with one line each. An empty list raises nothing."""
    if len(faults) == 1:
        raise faults[0]
    if faults:
        raise SettingsError("\n".join(map(str, faults)))


@contextmanager
def collect(faults: list[ConfigurationError]) -> Iterator[None]:
    """Go on after an error, and keep it for `raise_together`."""
    try:
        yield
    except ConfigurationError as error:
        faults.append(error)


@contextmanager
def labelled(what: str) -> Iterator[None]:
    """Put what it is about before the message of an error."""
    try:
        yield
    except ConfigurationError as error:
        raise error.reworded(f"{what}: {error}") from None


@contextmanager
def at_key(key: object) -> Iterator[None]:
    """Give an error about a value the key that the value has in another one; see `ConfigurationError.at`."""
    try:
        yield
    except ConfigurationError as error:
        raise error.at(key) from None


class NotInstalled(ConfigurationError, ImportError):
    """A library that an adapter needs is not installed. The message names the command that installs it."""


def missing(what: str, library: str, extra: str, error: ImportError | None = None) -> NotInstalled:
    """The error that names what `what` needs, and what to type: ``missing("serial ports", "pyserial-asyncio",
    "serial")``. `error` is shown if the library is there and could not be loaded. What is typed adds libraries and
    leaves leadsman as it is, wherever it was installed from: pip fetches nothing that is installed."""
    there = error is not None and not isinstance(error, ModuleNotFoundError)
    why = f"cannot be loaded ({error})" if there else "is not installed"
    command = f'{_installer()} "leadsman[{extra}]"'
    return NotInstalled(f"{what} need {library}, which {why}; type: {command} (leadsman itself stays as it is)")


def _installer() -> str:
    """What installs into this environment. One of pipx, which knows it by its name, is not where `pip` installs."""
    environment = Path(sys.prefix)
    of_pipx = (environment / "pipx_metadata.json").exists()
    return f"pipx runpip {environment.name} install" if of_pipx else "pip install"


def check_found(what: str, library: str, extra: str, *modules: str) -> None:
    """Check that one of `modules` can be imported, without importing it.

    Raises:
        NotInstalled: none of them can be imported.
    """
    from importlib.util import find_spec  # only apps that need a library which may be missing

    if not any(find_spec(module) for module in modules):
        raise missing(what, library, extra)


class ResultError(LeadsmanError):
    """A handler returned a value that cannot be published. An immediate retry of the same call would not change it."""


class PayloadError(LeadsmanError):
    """A command's payload does not match what its handler accepts. A handler may raise it too, for its own checks."""


class UnknownDevice(PayloadError):
    """A request names a device that does not exist, or that has nothing to do with such a request."""


class RequestRefused(LeadsmanError):
    """A request was understood, and is refused because of the state of the device or of the app. The message has
    the reason."""


class PollRefused(RequestRefused):
    """A requested poll was refused. The message has the reason, and whether to request it again."""


class Busy(RequestRefused):
    """Too many requests are under way. The same request may be sent again a few seconds later."""


class DeviceError(LeadsmanError):
    """The device, its wire or its settings failed. Adapters raise it, with the original error as its cause."""


class TransientError(DeviceError):
    """A failure that a retry may fix: a lost connection, a garbled frame, a device that is away for the moment."""


class PermanentError(DeviceError):
    """A failure that a retry in this cycle will not fix: a wrong password, a characteristic that does not exist."""


class SessionDiffers(PermanentError):
    """An app that plays a recorded session asked for something else than it did when the session was recorded. The
    message has the line, and both. The same call always differs: record the session again with this version of the app,
    or ask as before."""


class DeviceTimeout(TransientError, TimeoutError):
    """The device did not answer in time.

    Attributes:
        place: ``plant.py:57``, the line of the user's code that was waiting when the time of its call was over; None
            where no call was ended, or where it was waiting outside of that code.
    """

    place: str | None = None


class DeviceUnavailable(TransientError, ConnectionError):
    """The device is not available: it is unplugged, switched off or busy, or its adapter is not open yet."""


class NoFreeThread(DeviceUnavailable):
    """No thread was free for a plain ``def`` handler. The message names the handlers whose calls have the
    threads. The device is not at fault, so no circuit counts this error."""


class NoTurn(DeviceUnavailable):
    """Another call had the line of the device for a minute. The device is not at fault, so no circuit counts this
    error."""


class GarbledData(TransientError):
    """Bytes arrived, but they cannot be decoded."""


class Abandoned(DeviceTimeout):
    """A handler did not end after its timeout and its cancellation. It is left alone, and is not called again while it
    runs."""


class Stopped(LeadsmanError):
    """The app ended because a handler failed for good whose registration has ``on_failure="stop"``.

    Attributes:
        left_behind: how many calls would not end.
    """

    def __init__(self, message: str, left_behind: int = 0) -> None:
        super().__init__(message)
        self.left_behind = left_behind


class NoFreshData(Stopped):
    """The app ended because none of its devices had a reading for the time in ``supervision.exit_when_stale`` of the
    settings. Start it again: whatever hung starts afresh."""


class VersionRefused(Stopped):
    """The app ended at its start, since the broker does not speak the only version of MQTT that the app can use. Trying
    again does not help before the broker is another one."""


class SessionError(LeadsmanError):
    """The file of a recorded session cannot be read: it is cut, edited, of another version, or no session. The message
    names the line, and what to do."""


class EndpointError(LeadsmanError):
    """The HTTP endpoint cannot be opened at its address. The app runs without it."""


class BrokerError(LeadsmanError):
    """The broker cannot be reached, or it refuses.

    Attributes:
        hint: the end of the message, where it is advice about the URL and its user; of no interest once they have
            worked.
    """

    hint = ""

    def without_hint(self) -> str:
        """The message without its hint, for a caller with better advice."""
        return str(self).removesuffix(self.hint)


class ConnectionRefused(BrokerError):
    """The broker answered CONNECT with a refusal.

    Attributes:
        code: the CONNACK reason code (MQTT 5 §3.2.2.2; 3.1.1 return codes are translated to it).
        reason_string: its Reason String (MQTT 5 §3.2.2.3.9); None without one.
    """

    def __init__(self, code: int, message: str, reason_string: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason_string = reason_string


class SubscriptionRefused(BrokerError):
    """The broker answered SUBSCRIBE with a reason code of 0x80 or above (MQTT 5 §3.9.3)."""


class RequestDenied(BrokerError):
    """The broker refused a request to a running app, or closed the connection on it. A person must change its access
    list.

    Attributes:
        topic: where the request was sent.
    """

    def __init__(self, text: str, topic: str) -> None:
        super().__init__(text)
        self.topic = topic


class TlsRefused(BrokerError):
    """One side does not accept the certificate of the other, or a file for TLS cannot be read. A person must fix it."""


class NotListening(BrokerError):
    """The broker's host refused the connection at once: it is up, and nothing listens there yet. The link asks it
    again and again, with short waits.

    Attributes:
        address: where nothing listens, ``host:port`` or the path of a socket; None if there is no such place.
    """

    def __init__(self, message: str, address: str | None = None) -> None:
        super().__init__(message)
        self.address = address


class ConnackMissing(BrokerError):
    """The broker closed the connection, or kept silent, where a CONNACK was due.

    Attributes:
        silent: whether it kept the connection, and said nothing.
    """

    silent = False


class SpoolError(LeadsmanError):
    """The file in which readings wait for the broker cannot be used. Nothing was changed in it by this call."""


class StateInUse(LeadsmanError):
    """Another process has the state directory, or a file in it. Another attempt does not help while that one runs."""


class SpoolLocked(SpoolError, StateInUse):
    """Another process has the file. Another attempt does not help while that one runs."""


class SpoolFull(SpoolError):
    """The disk is full, or has less free space than the floor. Later there may be more."""


class SpoolUnavailable(SpoolError):
    """The file cannot be opened, read or written just now: permissions, descriptors, an I/O error, or it was written by
    a newer version. The message has the remedy. Another attempt may succeed later."""


class SpoolReplaced(SpoolError):
    """The file was deleted or replaced while it was open. Open it again, and write again what it should contain."""


class LeaseError(LeadsmanError):
    """The engine that keeps the leases of a cluster cannot be used. The message ends with what to do."""


class LeaseStoreUnreachable(LeaseError):
    """The engine did not answer in time, or the connection to it is lost. It may have done what it was asked. Another
    attempt may succeed; until then the node must act as if its leases were not renewed."""


class LeaseStoreRefused(LeaseError):
    """The engine does not accept the credentials, or does not permit what was asked. A person must fix it."""


class TermsDiffer(LeaseError):
    """The engine has other terms for the cluster, such as another number of shards, or holds something else under its
    name. A person must fix it."""
