"""How many rows are read back at once: as many as the connection sends until the next ones come. Pure."""

FEW = 60
"""Rows at the least: three windows of a broker that allows 20."""
MANY = 960
"""Rows at the most, unless three windows are more. A fast broker takes them in some 25 ms, which is longer than the
thread needs to write a batch of new readings before it reads."""


class PageSize:
    """Doubles when the connection has sent all there was before a page came.

    An app that is asked for more than it can do writes its readings and reads them back at the same time. With pages of
    `FEW` rows it delivered a quarter of what it can, and never caught up.
    """

    def __init__(self) -> None:
        self._rows = FEW

    def rows(self, window: int) -> int:
        """Rows of the next page, for a connection with so many messages in flight."""
        return max(self._rows, 3 * window)

    def came(self, *, waited: bool, last: bool) -> None:
        """A page came. `waited`: nothing was left to send before it. `last`: no more rows follow it."""
        if last:
            self._rows = FEW
        elif waited:
            self._rows = min(2 * self._rows, MANY)
