"""One tree of errors. The class answers two questions: whose fault, and is another attempt worth it?

==========================  ==========================  ===================
class                       whose fault                 another attempt?
==========================  ==========================  ===================
`ConfigurationError`        whoever wrote the app       no
`ResultError`               whoever wrote the handler   at the next poll
`PayloadError`              whoever sent a command      another command
`TransientError`            the device or its wire      yes
`PermanentError`            the device or its settings  at the next poll
`Stopped`                   a device that must work     by whoever restarts
`BrokerError`               the broker or its settings  made by the link
==========================  ==========================  ===================
"""

from collections.abc import Sequence


class LeadsmanError(Exception):
    """Everything that leadsman raises on purpose."""


class ConfigurationError(LeadsmanError):
    """An argument, a name or a setting is wrong; the message says what to write instead. Never worth a retry."""


class InvalidValue(ConfigurationError, ValueError):
    """Right type, impossible value."""


class InvalidType(ConfigurationError, TypeError):
    """Wrong type."""


class SettingsError(ConfigurationError):
    """Settings cannot be read, or are wrong: every fault in a line of its own, with where the value is from."""


def raise_together(faults: Sequence[ConfigurationError]) -> None:
    """Raise one error for all of them, one a line; nothing where there are none."""
    if len(faults) == 1:
        raise faults[0]
    if faults:
        raise SettingsError("\n".join(map(str, faults)))


class NotInstalled(ConfigurationError, ImportError):
    """A library that an adapter needs is not installed; the message says what to type."""


class ResultError(LeadsmanError):
    """A handler returned what cannot be published. Retrying the same call at once would not change it."""


class PayloadError(LeadsmanError):
    """A command's payload is not what its handler takes. Raised by a handler too, for what only it can know."""


class PollRefused(LeadsmanError):
    """A poll that somebody asked for is not made; the message says why, and whether to ask again."""


class DeviceError(LeadsmanError):
    """The device, its wire or its settings. Raised by adapters, with the foreign error as its cause."""


class TransientError(DeviceError):
    """Worth another attempt: a drop, a garbled frame, a device that is away for the moment."""


class PermanentError(DeviceError):
    """Not worth another attempt in this cycle: a wrong password, a characteristic that does not exist."""


class DeviceTimeout(TransientError, TimeoutError):
    """No answer in time."""


class DeviceUnavailable(TransientError, ConnectionError):
    """The device is not there: unplugged, switched off, busy, or its adapter is not open yet."""


class GarbledData(TransientError):
    """Bytes arrived, but they make no sense."""


class Abandoned(DeviceTimeout):
    """A handler outlived its timeout and its cancellation; it is left to itself and not called again while it lives."""


class Stopped(LeadsmanError):
    """The app ended because a handler failed for good whose registration says ``on_failure="stop"``.

    Attributes:
        left_behind: how many calls would not end.
    """

    def __init__(self, message: str, left_behind: int = 0) -> None:
        super().__init__(message)
        self.left_behind = left_behind


class BrokerError(LeadsmanError):
    """The broker cannot be reached or says no.

    Attributes:
        hint: the end of the message, where it guesses at a wrong URL; worth nothing once the URL has worked.
    """

    hint = ""


class ConnectionRefused(BrokerError):
    """The broker answered CONNECT with a refusal.

    Attributes:
        code: the CONNACK reason code (MQTT 5 §3.2.2.2; 3.1.1 return codes are translated to it).
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class SubscriptionRefused(BrokerError):
    """The broker answered SUBSCRIBE with a reason code of 0x80 or above (MQTT 5 §3.9.3)."""


class TlsRefused(BrokerError):
    """One side does not accept the certificate of the other, or a file for TLS cannot be read. A person has to mend it."""


class ConnackMissing(BrokerError):
    """The broker closed the connection, or kept silent, where a CONNACK was due."""
