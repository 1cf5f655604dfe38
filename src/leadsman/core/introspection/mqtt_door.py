"""The door over MQTT to `leadsman.core.introspection.service`.

| topic                           | request                                               |
|---------------------------------|-------------------------------------------------------|
| `{prefix}/introspect`           | some sections of the document about the app           |
| `{prefix}/{device}/get`         | poll the device now                                   |
| `{prefix}/{device}/hold/set`    | poll it no more                                       |
| `{prefix}/{device}/release/set` | poll it again                                         |
| `{prefix}/{device}/circuit/set` | isolate, close or disable its circuit                 |

A request is answered at its response topic, or at its own topic with ``/response`` appended. A retained request is
ignored, and logged. Requests wait for their turn in a queue, `leadsman.core.introspection.request_queue`, so that
thousands at once delay no poll. `leadsman.core.introspection.registry_publication` publishes the registry.

A document of many devices is sent in pages, which go to one topic. Each page has its number and the number of pages.
"""

import functools
import logging

from leadsman.core.introspection.pages import DocumentWriter, around, page_size
from leadsman.core.introspection.registry_publication import room
from leadsman.core.introspection.request_queue import RequestQueue
from leadsman.core.introspection.requests import Query, action_of, sender_of
from leadsman.core.introspection.service import PollResult, Service
from leadsman.core.loop.clock import Clock
from leadsman.core.loop.slices import Slices, Work
from leadsman.core.mqtt import answers
from leadsman.core.mqtt.answers import EXPIRY, Json, RetainedRequests
from leadsman.core.mqtt.connection import Received
from leadsman.core.mqtt.link import Link
from leadsman.core.mqtt.message import Message
from leadsman.core.mqtt.topics import Topics, encode
from leadsman.core.text import clean, explain, log_fields
from leadsman.core.text.log_lines import left_out_before, others
from leadsman.errors import Busy, PayloadError, RequestRefused

FAULT = "a fault of the app; its log says more"
"""The error of an answer that the app failed to make, as over HTTP."""

logger = logging.getLogger("leadsman")


class MqttDoor:
    """Takes requests that arrive over MQTT, and answers them.

    Args:
        service: answers them.
        topics: the topics of the app.
        link: the connection to the broker.
        clock: the clock of the app.
        slices: does what is too long for one turn of the loop.
        queue: where requests wait for their turn.
    """

    def __init__(
        self, service: Service, topics: Topics, link: Link, clock: Clock, slices: Slices, queue: RequestQueue
    ) -> None:
        self._service = service
        self._topics = topics
        self._link = link
        self._clock = clock
        self._slices = slices
        self._retained = RetainedRequests()
        self._lines = others()
        self._queue = queue

    # Documents

    def on_introspect(self, received: Received) -> None:
        """Answer a request for a document."""
        if received.retain:
            self._retained.warn("introspect")
        else:
            self._queue.add(received, self._introspect, self._refuse)

    def _introspect(self, received: Received) -> None:
        request, transaction, error = None, None, None
        try:
            value, transaction = answers.decode(received.payload)
            request = self._service.understood(value)
        except (PayloadError, RequestRefused) as refused:
            error = explain(refused)
        envelope = answers.document(None, error, self._clock.wall(), transaction)
        message = answers.answer_anyway(received, self._topics, envelope, self._lines, self._clock.wall())
        if request is None:
            self._send(message)
            return
        del envelope["data"]  # comes in pages
        self._slices.begin("introspection", self._answer(request, message, envelope))

    def _answer(self, request: Query, message: Message, envelope: dict[str, Json]) -> Work:
        """Make the document that a request asks for, and send it: in one message, or in pages."""
        with self._service.under_way():
            pages = DocumentWriter(page_size(self._link.maximum_packet_size, len(message.payload)))
            try:
                yield from self._service.describe(request, pages)
            except Exception:  # the log has more
                fault = encode({**envelope, "status": "error", "data": None, "error": FAULT})
                self._send(message._replace(payload=fault))
                raise
            documents = pages.end()
            for number, document in enumerate(documents, 1):
                if not (yield from room(self._link, self._clock, EXPIRY)):
                    return
                payload = around(envelope, b'{"data":' + document + b"}", number, len(documents))
                self._send(message._replace(payload=payload))
                if number < len(documents):
                    yield 0.0

    # Requests about a device

    def on_set(self, received: Received) -> None:
        """Handle a request at ``hold/set``, ``release/set`` or ``circuit/set``. Others are ignored."""
        device, kind = self._topics.device_of(received.topic), received.topic.split("/")[-2]
        if kind not in ("hold", "release", "circuit"):
            return
        if received.retain:
            self._retained.warn(device)
        else:
            self._queue.add(received, self._set, self._refuse)

    def _set(self, received: Received) -> None:
        device, kind = self._topics.device_of(received.topic), received.topic.split("/")[-2]

        def handle(request: Json) -> Json:
            by = sender_of(request, f"somebody at {received.response_topic or received.topic}")
            if kind == "circuit":
                return self._service.circuit(device, action_of(request), by)
            return (self._service.hold if kind == "hold" else self._service.release)(device, by)

        self._send(answers.answer_request(received, self._topics, self._clock.wall(), handle, self._lines))

    def on_get(self, received: Received) -> None:
        """Handle a request for a reading."""
        if received.retain:
            self._retained.warn(self._topics.device_of(received.topic))
        else:
            self._queue.add(received, self._get, self._refuse)

    def _get(self, received: Received) -> None:
        device, transaction = self._topics.device_of(received.topic), None
        try:
            request, transaction = answers.decode(received.payload)
            polled = functools.partial(self._polled, received, transaction)
            self._service.poll(device, polled, request, received.payload)
        except (PayloadError, RequestRefused) as error:
            self._polled(received, transaction, PollResult(None, explain(error)))

    def _polled(self, received: Received, transaction: Json, result: PollResult) -> None:
        """Answer a request for a reading. A sender without a response topic sees the reading as the device's state. It
        only gets an answer if something went wrong, or if the request carried a transaction."""
        if received.response_topic is None and result.error is None and transaction is None:
            return
        if result.error is not None:
            self._log_refused(received, result.error)
        answer = answers.document(result.fields, result.error, self._clock.wall(), transaction)
        self._send(answers.answer_anyway(received, self._topics, answer, self._lines, self._clock.wall()))

    def _log_refused(self, received: Received, error: str) -> None:
        before = self._lines.left_out("request refused", self._clock.wall())
        if before is not None:
            about = log_fields("request refused", topic=received.topic)
            logger.info("%s: %s%s", clean(received.topic), error, left_out_before(before), extra=about)

    def _refuse(self, received: Received, refused: Busy | PayloadError) -> None:
        """Answer a request whose turn does not come."""
        self._send(answers.refusal(received, self._topics, self._clock.wall(), refused, self._lines))

    def _send(self, answer: Message) -> None:
        self._link.put(answer._replace(expires=self._clock.monotonic() + EXPIRY))
