"""Leases in PostgreSQL: a row for each lease and each member, and one sequence for the tokens of all clusters.

Time is ``now()`` of the server, which is when the transaction began; a transaction that waits for a row thus grants a
shorter lease, never a longer one. Rows of released leases stay, without an owner.
"""

from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import suppress
from typing import Self

from leadsman.errors import LeaseError
from leadsman.nodes.lease.lease import Lease, Member, Terms, check_keys, read_member
from leadsman.nodes.lease.postgres_connection import PostgresConnection, Row
from leadsman.nodes.lease.store import Acquired, ClusterSnapshot
from leadsman.text import clean
from leadsman.text.redaction import SecretValue, address_of

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

    async def members(self) -> tuple[Member, ...]:
        """See `LeaseStore.members`."""
        (found,) = await self._run(_MEMBERS)
        return _members(found)

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
