"""Leases in PostgreSQL: a row for each lease and each member, and one sequence for the tokens of all clusters.

Time is ``now()`` of the server, which is when the transaction began; a transaction that waits for a row thus grants a
shorter lease, never a longer one. Rows of released leases stay, without an owner.

This file uses psycopg. A task of psycopg that is cancelled asks the server to cancel its query and waits up to 10 s
for that, which a server that is stopped never answers. So a call that takes too long is ended by shutting the socket,
and the next one connects again. A connection that is being made is not given up with the call that asked for it, since
to a distant server it takes several times as long as a call: the next call waits for the same one.
"""

import asyncio
import math
import os
import socket
from collections.abc import AsyncGenerator, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Self, TypeVar

from leadsman.errors import InvalidValue, LeaseError, LeaseStoreRefused, LeaseStoreUnreachable, TermsDiffer, missing
from leadsman.nodes.lease.lease import Lease, Member, Terms, check_keys, read_member
from leadsman.nodes.lease.store import Acquired, ClusterSnapshot
from leadsman.text import clean, describe
from leadsman.text.redaction import Secret, SecretValue, address_of

try:
    from psycopg import AsyncConnection, Error, ProgrammingError, errors
    from psycopg.conninfo import conninfo_to_dict
except ImportError as error:
    raise missing("leases in PostgreSQL", "psycopg and libpq5", "postgres", error) from error

T = TypeVar("T")
Row = tuple[Any, ...]
Connection = AsyncConnection[Row]

_REFUSALS = ("authentication failed", "no password supplied", "no pg_hba.conf entry", "does not exist", "permission")
"""Parts of the messages of a server that no other attempt helps against. A refused connection has no error code that
psycopg passes on."""

OPENING = 6
"""How many times longer than a call a connection may take: it has five round trips, one with our settings, and with TLS
two more."""
_SETTINGS = (
    "select set_config('default_transaction_isolation', 'read committed', false)",
    "select set_config('synchronous_commit', 'on', false)"
    " where current_setting('synchronous_commit') in ('off', 'local')",
)
"""A lease that a crash of the server forgets would have two owners."""
_LOCK = 0x6C656173
"""The advisory lock under which the schema is made: the letters ``leas``."""
_EXISTS = "select to_regclass('leadsman.terms') is not null"
_SCHEMA = (
    f"select pg_advisory_xact_lock({_LOCK})",
    "create schema if not exists leadsman",
    "create sequence if not exists leadsman.token",
    """
create table if not exists leadsman.terms (
    cluster text primary key, shards bigint not null, ttl double precision not null)
""",
    """
create table if not exists leadsman.lease (
    cluster text, key text, owner text, token bigint not null default 0,
    until timestamptz not null default '-infinity', primary key (cluster, key)) with (fillfactor = 50)
""",
    """
create table if not exists leadsman.member (
    cluster text, owner text, node text not null, run text not null, labels text[] not null, version text not null,
    until timestamptz not null, primary key (cluster, owner)) with (fillfactor = 50)
""",
)
"""Half of each page is left free, so that a renewal writes the page of its row and no index."""
_JOIN_TERMS = """
insert into leadsman.terms (cluster, shards, ttl) values (%(cluster)s, %(shards)s, %(ttl)s) on conflict do nothing
"""
_READ_TERMS = "select shards, ttl from leadsman.terms where cluster = %(cluster)s"
_FORGET = "delete from leadsman.member where cluster = %(cluster)s and until < now() - interval '1 day'"

