"""A connection to PostgreSQL whose calls end in time. This file knows psycopg.

A task of psycopg that is cancelled asks the server to cancel its query and waits up to 10 s for that, which a server
that is stopped never answers. So a call that takes too long is ended by shutting the socket, and the next one connects
again.
"""

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from leadsman.errors import InvalidValue, LeaseError, LeaseStoreRefused, LeaseStoreUnreachable, TermsDiffer
from leadsman.extras import missing
from leadsman.redaction import SecretValue, address_of
from leadsman.text import describe

try:
    from psycopg import AsyncConnection, Error, IsolationLevel, ProgrammingError, errors
    from psycopg.conninfo import conninfo_to_dict
except ImportError as error:
    raise missing("leases in PostgreSQL", "psycopg and libpq5", "postgres", error) from error

T = TypeVar("T")
Row = tuple[Any, ...]
Connection = AsyncConnection[Row]

_REFUSALS = ("authentication failed", "no password supplied", "no pg_hba.conf entry", "does not exist", "permission")
"""Parts of the messages of a server that no other attempt helps against. A refused connection has no error code that
psycopg passes on."""

_DURABLE = b"""
select set_config('synchronous_commit', 'on', false) where current_setting('synchronous_commit') in ('off', 'local')
"""
"""A lease that a crash of the server forgets would have two owners."""


class PostgresConnection:
    """One connection that is opened when it is needed.

    Args:
        url: ``postgresql://user:password@host/database``; libpq documents its options.
        timeout: seconds that a call may take, with connecting.

    Raises:
        InvalidValue: the URL cannot be read.
    """

    def __init__(self, url: str | SecretValue, timeout: float) -> None:
        self._url = address_of(url)
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
        self._turn = asyncio.Lock()

    async def call(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Do some work on the connection, as one transaction, within the timeout. Calls take turns.

        Raises:
            LeaseError: see `LeaseStore`.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout
        try:
            async with asyncio.timeout_at(deadline):
                await self._turn.acquire()
        except TimeoutError:
            raise self._unanswered() from None
        try:
            connection = await self._connected(deadline)
            return await self._bounded(connection, self._transaction(connection, work), deadline)
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
        connection, self._open = self._open, None
        if connection is not None:
            await connection.close()

    async def _transaction(self, connection: Connection, work: Callable[[Connection], Awaitable[T]]) -> T:
        async with connection.transaction():
            return await work(connection)

    async def _bounded(self, connection: Connection, work: Coroutine[Any, Any, T], deadline: float) -> T:
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait({task}, timeout=deadline - asyncio.get_running_loop().time())
            if task.done():
                return task.result()
            raise self._unanswered()
        finally:
            if not task.done():
                _shut(connection)
                await asyncio.gather(task, return_exceptions=True)
            if connection.closed or connection.broken:
                await self.close()

    async def _connected(self, deadline: float) -> Connection:
        if self._open is None or self._open.closed:
            try:
                async with asyncio.timeout_at(deadline):
                    self._open = await AsyncConnection.connect(self._url, autocommit=True, prepare_threshold=None)
            except TimeoutError:
                raise self._unanswered() from None
            await self._bounded(self._open, _prepare(self._open), deadline)
        return self._open

    def _unanswered(self) -> LeaseStoreUnreachable:
        return LeaseStoreUnreachable(
            f"{self._where} did not answer within {self._timeout:g} s; check that it runs, and that this machine"
            " reaches it"
        )

    def _named(self, error: Error) -> LeaseError:
        said = str(error).strip().replace("\n", " ")
        if isinstance(error, errors.InsufficientPrivilege):
            return LeaseStoreRefused(
                f"{self._where} does not permit this ({said}); as its owner type: GRANT CREATE ON DATABASE"
                f' "{self.database}" TO "{self.user}"; or, if the schema leadsman is there, GRANT ALL ON SCHEMA'
                " leadsman, ON ALL TABLES IN SCHEMA leadsman and ON ALL SEQUENCES IN SCHEMA leadsman to that user"
            )
        if isinstance(error, errors.UndefinedTable | errors.UndefinedColumn | errors.WrongObjectType):
            return TermsDiffer(
                f"{self._where} holds something else in the schema leadsman, or it was deleted ({said}); stop all"
                " nodes of the cluster, rename that schema, and start them again"
            )
        if isinstance(error, errors.ReadOnlySqlTransaction):
            return LeaseStoreUnreachable(
                f"{self._where} is a standby, which cannot be written; name all servers in the URL, and add"
                " target_session_attrs=read-write"
            )
        if error.sqlstate is None and any(part in said for part in _REFUSALS):
            return LeaseStoreRefused(
                f"{self._where} refuses the connection ({said}); correct the user, the password or the database in"
                " the URL"
            )
        return LeaseStoreUnreachable(f"{self._where} cannot be used ({said}); check the URL, and that the server runs")


async def rows(connection: Connection, statement: str, values: Mapping[str, object]) -> Sequence[Row]:
    """The rows that a statement returns."""
    cursor = await connection.execute(statement.encode(), values)
    return await cursor.fetchall() if cursor.description else []


async def _prepare(connection: Connection) -> None:
    await connection.set_isolation_level(IsolationLevel.READ_COMMITTED)
    await connection.execute(_DURABLE)


def _shut(connection: Connection) -> None:
    """End a connection whose other end does not answer: whoever waits for it gets an error at once."""
    with suppress(OSError, Error), socket.socket(fileno=os.dup(connection.fileno())) as line:
        line.shutdown(socket.SHUT_RDWR)
