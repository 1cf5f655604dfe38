"""A request and its answer: what a payload may hold, and the document that answers it.

A request is JSON, or plain text. An object may carry a ``transaction``, which the answer repeats. The sender may name a
response topic and correlation data (MQTT 5 §3.3.2.3.5). An answer is one document with ``status``, ``data``, ``error``
and ``at``.
"""

import json
import logging
import math
from collections.abc import Callable
from enum import Enum
from typing import Any

from leadsman.core.loop.clock import rfc3339
from leadsman.core.mqtt.connection import Received
from leadsman.core.mqtt.message import Message
from leadsman.core.mqtt.topics import Topics, encode
from leadsman.core.text import clean, describe, explain, is_nested_deeper, log_fields
from leadsman.core.text.log_lines import Lines, left_out_before
from leadsman.errors import LeadsmanError, PayloadError, RequestRefused

Json = Any
"""A value of decoded JSON."""

MAX_REQUEST_BYTES = 64 * 1024
"""The largest payload in bytes. A command is not a file."""
MAX_DEPTH = 20
"""The deepest nesting of lists and objects in a payload."""
MAX_CORRELATION_BYTES = 1024
"""Bytes of correlation data that are sent back."""
EXPIRY = 10.0
"""Seconds after which an answer is dropped, since its receiver no longer waits."""

MAX_WARNED_DEVICES = 100
"""The number of devices whose retained requests are logged, once each: the broker sends them again at every
reconnect."""

logger = logging.getLogger("leadsman")


def decode(payload: bytes) -> tuple[Json, Json]:
    """Decode a request.

    Returns:
        The value, and the ``transaction`` of an object, which is removed from it, or None.

    Raises:
        PayloadError: see `decode_json`.
    """
    value = decode_json(payload)
    transaction = value.pop("transaction", None) if isinstance(value, dict) else None
    return value, transaction


def decode_json(payload: bytes) -> Json:
    """Decode a payload as JSON. A payload that is not JSON is returned as text, as ``mosquitto_pub -m on`` sends it.

    Raises:
        PayloadError: the payload is too large, too deep, not UTF-8, broken JSON, or has text that UTF-8 cannot carry.
    """
    if len(payload) > MAX_REQUEST_BYTES:
        raise PayloadError(f"the payload has {len(payload)} bytes; {MAX_REQUEST_BYTES} are allowed")
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        raise PayloadError("the payload is not UTF-8; send JSON") from None
    if text.lstrip()[:1] in ("{", "[") and is_nested_deeper(text, MAX_DEPTH):
        raise PayloadError(f"the payload is nested deeper than {MAX_DEPTH} levels")
    try:
        value = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite, object_pairs_hook=_unique)
    except ValueError as error:
        if text.lstrip()[:1] in ("{", "[", '"'):
            raise PayloadError(f"the payload is broken JSON: {clean(str(error))}") from None
        return text
    if "\\u" in text and not _is_encodable(value):
        raise PayloadError("the payload contains half a surrogate pair, which UTF-8 cannot carry")
    return value


def object_in(payload: bytes) -> dict[str, Json] | None:
    """The JSON object in a payload that anybody may have published; None if it is not a JSON object."""
    try:
        found = json.loads(payload)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def document(data: Json, error: str | None, wall: float, transaction: Json) -> dict[str, Json]:
    """The answer to a request: `data`, or the `error` that prevented it. `wall` is the time in epoch seconds."""
    status = "ok" if error is None else "error"
    found = {"status": status, "data": data, "error": error, "at": rfc3339(wall)}
    return found if transaction is None else found | {"transaction": transaction}


def answer_to(received: Received, topics: Topics, answer: dict[str, Json]) -> Message:
    """The message with an answer, at the topic that the request names.

    Raises:
        PayloadError: an answer may not go to that topic, or the correlation data is too long.
    """
    topic, correlation = received.response_topic or "", received.correlation
    if not topics.may_answer(topic):
        raise PayloadError(f"the response topic must lie below {topics.prefix}/, and must not be one of leadsman's own")
    if correlation is not None and len(correlation) > MAX_CORRELATION_BYTES:
        raise PayloadError(f"the correlation data has {len(correlation)} bytes; send at most {MAX_CORRELATION_BYTES}")
    return Message(topic, encode(answer), correlation=correlation)


