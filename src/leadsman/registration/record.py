"""A record of registrations, from which an app can be registered once more."""

from collections.abc import Iterator

from leadsman.registration.router import Registration


class Record:
    """Registrations in their order. A loop over devices makes registrations that differ only in their names; they are
    kept as one, since a registration for each of a thousand devices would take 300 bytes a device."""

    def __init__(self) -> None:
        self._registrations: list[Registration] = []
        self._names: list[str] = []
        """The names of the last registration, if it may take further names."""

    def __iter__(self) -> Iterator[Registration]:
        return iter(self._registrations)

    def add(self, registration: Registration) -> None:
        """Add a registration."""
        names = registration.names
        if not isinstance(names, str):
            self._names = []
            self._registrations.append(registration)
        elif self._names and registration._replace(names=self._names) == self._registrations[-1]:
            self._names.append(names)
        else:
            self._names = [names]
            self._registrations.append(registration._replace(names=self._names))
