"""Policies of the command line: ``retry=3, circuit_breaker=5``, ``UNTIL_NEXT_POLL``, a name, or the notation of a file
on one line.

A variant replaces what it mentions of the options of each device, and keeps the rest.
"""

from collections.abc import Mapping
from typing import NamedTuple

from leadsman.core.registration.device_settings import OPTIONS
from leadsman.core.registration.telemetry import RETRYING, Telemetry, TelemetryOptions, with_options
from leadsman.core.resilience.catalogue import Catalogue
from leadsman.core.resilience.notation import policy_of
from leadsman.core.settings.sections import is_off
from leadsman.core.text import clean
from leadsman.core.text.suggestion import suggestion
from leadsman.errors import ConfigurationError, InvalidValue
from leadsman.tools.simulation.outcome import WRITTEN

WORDS = ("retry", "budget", "within", "overrun", "circuit_breaker", "recovery", "policy")
ALONE = ("never", "immediate")
"""Policies of the notation that take nothing. They are no names of settings."""
USUAL = ("retry=3", "UNTIL_NEXT_POLL", "UNTIL_NEXT_POLL, circuit_breaker=5")
"""What an app is compared with where the command line names nothing."""


class Variant(NamedTuple):
    """Options that replace those of every device."""

    name: str
    options: TelemetryOptions
    """Empty: the app as it is written."""

    def of(self, telemetry: Telemetry, catalogue: Catalogue | None) -> Telemetry:
        """The registration with these options.

        Raises:
            ConfigurationError: the options make no sense for it, or no policy has the name.
        """
        if not self.options:
            return telemetry
        try:
            return with_options(telemetry, self.options, catalogue)
        except ConfigurationError as error:
            raise type(error)(f"--policy {clean(self.name)!r}: {error}") from None


AS_WRITTEN = Variant(WRITTEN, {})


def variant_of(text: str) -> Variant:
    """Read a policy of the command line.

    Raises:
        InvalidValue, InvalidType: a word is unknown or its value wrong.
    """
    words: dict[str, str] = {}
    try:
        for part in _parts(text):
            word, value = _word(part)
            if word in words:
                raise InvalidValue(f"{word} is given twice")
            words[word] = value
        return Variant(clean(text.strip()), _options(words))
    except ConfigurationError as error:
        raise type(error)(f"--policy {clean(text)!r}: {error}") from None


def _options(words: Mapping[str, str]) -> TelemetryOptions:
    """The options of a decorator. A policy, retries and a circuit breaker are read as in the settings of a device."""
    options: dict[str, object] = dict(words)
    recovery = options.pop("recovery", None)
    if recovery is not None and "circuit_breaker" not in words:
        raise InvalidValue("recovery belongs to a circuit breaker; write circuit_breaker=5, recovery=10m")
    if "circuit_breaker" in words and not is_off(words["circuit_breaker"]):
        options["circuit_breaker"] = {"threshold": words["circuit_breaker"]} | (
            {} if recovery is None else {"recovery": recovery}
        )
    for option in options.keys() & {"retry", "policy", "circuit_breaker"}:
        try:
            options[option] = OPTIONS[option].read(options[option])
        except ConfigurationError as error:
            raise type(error)(f"{option}: {error}") from None
    if options.get("policy") in ALONE:
        options["policy"] = policy_of(options["policy"], "policy")
    if not options.keys() & {"policy", *RETRYING, "circuit_breaker", "overrun"}:
        raise InvalidValue("it is empty; write retry=3, UNTIL_NEXT_POLL, the name of a policy, or {countBox: …}")
    return options  # type: ignore[return-value]  # its values are checked with each device


def _parts(text: str) -> list[str]:
    """The parts between commas, without those commas that are inside brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "{[") - (character in "}]")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts if part.strip()]


def _word(part: str) -> tuple[str, str]:
    """An option and its value."""
    word, equals, value = (each.strip() for each in part.partition("="))
    if part.startswith("{") or not equals:
        return ("retry" if part.upper() == "UNTIL_NEXT_POLL" else "policy"), part
    if word not in WORDS:
        raise InvalidValue(f"{word!r} is unknown here; {suggestion(word, WORDS)}")
    return word, value
