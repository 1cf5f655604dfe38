"""What parts of an app add to its measures while it runs: families of samples."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple


class MetricFamily(NamedTuple):
    """A family of samples: its name, without the suffix ``_total`` of counters, and the names of its labels."""

    name: str
    kind: Literal["counter", "gauge"]
    help: str
    labels: tuple[str, ...] = ()


def gauge(name: str, text: str, *labels: str) -> MetricFamily:
    """A family of numbers that go up and down; `name` without ``leadsman_``."""
    return MetricFamily(f"leadsman_{name}", "gauge", text, labels)


def counter(name: str, text: str, *labels: str) -> MetricFamily:
    """A family of numbers that only grow; `name` without ``leadsman_`` and ``_total``."""
    return MetricFamily(f"leadsman_{name}", "counter", text, labels)


Measured = float | None | Mapping[str, float]
"""A number, or none; or numbers by the value of a further label."""


class AddedMeasures(NamedTuple):
    """Families of what is measured, each with what reads it."""

    app: Mapping[MetricFamily, Callable[[], Measured]] = MappingProxyType({})
    device: Mapping[MetricFamily, Callable[[str], Measured]] = MappingProxyType({})
    """Those with a sample, or some, for each device. The label of its name is the first one."""