_ADD = """
insert into leadsman.lease (cluster, key)
select %(cluster)s, key from unnest(%(keys)s::text[]) as key order by key on conflict do nothing
"""
"""In order: two nodes that add the same keys in different orders would wait for each other."""
_ACQUIRE = """
with granted as (
    update leadsman.lease set owner = %(owner)s, token = nextval('leadsman.token'),
        until = now() + %(ttl)s * interval '1 second'
    where (cluster, key) in (
        select cluster, key from leadsman.lease where cluster = %(cluster)s and key = any(%(keys)s::text[])
        and (owner is null or owner = %(owner)s or until <= now()) for update skip locked)
    returning key, owner, token)
select key, owner, token, pg_notify('leadsman', %(cluster)s) from granted
"""
"""The token is taken when the row is locked, so it is greater than that of any earlier lease of the key. Equal notices
of one transaction are one."""
_HELD = """
select key, owner, token from leadsman.lease
where cluster = %(cluster)s and key = any(%(keys)s::text[]) and owner <> %(owner)s and until > now()
"""
_RENEW = """
with alive as (
    insert into leadsman.member (cluster, owner, node, run, labels, version, until)
    values (%(cluster)s, %(owner)s, %(node)s, %(run)s, %(labels)s::text[], %(version)s,
        now() + %(ttl)s * interval '1 second')
    on conflict (cluster, owner) do update set until = excluded.until, labels = excluded.labels)
update leadsman.lease set until = now() + %(ttl)s * interval '1 second'
from unnest(%(keys)s::text[], %(tokens)s::bigint[]) as mine (key, token)
where cluster = %(cluster)s and lease.key = mine.key and lease.token = mine.token and owner = %(owner)s
    and until > now()
returning lease.key, lease.token
"""
_RELEASE = """
with released as (
    update leadsman.lease set owner = null, until = '-infinity'
    from unnest(%(keys)s::text[], %(tokens)s::bigint[]) as mine (key, token)
    where cluster = %(cluster)s and lease.key = mine.key and lease.token = mine.token and owner = %(owner)s
    returning lease.key)
select pg_notify('leadsman', %(cluster)s) from released
"""
_LEAVE = "delete from leadsman.member where cluster = %(cluster)s and owner = %(owner)s"
_LEASES = """
select key, left(owner, 300), token from leadsman.lease where cluster = %(cluster)s and owner <> '' and until > now()
"""
_MEMBERS = """
select left(owner, 300), left(node, 300), left(run, 300), case when pg_column_size(labels) <= 65536 then labels end,
    left(version, 300)
from leadsman.member where cluster = %(cluster)s and until > now()
"""
"""Anybody who may write there may write anything, of any size."""
_NOTIFY = "select pg_notify('leadsman', %(cluster)s)"
_LISTEN = "listen leadsman"


