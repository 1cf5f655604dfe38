"""Writes what is measured in the text format of Prometheus. This file knows its client library.

The library writes one family of a few devices at a time, so that a scrape of a thousand devices does not block the
event loop. There is no registry besides ours: the library's global one is shared with everything in the process.
"""

from collections.abc import Iterator

from leadsman.extras import missing
from leadsman.introspection.measures import OF_DEVICES, OF_THE_APP, Family, Measures, Sample
from leadsman.introspection.pages import PIECE
from leadsman.slices import Work

try:
    from prometheus_client import generate_latest
    from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
    from prometheus_client.registry import Collector
except ImportError as error:
    raise missing("measures for Prometheus", "prometheus-client", "metrics", error) from error

SLICE = 20
"""Devices of one family that are written in one turn of the loop."""


class Exposition:
    """The text, as it grows.

    Args:
        measures: what is measured.
    """

    def __init__(self, measures: Measures) -> None:
        self._measures = measures
        self._done: list[bytes] = []
        self._piece = bytearray()

    def write(self) -> Work:
        """Write it, in slices."""
        samples = self._measures.of_the_app()
        for family in OF_THE_APP:
            self._add(_text(family, samples[family]))
        yield 0.0
        devices = self._measures.devices
        for family in OF_DEVICES:
            for start in range(0, len(devices), SLICE):
                text = _text(family, self._measures.of_devices(family, devices[start : start + SLICE]))
                self._add(_without_head(text) if start else text)
                yield 0.0

    def end(self) -> list[bytes]:
        """The pieces of the text."""
        return [*self._done, bytes(self._piece)]

    def _add(self, text: bytes) -> None:
        self._piece += text
        if len(self._piece) >= PIECE:
            self._done.append(bytes(self._piece))
            self._piece.clear()


class _One(Collector):
    """A registry of one family."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterator[Metric]:
        """See `Collector`."""
        yield self._metric


def _text(family: Family, samples: list[Sample]) -> bytes:
    """A family with its samples."""
    make = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
    metric = make(family.name, family.help, labels=family.labels)
    for labels, value in samples:
        metric.add_metric(labels, value)
    return generate_latest(_One(metric))


def _without_head(text: bytes) -> bytes:
    """The text without its comments, which a family has once."""
    return b"".join(line for line in text.splitlines(keepends=True) if not line.startswith(b"#"))
