"""A row of the fault matrix, the figures that it measures, and the table of all rows."""

from collections.abc import Callable
from dataclasses import dataclass, field

P0, P1, P2 = 0, 1, 2
"""Priorities. A release must not miss a row of P0; P1 is expected of a first-class product; P2 is polish."""
MOUNT = "the right to mount a tmpfs"
NETWORK = "root, and a network device of its own"
TIME = "more time than CI has"


class Absent(Exception):
    """This machine lacks something that the row needs to produce its fault."""


@dataclass
class Figure:
    """Something measured, and the limits within which it must be; without limits it is only reported."""

    name: str
    value: float
    unit: str = ""
    most: float | None = None
    least: float | None = None

    @property
    def kept(self) -> bool:
        """Whether it lies within its limits."""
        return (self.most is None or self.value <= self.most) and (self.least is None or self.value >= self.least)

    def __str__(self) -> str:
        value = f"{self.value:,.0f}" if self.value == int(self.value) else f"{self.value:.2f}"
        text = f"{self.name} {value} {self.unit}".strip()
        if self.kept:
            return text
        high = self.most is not None and self.value > self.most
        return f"{text}, and {f'at most {self.most:g}' if high else f'at least {self.least:g}'} is right"


@dataclass
class Row:
    """One fault.

    Args:
        number: as in the first matrix; a letter after it is a second row of the same fault.
        priority: `P0`, `P1` or `P2`.
        fault: what happens.
        expected: what the app does then.
        run: produces the fault with the parts of a `Stand`, and measures; None if tests do it.
        tests: the tests of pytest that produce the fault, as ``file::function``.
        needs: what is not everywhere: `MOUNT`, `NETWORK`, `TIME`.
    """

    number: str
    priority: int
    fault: str
    expected: str
    run: Callable[..., None] | None = None
    tests: tuple[str, ...] = ()
    needs: frozenset[str] = frozenset()

    @property
    def in_ci(self) -> bool:
        """Whether ``make test`` runs it as a row; the tests of a row run there anyway."""
        return self.priority == P0 and self.run is not None and TIME not in self.needs

    @property
    def order(self) -> tuple[int, int, str]:
        """By priority, then by number."""
        return self.priority, int("".join(filter(str.isdigit, self.number))), self.number


@dataclass
class Outcome:
    """What came of a row."""

    row: Row
    figures: list[Figure] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    """What was not as expected, besides figures."""
    absent: str | None = None
    """Why the fault could not be produced here."""
    seconds: float = 0.0

    @property
    def missed(self) -> bool:
        """Whether the app did not do what is expected."""
        return bool(self.faults) or not all(figure.kept for figure in self.figures)

    @property
    def verdict(self) -> str:
        """One word."""
        if self.missed:
            return "MISS"
        return "absent" if self.absent is not None else "pass"

    @property
    def words(self) -> str:
        """The figures, and what was not as expected."""
        words = [*self.faults, *map(str, self.figures)]
        return "; ".join([*words, self.absent] if self.absent else words)


ROWS: list[Row] = []
"""The table. The modules of the rows fill it when they are imported; see `all_rows`."""


def row(
    number: str, priority: int, fault: str, expected: str, *needs: str
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Put a function into the table as a row."""

    def put(run: Callable[..., None]) -> Callable[..., None]:
        ROWS.append(Row(number, priority, fault, expected, run, needs=frozenset(needs)))
        return run

    return put


def covered(number: str, priority: int, fault: str, expected: str, *tests: str) -> None:
    """Put a row into the table whose fault tests of pytest produce."""
    ROWS.append(Row(number, priority, fault, expected, tests=tests))


def all_rows() -> list[Row]:
    """All rows in their order."""
    # Each of them puts its rows into the table.
    from fault_matrix import (  # noqa: F401  # each adds its rows
        answers,
        bluetooth,
        broker,
        chaos,
        clients,
        cluster,
        cluster_days,
        cluster_network,
        covered,
        disk,
        http_devices,
        network,
        power_cuts,
        process,
        security,
        standby,
    )

    return sorted(ROWS, key=lambda each: each.order)
