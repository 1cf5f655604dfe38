"""The engines that can keep leases, by the scheme of their URL. The library of one is loaded when it is chosen."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from leadsman.errors import InvalidValue
from leadsman.nodes.lease.lease import Member, Terms
from leadsman.nodes.lease.store import LeaseStore
from leadsman.text.redaction import SecretValue, address_of

_NATS, _POSTGRES = ("nats", "tls"), ("postgresql", "postgres")


def store_at(url: str | SecretValue, terms: Terms, member: Member) -> AbstractAsyncContextManager[LeaseStore]:
    """The store of one node, to be entered by ``async with``; see `LeaseStore` for what entering raises.

    Args:
        url: the engine: ``nats://user:password@one:4222,nats://two:4222`` (``tls://`` with TLS) for NATS JetStream, or
            ``postgresql://user:password@host/database`` for PostgreSQL. Its credentials are hidden as long as the store
            lives. It may be a `SecretStr`.
        terms: the terms of the cluster.
        member: this run of the node.

    Raises:
        InvalidValue: the URL has another scheme, or cannot be read.
        NotInstalled: the library of the engine is missing.
    """
    address = address_of(url)
    return _store_of(address)(address, terms, member)


def load_engine(url: str) -> None:
    """Import the library of an engine, which takes long on a small machine. Raises as `store_at`."""
    _store_of(url)


def _store_of(url: str) -> Callable[[str, Terms, Member], AbstractAsyncContextManager[LeaseStore]]:
    scheme = url.partition("://")[0]
    if scheme in _NATS:
        from leadsman.nodes.lease.jetstream import JetStreamStore

        return JetStreamStore
    if scheme in _POSTGRES:
        from leadsman.nodes.lease.postgres import PostgresStore

        return PostgresStore
    raise InvalidValue(
        f"engine {scheme!r} is unknown; write nats://host:4222 or postgresql://user:password@host/database"
    )
