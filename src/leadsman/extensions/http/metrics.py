"""Writes the metrics in the text format of Prometheus. Only this file imports its client library.

The library writes one family of a few devices at a time, so that a scrape of a thousand devices does not block the
event loop. There is no registry besides ours: the library's global one is shared with everything in the process. What
is measured of the process (``process_*``) comes from the library's own collector.
"""

from collections.abc import Iterator, Sequence

from leadsman.core.introspection.added_measures import MetricFamily
from leadsman.core.introspection.measures import Measures, Sample
from leadsman.core.introspection.pages import PIECE
from leadsman.core.loop.slices import Work
from leadsman.errors import missing

try:
    from prometheus_client import PROCESS_COLLECTOR, generate_latest
    from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
    from prometheus_client.registry import Collector
except ImportError as error:
    raise missing("measures for Prometheus", "prometheus-client", "metrics", error) from error

DEVICES_PER_TURN, LINES_PER_TURN = 20, 100
"""Devices of one family that are written in one turn of the loop, at most; fewer if they have so many samples."""


class Exposition:
    """The text, as it grows.

    Args:
        measures: the values.
    """

    def __init__(self, measures: Measures) -> None:
        self._measures = measures
        self._done: list[bytes] = []
        self._piece = bytearray()

    def write(self) -> Work:
        """Write it, in slices."""
        for family, samples in self._measures.of_the_app().items():
            self._add(_text(family, samples))
        self._add(generate_latest(PROCESS_COLLECTOR))
        yield 0.0
        devices = self._measures.devices
        for family in self._measures.families:
            start = 0
            while start < len(devices):
                samples, end = self._next(family, devices, start)
                text = _text(family, samples)
                self._add(_without_head(text) if start else text)
                start = end
                yield 0.0

    def end(self) -> list[bytes]:
        """The pieces of the text."""
        return [*self._done, bytes(self._piece)]

    def _next(self, family: MetricFamily, devices: Sequence[str], start: int) -> tuple[list[Sample], int]:
        """The samples of the next slice, and where it ends."""
        samples, end = list[Sample](), start
        while end < min(start + DEVICES_PER_TURN, len(devices)) and len(samples) < LINES_PER_TURN:
            samples += self._measures.of_devices(family, devices[end : end + 1])
            end += 1
        return samples, end

    def _add(self, text: bytes) -> None:
        self._piece += text
        if len(self._piece) >= PIECE:
            self._done.append(bytes(self._piece))
            self._piece.clear()


class _OneFamily(Collector):
    """A registry of one family."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterator[Metric]:
        """See `Collector`."""
        yield self._metric


def _text(family: MetricFamily, samples: list[Sample]) -> bytes:
    """A family with its samples."""
    make = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
    metric = make(family.name, family.help, labels=family.labels)
    for labels, value in samples:
        metric.add_metric(labels, value)
    return generate_latest(_OneFamily(metric))


def _without_head(text: bytes) -> bytes:
    """The text without its comments, which a family has once."""
    return b"".join(line for line in text.splitlines(keepends=True) if not line.startswith(b"#"))