class PostgresConnection:
    """One connection that is opened when it is needed. Its calls end in time, and wait for one answer each.

    Args:
        url: ``postgresql://user:password@host/database``; libpq documents its options.
        timeout: seconds that a call may take, with connecting; a connection may take `OPENING` times as long.

    Raises:
        InvalidValue: the URL cannot be read.
    """

    def __init__(self, url: Secret, timeout: float) -> None:
        self._url = url
        try:
            parts = conninfo_to_dict(self._url)
        except ProgrammingError as error:
            raise InvalidValue(
                f"the URL of PostgreSQL cannot be read ({describe(error)}); write"
                " postgresql://user:password@host/database"
            ) from None
        self.database = str(parts.get("dbname") or parts.get("user") or "")
        self.user = str(parts.get("user") or "this user")
        self._where = f"PostgreSQL at {parts.get('host') or 'the local socket'}, database {self.database!r},"
        self._timeout = timeout
        self._open: Connection | None = None
        self._opening: asyncio.Task[Connection] | None = None
        self._turn = asyncio.Lock()

    async def open(self) -> None:
        """Connect, which may take `OPENING` times as long as a call.

        Raises:
            LeaseError: see `LeaseStore`.
        """
        try:
            await self._connected(math.inf)
        except Error as error:
            raise self._named(error) from error

    async def run(self, statements: Sequence[str], values: Mapping[str, object]) -> list[Sequence[Row]]:
        """Execute statements as one transaction, within the timeout. All are sent at once. Returns the rows of each.
        Calls take turns.

        Raises:
            LeaseError: see `LeaseStore`.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout
        try:
            async with asyncio.timeout_at(deadline):
                await self._turn.acquire()
        except TimeoutError:
            raise self._unanswered(self._timeout) from None
        try:
            connection = await self._connected(deadline)
            return await self._bounded(connection, _execute(connection, statements, values), deadline)
        except Error as error:
            raise self._named(error) from error
        finally:
            self._turn.release()

    async def notice(self, seconds: float) -> None:
        """Wait until a notice comes, and at most so many seconds.

        Raises:
            LeaseStoreUnreachable: the connection is lost.
        """
        connection = self._open
        if connection is None:
            return
        try:
            async for _ in connection.notifies(timeout=seconds, stop_after=1):
                pass
        except Error as error:
            await self.close()
            raise self._named(error) from error

    async def close(self) -> None:
        """End the connection."""
        opening, self._opening = self._opening, None
        if opening is not None:
            opening.cancel()
            (opened,) = await asyncio.gather(opening, return_exceptions=True)
            if not isinstance(opened, BaseException):
                await opened.close()
        connection, self._open = self._open, None
        if connection is not None:
            await connection.close()

    async def _bounded(self, connection: Connection, work: Coroutine[Any, Any, T], deadline: float) -> T:
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait({task}, timeout=deadline - asyncio.get_running_loop().time())
            if task.done():
                return task.result()
            raise self._unanswered(self._timeout)
        finally:
            if not task.done():
                _shut(connection)
                await asyncio.gather(task, return_exceptions=True)
            if connection.closed or connection.broken:
                if connection is self._open:
                    self._open = None
                await connection.close()

    async def _connected(self, deadline: float) -> Connection:
        if self._open is None or self._open.closed:
            opening = self._opening
            if opening is None or (opening.done() and opening.exception() is not None):
                opening = self._opening = asyncio.ensure_future(self._connect())
            left = deadline - asyncio.get_running_loop().time()
            await asyncio.wait({opening}, timeout=None if left == math.inf else left)
            if not opening.done():
                raise self._unanswered(self._timeout)
            self._opening = None
            self._open = opening.result()
        return self._open

    async def _connect(self) -> Connection:
        deadline = asyncio.get_running_loop().time() + OPENING * self._timeout
        try:
            async with asyncio.timeout_at(deadline):
                connection = await AsyncConnection.connect(self._url, autocommit=True, prepare_threshold=None)
        except TimeoutError:
            raise self._unanswered(OPENING * self._timeout) from None
        try:
            await self._bounded(connection, _execute(connection, _SETTINGS, {}), deadline)
        except BaseException:
            await connection.close()
            raise
        return connection

    def _unanswered(self, seconds: float) -> LeaseStoreUnreachable:
        return LeaseStoreUnreachable(
            f"{self._where} did not answer within {seconds:g} s; check that it runs, and that this machine reaches it"
        )

    def _named(self, error: Error) -> LeaseError:
        message = str(error).strip().replace("\n", " ")
        if isinstance(error, errors.InsufficientPrivilege):
            return LeaseStoreRefused(
                f"{self._where} does not permit this ({message}); as its owner type: GRANT CREATE ON DATABASE"
                f' "{self.database}" TO "{self.user}"; or, if the schema leadsman is there, GRANT ALL ON SCHEMA'
                " leadsman, ON ALL TABLES IN SCHEMA leadsman and ON ALL SEQUENCES IN SCHEMA leadsman to that user"
            )
        if isinstance(error, errors.UndefinedTable | errors.UndefinedColumn | errors.WrongObjectType):
            return TermsDiffer(
                f"{self._where} holds something else in the schema leadsman, or it was deleted ({message}); stop all"
                " nodes of the cluster, rename that schema, and start them again"
            )
        if isinstance(error, errors.ReadOnlySqlTransaction):
            return LeaseStoreUnreachable(
                f"{self._where} is a standby, which cannot be written; name all servers in the URL, and add"
                " target_session_attrs=read-write"
            )
        if error.sqlstate is None and any(part in message for part in _REFUSALS):
            return LeaseStoreRefused(
                f"{self._where} refuses the connection ({message}); correct the user, the password or the database in"
                " the URL"
            )
        return LeaseStoreUnreachable(
            f"{self._where} cannot be used ({message}); check the URL, and that the server runs"
        )


async def _execute(
    connection: Connection, statements: Sequence[str], values: Mapping[str, object]
) -> list[Sequence[Row]]:
    """The rows of each statement. What one pipeline sends is one transaction (libpq, "Pipeline Mode")."""
    async with connection.pipeline():
        cursors = [await connection.execute(statement.encode(), values) for statement in statements]
    return [await cursor.fetchall() if cursor.description else [] for cursor in cursors]


def _shut(connection: Connection) -> None:
    """End a connection whose other end does not answer: a call that waits for it gets an error at once."""
    with suppress(OSError, Error), socket.socket(fileno=os.dup(connection.fileno())) as line:
        line.shutdown(socket.SHUT_RDWR)


class PostgresStore:
    """One node's access to the leases in a PostgreSQL database: a `LeaseStore`.

    Args:
        url: ``postgresql://user:password@host/database``; it may be a `SecretStr`.
        terms: the terms of the cluster.
        member: this run of the node.

    Raises:
        InvalidValue: the URL cannot be read.
    """

    def __init__(self, url: str | SecretValue, terms: Terms, member: Member) -> None:
        self._url = address_of(url)
        self._terms = terms
        self._member = member
        self._restated = False
        self._connection = PostgresConnection(self._url, terms.timeout)
        self._values: dict[str, object] = {
            "cluster": terms.cluster,
            **terms.document(),
            "owner": member.owner,
            "node": member.node,
            "run": member.run,
            "labels": sorted(member.labels),
            "version": member.version,
        }

    async def __aenter__(self) -> Self:
        try:
            await self._connection.open()
            await self._join()
            await self.renew(())
            await self._run(_NOTIFY)
        except BaseException:
            await self._connection.close()
            raise
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        with suppress(LeaseError):  # the membership ends by itself
            await self._run(_LEAVE, _NOTIFY)
        await self._connection.close()

    async def acquire(self, keys: Iterable[str]) -> Acquired:
        """See `LeaseStore.acquire`."""
        _, granted, held = await self._run(_ADD, _ACQUIRE, _HELD, keys=check_keys(keys))
        return Acquired(self._leases(granted), self._leases(held))

    async def renew(self, leases: Iterable[Lease]) -> dict[str, Lease]:
        """See `LeaseStore.renew`."""
        mine = self._mine(leases)
        labels = self._values["labels"]
        renewed, *_ = await self._run(*(_RENEW, _NOTIFY) if self._restated else (_RENEW,), **_columns(mine))
        self._restated = labels != self._values["labels"]  # meanwhile
        newest = {(key, token) for key, token in renewed}
        return {lease.key: lease for lease in mine if (lease.key, lease.token) in newest}

    async def release(self, leases: Iterable[Lease]) -> None:
        """See `LeaseStore.release`."""
        await self._run(_RELEASE, **_columns(self._mine(leases)))

    def restate(self, member: Member) -> None:
        """See `LeaseStore.restate`."""
        self._values["labels"] = sorted(member.labels)
        self._restated = True

    async def watch(self) -> AsyncGenerator[ClusterSnapshot, None]:
        """See `LeaseStore.watch`. It has a connection of its own."""
        connection = PostgresConnection(self._url, self._terms.timeout)
        try:
            before = None
            await connection.open()
            await connection.run((_LISTEN,), {})
            while True:
                leases, found = await connection.run((_LEASES, _MEMBERS), self._values)
                unread = frozenset(clean(str(row[0])) for row in found if not _member(row))
                snapshot = ClusterSnapshot(self._leases(leases), _members(found), unread)
                if snapshot != before:
                    before = snapshot
                    yield snapshot
                await connection.notice(self._terms.ttl / 4)
        finally:
            await connection.close()

    async def _join(self) -> None:
        """Make the schema if there is none, and write the terms if there are none. Raises `TermsDiffer` if there are
        others."""
        ((exists,),), *_ = await self._run(_EXISTS)
        if not exists:
            await self._run(*_SCHEMA)
        *_, ((shards, ttl),) = await self._run(_JOIN_TERMS, _FORGET, _READ_TERMS)
        where = f"row {self._terms.cluster!r} of table leadsman.terms"
        self._terms.compare({"shards": shards, "ttl": ttl}, where)

    async def _run(self, *statements: str, **values: object) -> list[Sequence[Row]]:
        return await self._connection.run(statements, self._values | values)

    def _mine(self, leases: Iterable[Lease]) -> list[Lease]:
        return [lease for lease in leases if lease.owner == self._member.owner]

    def _leases(self, found: Iterable[Row]) -> dict[str, Lease]:
        return {key: Lease(key, owner, token, self._terms.ttl) for key, owner, token, *_ in found}


def _columns(leases: Iterable[Lease]) -> dict[str, object]:
    chosen = list(leases)
    return {"keys": [lease.key for lease in chosen], "tokens": [lease.token for lease in chosen]}


def _member(row: Sequence[object]) -> Member | None:
    owner, *fields = row
    member = read_member(*fields)
    return member if member is not None and member.owner == owner else None


def _members(found: Iterable[Sequence[object]]) -> tuple[Member, ...]:
    members = [member for row in found if (member := _member(row)) is not None]
    return tuple(sorted(members, key=lambda member: (member.node, member.run)))
