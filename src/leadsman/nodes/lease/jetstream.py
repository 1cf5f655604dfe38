"""Leases in NATS JetStream: a key of a bucket for each lease and each member.

A key lives for the TTL of the bucket, counted by the servers from its last write. Every write names the revision that
it replaces, so of two nodes one gets the lease. The token is the revision of the write that granted it; each later
write carries it.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple, Self

from leadsman.errors import LeaseError
from leadsman.nodes.lease.jetstream_bucket import OPENING, Bucket, BucketEntry, in_batches
from leadsman.nodes.lease.lease import Lease, Member, Terms, check_keys, is_owner, read_member
from leadsman.nodes.lease.store import Acquired, ClusterSnapshot
from leadsman.text import clean
from leadsman.text.redaction import SecretValue

GATHER = 0.05
"""Seconds for which changes are gathered."""
_LEASE, _MEMBER = "lease.", "member."
_LARGEST = 16 * 1024
"""Bytes of a value; one that we write has some 200."""


class _Unread(NamedTuple):
    """A key that has no member, though its name is that of one."""

    name: str


_Found = Lease | Member | _Unread | None
"""What a key says; None if it was deleted."""


class JetStreamStore:
    """One node's access to the leases in a NATS cluster: a `LeaseStore`.

    Args:
        url: of the servers, with commas in between; it may be a `SecretStr`.
        terms: the terms of the cluster.
        member: this run of the node.

    Raises:
        InvalidValue: the URL cannot be read.
    """

    def __init__(self, url: str | SecretValue, terms: Terms, member: Member) -> None:
        self._bucket = Bucket(url, terms)
        self._terms = terms
        self._member = member
        self._revisions: dict[str, tuple[int, int]] = {}
        """Of this node's leases: the token, and the revision of the last write."""

    async def __aenter__(self) -> Self:
        try:
            await self._bucket.call(self._bucket.open(), OPENING)
            await self.renew(())
        except BaseException:
            await self._bucket.close()
            raise
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        try:
            with suppress(LeaseError):  # the membership ends by itself
                await self._bucket.call(self._bucket.put(self._member_key, None))
        finally:
            await self._bucket.close()

    async def acquire(self, keys: Iterable[str]) -> Acquired:
        """See `LeaseStore.acquire`."""
        chosen = check_keys(keys)
        answer = Acquired({}, {})
        for lease in await self._bucket.call(in_batches(self._acquire, chosen)):
            if lease is not None:
                (answer.granted if self._is_mine(lease) else answer.held)[lease.key] = lease
        return answer

    async def renew(self, leases: Iterable[Lease]) -> dict[str, Lease]:
        """See `LeaseStore.renew`."""
        chosen = list(leases)

        async def renew() -> list[Lease | None]:
            alive = self._bucket.put(self._member_key, _encode(self._member))
            _, renewed = await asyncio.gather(alive, in_batches(self._renew, chosen))
            return renewed

        renewed = await self._bucket.call(renew())
        return {lease.key: lease for lease in renewed if lease is not None}

    async def release(self, leases: Iterable[Lease]) -> None:
        """See `LeaseStore.release`."""
        await self._bucket.call(in_batches(lambda lease: self._write(lease, None), list(leases)))

    async def members(self) -> tuple[Member, ...]:
        """See `LeaseStore.members`."""
        return _snapshot(await self._bucket.call(self._refreshed({}, only=_MEMBER))).members

    def restate(self, member: Member) -> None:
        """See `LeaseStore.restate`."""
        self._member = member

    async def watch(self) -> AsyncGenerator[ClusterSnapshot, None]:
        """See `LeaseStore.watch`."""
        known: dict[str, _Found] = {}
        wake = asyncio.Event()
        outdated: set[str] = set()

        def heard(key: str, value: bytes | None) -> None:
            if key not in known or _read(key, BucketEntry(value, 0), self._terms.ttl) != known[key]:
                outdated.add(key)
                wake.set()

        before = None
        async with self._bucket.listening(heard):
            while True:
                wake.clear()
                kept = {key: value for key, value in known.items() if key not in outdated}
                outdated.clear()
                known = await self._bucket.call(self._refreshed(kept))
                snapshot = _snapshot(known)
                if snapshot != before:
                    before = snapshot
                    yield snapshot
                with suppress(TimeoutError):
                    await asyncio.wait_for(wake.wait(), self._terms.ttl / 4)
                    await asyncio.sleep(GATHER)

    async def _refreshed(self, known: Mapping[str, "_Found"], only: str = "") -> dict[str, "_Found"]:
        """What the keys of the bucket have: of those that are known nothing is asked but whether they still exist."""
        keys = {key for key in await self._bucket.keys() if key.startswith(only)}
        found = await self._bucket.get_all(keys - known.keys())
        read = {key: _read(key, entry, self._terms.ttl) for key, entry in found.items() if entry is not None}
        return {key: value for key, value in known.items() if key in keys} | read

    async def _acquire(self, key: str) -> Lease | None:
        name = _LEASE + key
        token = await self._bucket.put(name, self._value(), expected=0)
        if token is None:
            entry = await self._bucket.get(name)
            found = entry and _read(name, entry, self._terms.ttl)
            if isinstance(found, Lease) and not self._is_mine(found):
                return found
            token = await self._bucket.put(name, self._value(), expected=entry.revision if entry else 0)
        if token is None:  # it has changed hands meanwhile
            return None
        self._revisions[key] = (token, token)
        return Lease(key, self._member.owner, token, self._terms.ttl)

    async def _renew(self, lease: Lease) -> Lease | None:
        revision = await self._write(lease, self._value(lease.token))
        if revision is None:
            return None
        self._revisions[lease.key] = (lease.token, revision)
        return lease

    async def _write(self, lease: Lease, value: bytes | None) -> int | None:
        """Write the key of a lease if this node still has it. Returns the new revision.

        If the revision is not the last one that was answered, the answer of a later write may have been lost; then the
        key still names this lease.
        """
        if not self._is_mine(lease):
            return None
        name = _LEASE + lease.key
        token, revision = self._revisions.get(lease.key, (0, 0))
        if token == lease.token:
            written = await self._bucket.put(name, value, revision)
            if written is not None:
                return written
        entry = await self._bucket.get(name)
        if entry is None or _read(name, entry, self._terms.ttl) != lease:
            return None
        return await self._bucket.put(name, value, entry.revision)

    def _is_mine(self, lease: Lease) -> bool:
        return lease.owner == self._member.owner

    def _value(self, token: int | None = None) -> bytes:
        """What is written for a lease. The write that grants it does not know its own revision yet."""
        document: dict[str, object] = {"owner": self._member.owner}
        if token is not None:
            document["token"] = token
        return json.dumps(document).encode()

    @property
    def _member_key(self) -> str:
        return _key_of(self._member)


