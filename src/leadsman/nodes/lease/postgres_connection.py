"""A connection to PostgreSQL whose calls end in time, and wait for one answer each. This file knows psycopg.

A task of psycopg that is cancelled asks the server to cancel its query and waits up to 10 s for that, which a server
that is stopped never answers. So a call that takes too long is ended by shutting the socket, and the next one connects
again. A connection that is being made is not given up with the call that asked for it, since to a distant server it
takes several times as long as a call: the next call waits for the same one.
"""

import asyncio
import math
import os
import socket
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from leadsman.errors import InvalidValue, LeaseError, LeaseStoreRefused, LeaseStoreUnreachable, TermsDiffer
from leadsman.extras import missing
from leadsman.text import describe
from leadsman.text.redaction import SecretValue, address_of

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


class PostgresConnection:
    """One connection that is opened when it is needed.

    Args:
        url: ``postgresql://user:password@host/database``; libpq documents its options.
        timeout: seconds that a call may take, with connecting; a connection may take `OPENING` times as long.

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


async def _execute(
    connection: Connection, statements: Sequence[str], values: Mapping[str, object]
) -> list[Sequence[Row]]:
    """The rows of each statement. What one pipeline sends is one transaction (libpq, "Pipeline Mode")."""
    async with connection.pipeline():
        cursors = [await connection.execute(statement.encode(), values) for statement in statements]
    return [await cursor.fetchall() if cursor.description else [] for cursor in cursors]


def _shut(connection: Connection) -> None:
    """End a connection whose other end does not answer: whoever waits for it gets an error at once."""
    with suppress(OSError, Error), socket.socket(fileno=os.dup(connection.fileno())) as line:
        line.shutdown(socket.SHUT_RDWR)