def answer_anyway(received: Received, topics: Topics, answer: dict[str, Json], lines: Lines, at: float) -> Message:
    """The message with an answer, also if the request names no topic, or one that an answer may not go to. It then goes
    to the topic of the request with ``/response`` appended; or to that of introspection, if the request came at a topic
    that is too long or has control characters. `lines` limits the log lines about that, `at` the seconds of
    a clock."""
    beside = f"{received.topic}/response"
    own = received._replace(response_topic=beside if topics.may_answer(beside) else f"{topics.introspect}/response")
    try:
        return answer_to(received if received.response_topic else own, topics, answer)
    except PayloadError as refused:
        _log_diverted(received, refused, own.response_topic or "", lines.left_out("answer diverted", at))
        return answer_to(own._replace(correlation=None), topics, answer)


def answer_request(
    received: Received, topics: Topics, wall: float, handle: Callable[[Json], Json], lines: Lines
) -> Message:
    """Pass the value of a request to `handle`, and return the message that answers it: with what `handle` returned, or
    with the `PayloadError` that it raised. `lines` limits the lines about response topics."""
    transaction, data, error = None, None, None
    try:
        value, transaction = decode(received.payload)
        data = handle(value)
    except (PayloadError, RequestRefused) as refused:
        error = explain(refused)
    return answer_anyway(received, topics, document(data, error, wall, transaction), lines, wall)


def refusal(received: Received, topics: Topics, wall: float, error: LeadsmanError, lines: Lines) -> Message:
    """The message that answers a request without a look at what it asks for. `lines` as in `answer_request`."""
    try:
        _, transaction = decode(received.payload)
    except PayloadError:
        transaction = None
    return answer_anyway(received, topics, document(None, explain(error), wall, transaction), lines, wall)


def _log_diverted(received: Received, refused: PayloadError, instead: str, before: int | None) -> None:
    if before is not None:
        logger.warning(
            "The request at %s is answered at %s instead of its response topic: %s%s",
            clean(received.topic),
            clean(instead),
            describe(refused),
            left_out_before(before),
            extra=log_fields("answer diverted", topic=received.topic),
        )


class RetainedRequests:
    """Warns of retained requests, which are ignored: each would arrive again at every reconnect."""

    def __init__(self) -> None:
        self._warned: set[str] = set()

    def warn(self, device: str) -> None:
        """Log that a request for a device was retained, once for each device."""
        if device in self._warned or len(self._warned) >= MAX_WARNED_DEVICES:
            return
        self._warned.add(device)
        logger.warning(
            "%s: a retained request is ignored, because it would arrive again at every reconnect; "
            "clear the topic, and send without retain",
            clean(device),
            extra=log_fields("retained request", device),
        )


def is_finite(value: object) -> bool:
    """Whether a value holds no NaN and no infinite number, in lists, dicts and the attributes of objects either."""
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, dict):
        return all(is_finite(each) for each in value.values())
    if isinstance(value, list | tuple | set):
        return all(is_finite(each) for each in value)
    inner = getattr(value, "__dict__", None)
    return True if inner is None or isinstance(value, Enum) else is_finite(inner)


def _is_encodable(value: Json) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _refuse_constant(name: str) -> Json:
    raise ValueError(f"{name} is not JSON")


def _unique(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    """Which of two values holds is up to each reader (RFC 8259 §4), so what was checked may not be what is executed."""
    found = dict(pairs)
    if len(found) < len(pairs):
        seen = set[str]()
        for key, _ in pairs:
            if key in seen:
                raise PayloadError(f"the key {clean(key)!r} is there twice; send it once")
            seen.add(key)
    return found


def _finite(text: str) -> float:
    """1e999 is JSON, and more than a float holds."""
    number = float(text)
    if not math.isfinite(number):
        raise PayloadError("the payload contains an infinite number")
    return number