def _key_of(member: Member) -> str:
    return f"{_MEMBER}{member.node}.{member.run}"


def _encode(member: Member) -> bytes:
    document = {"node": member.node, "run": member.run, "labels": sorted(member.labels), "version": member.version}
    return json.dumps(document).encode()


def _read(name: str, entry: BucketEntry, ttl: float) -> "_Found":
    """What a key says. What anybody else has written there counts as a lease of nobody, and as no member."""
    if entry.value is None:
        return None
    document = _document(entry.value)
    if name.startswith(_MEMBER):
        member = read_member(*(document.get(field) for field in ("node", "run", "labels", "version")))
        return member if member is not None and name == _key_of(member) else _Unread(name)
    key, owner, token = name.removeprefix(_LEASE), document.get("owner"), document.get("token", entry.revision)
    if not is_owner(owner) or type(token) is not int or not 0 <= token < 2**63:
        return Lease(key, "", entry.revision, ttl)
    return Lease(key, str(owner), token, ttl)


def _document(value: bytes) -> dict[str, object]:
    """The JSON object in a value; an empty one if it has none."""
    if len(value) > _LARGEST:
        return {}
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _snapshot(known: Mapping[str, "_Found"]) -> ClusterSnapshot:
    leases = {each.key: each for each in known.values() if isinstance(each, Lease)}
    members = [each for each in known.values() if isinstance(each, Member)]
    unread = [each.name for each in known.values() if isinstance(each, _Unread)]
    unread += [f"{_LEASE}{lease.key}" for lease in leases.values() if not lease.owner]
    return ClusterSnapshot(
        leases, tuple(sorted(members, key=lambda member: (member.node, member.run))), frozenset(map(clean, unread))
    )
