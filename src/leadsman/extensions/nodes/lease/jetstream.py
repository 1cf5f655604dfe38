"""Leases in NATS JetStream: a key of a bucket for each lease and each member.

A key lives for the TTL of the bucket, counted by the servers from its last write. Every write names the revision that
it replaces, so of two nodes one gets the lease, and a node that gets no answers makes its leases and its membership
last once more, and not again. The token is the revision of the write that granted it; each later write carries it.

This file uses the library. A bucket is the stream ``KV_<bucket>``, and a key the subject ``$KV.<bucket>.<key>`` (NATS
architecture decision 8), so ``nats kv`` shows it. Only requests to the stream are used. Listing and watching keys by
the calls of the library makes a consumer for each call; with one of three servers down such calls took 28 s.
"""

import asyncio
import json
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple, Self, TypeVar
from urllib.parse import urlsplit

from leadsman.core.text import clean
from leadsman.core.text.redaction import SecretValue, address_of
from leadsman.core.tls import client_context
from leadsman.errors import InvalidValue, LeaseError, LeaseStoreRefused, LeaseStoreUnreachable, TermsDiffer, missing
from leadsman.extensions.nodes.lease.lease import Lease, Member, Terms, check_keys, is_owner, read_member
from leadsman.extensions.nodes.lease.store import Acquired, ClusterSnapshot

try:
    import nats
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription
    from nats.errors import AuthorizationError, ConnectionClosedError, NoRespondersError
    from nats.js import JetStreamContext
    from nats.js.api import DiscardPolicy, StreamConfig, StreamInfo
    from nats.js.errors import APIError, NoStreamResponseError, NotFoundError, ServiceUnavailableError
except ImportError as error:
    raise missing("leases in NATS", "nats-py", "nats", error) from error

S = TypeVar("S")
T = TypeVar("T")

REPLICAS = 3
"""Of a bucket, on servers that form a cluster. One of three may fail."""
ATTEMPT, MAX_ATTEMPT_SECONDS = 1.0, 2.0
"""Seconds after which an unanswered request is sent again, at first and later on: the server that led the stream may be
gone. The answer to an earlier attempt counts, too, as an engine that is slow is not one that is gone."""
RETRY_INTERVAL = 0.1
"""Seconds between two attempts, while no server leads the stream."""
OPENING = 3
"""So many times longer than a call the first one may take: it connects, and makes the bucket. A distant engine answers
its five or six requests one after the other."""
BATCH = 512
"""Requests that are under way at the same time. A distant engine answers so many in the time of one way there and
back."""
_WRONG_SEQUENCE, _OTHER_CONFIGURATION, _NOT_CLUSTERED, _TOO_FEW_SERVERS = 10071, 10058, 10074, 10005
"""Error codes of JetStream (nats-server, server/errors.json)."""
_EXPECTED = "Nats-Expected-Last-Subject-Sequence"
_OPERATION = "KV-Operation"
_AWAY = (NoRespondersError, NoStreamResponseError, ServiceUnavailableError, TimeoutError)
GATHER = 0.05
"""Seconds for which changes are gathered."""
_LEASE, _MEMBER = "lease.", "member."
_MAX_VALUE_BYTES = 16 * 1024
"""Bytes of a value; one that we write has some 200."""


class _Client(Client):
    @property
    def ssl_context(self) -> ssl.SSLContext:
        """What the library asks for when the URL, or the server, wants TLS."""
        return client_context()


class BucketEntry(NamedTuple):
    """The value of a key, and its revision."""

    value: bytes | None
    """None: it was deleted."""
    revision: int


class Bucket:
    """The bucket of one cluster.

    Args:
        url: of the servers, with commas in between: ``nats://user:password@one:4222,nats://two:4222``.
        terms: the terms of the cluster.

    Raises:
        InvalidValue: the URL cannot be read.
    """

    def __init__(self, url: str | SecretValue, terms: Terms) -> None:
        self._address = address_of(url)
        self._servers = [_check_url(each.strip()) for each in self._address.split(",")]
        self._terms = terms
        self.name = f"leadsman-{terms.cluster}"
        self._prefix = f"$KV.{self.name}."
        self._stream = f"KV_{self.name}"
        self._client: Client | None = None
        self._connecting = asyncio.Lock()
        self._refusal: asyncio.Future[str] | None = None
        self._last_error: Exception | None = None

    async def call(self, requests: Coroutine[Any, Any, T], times: int = 1) -> T:
        """Make some requests within `Terms.patience`, or so many times of it, which is for all of them together.

        Raises:
            LeaseError: see `LeaseStore`.
        """
        task = asyncio.ensure_future(requests)
        refusal = self._refusal = self._refusal or asyncio.get_running_loop().create_future()
        try:
            await asyncio.wait(
                {task, refusal}, timeout=times * self._terms.patience, return_when=asyncio.FIRST_COMPLETED
            )
            if task.done():
                return task.result()
            if refusal.done():
                raise LeaseStoreRefused(refusal.result())
            raise await self._why_unanswered(times * self._terms.patience)
        except APIError as error:
            raise LeaseStoreRefused(
                f"NATS at {self._where} refuses a request to bucket {self.name} ({error.description}); look into the"
                " limits of the account, and into the log of the server"
            ) from error
        except nats.errors.Error as error:
            raise LeaseStoreUnreachable(
                f"the connection to NATS at {self._where} is lost ({error}); check that nats-server runs"
            ) from error
        finally:
            if refusal.done():
                self._refusal = None
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def open(self) -> None:
        """Connect, make the bucket if there is none, and compare its terms. To be given to `call`.

        Raises:
            TermsDiffer: they differ.
        """
        try:
            info = await self._asked(self._info)
        except NotFoundError:
            info = await self._asked(lambda js: self._create(js, REPLICAS))
        self._compare(info)

    async def close(self) -> None:
        """End the connection."""
        if self._client is not None:
            await self._client.close()

    async def get(self, key: str) -> BucketEntry | None:
        """The entry of a key; None if it has none, or no longer. To be given to `call`."""
        try:
            found = await self._asked(lambda js: js.get_last_msg(self._stream, self._prefix + key))
        except NotFoundError:
            return None
        deleted = found.headers is not None and _OPERATION in found.headers
        return BucketEntry(None if deleted else found.data or b"", found.seq or 0)

    async def put(self, key: str, value: bytes | None, expected: int | None = None) -> int | None:
        """Write a key, and return the new revision. To be given to `call`.

        Args:
            key: the key.
            value: what to write; None deletes it.
            expected: the revision that the key must have; zero if it must have nothing. None writes in any case.

        Returns:
            None: it has another revision.
        """
        headers = {} if expected is None else {_EXPECTED: str(expected)}
        if value is None:
            headers[_OPERATION] = "DEL"
        try:
            written = await self._asked(
                lambda js: js.publish(self._prefix + key, value or b"", headers=headers or None)
            )
        except APIError as error:
            if error.err_code == _WRONG_SEQUENCE:
                return None
            raise
        return written.seq

    async def keys(self) -> set[str]:
        """The keys that have something, or that were deleted lately. To be given to `call`."""
        info = await self._asked(lambda js: self._info(js, f"{self._prefix}>"))
        return {subject.removeprefix(self._prefix) for subject in info.state.subjects or ()}

    @asynccontextmanager
    async def listening(self, heard: Callable[[str, bytes | None], None]) -> AsyncIterator[None]:
        """Hear of each write in this block: of its key and value, None for a deletion. It may have been refused, and
        some may be missed."""

        async def on_message(message: Msg) -> None:
            deleted = _OPERATION in (message.headers or {})
            heard(message.subject.removeprefix(self._prefix), None if deleted else message.data)

        async def subscribe() -> Subscription:
            return await (await self._connected()).subscribe(f"{self._prefix}>", cb=on_message)

        subscription = await self.call(subscribe())
        try:
            yield
        finally:
            with suppress(nats.errors.Error):  # the connection may be closed
                await subscription.unsubscribe()

    async def _info(self, js: JetStreamContext, subjects: str | None = None) -> StreamInfo:
        return await js.stream_info(self._stream, subjects_filter=subjects)

    async def _create(self, js: JetStreamContext, replicas: int) -> StreamInfo:
        config = StreamConfig(
            name=self._stream,
            description=json.dumps({"leadsman": self._terms.document()}),
            subjects=[f"{self._prefix}>"],
            max_age=self._terms.ttl,
            max_msgs_per_subject=1,
            duplicate_window=min(120.0, self._terms.ttl),  # 2 minutes is the default, and it may not exceed the age
            discard=DiscardPolicy.NEW,
            deny_delete=True,
            allow_rollup_hdrs=True,
            num_replicas=replicas,
        )
        try:
            return await js.add_stream(config)
        except APIError as error:
            if error.err_code == _NOT_CLUSTERED and replicas > 1:
                return await self._create(js, 1)
            if error.err_code == _OTHER_CONFIGURATION:  # another node was quicker
                return await self._info(js)
            raise

    def _compare(self, info: StreamInfo) -> None:
        try:
            found = dict(json.loads(info.config.description or "")["leadsman"])
        except (ValueError, LookupError, TypeError, RecursionError):
            raise TermsDiffer(
                f"bucket {self.name} was not made by leadsman; give the cluster another name than"
                f" {self._terms.cluster!r}, or delete the bucket: nats kv rm {self.name}"
            ) from None
        self._terms.compare({**found, "ttl": info.config.max_age}, f"bucket {self.name}")

    async def _asked(self, request: Callable[[JetStreamContext], Coroutine[Any, Any, T]]) -> T:
        """Make a request until one of its attempts is answered. `call` bounds it.

        An attempt that comes late changes nothing twice: each write names the revision that it replaces.
        """
        wait, attempts, done = ATTEMPT, set[asyncio.Task[T]](), set[asyncio.Task[T]]()
        try:
            while True:
                client = await self._connected()
                js = client.jetstream(timeout=self._terms.patience)
                attempts.add(asyncio.ensure_future(request(js)))
                done, attempts = await asyncio.wait(attempts, timeout=wait, return_when=asyncio.FIRST_COMPLETED)
                wait = min(1.5 * wait, MAX_ATTEMPT_SECONDS)
                for attempt in done:
                    try:
                        return attempt.result()
                    except (*_AWAY, ConnectionClosedError, OSError):
                        await asyncio.sleep(RETRY_INTERVAL)
                    except APIError as error:
                        if error.err_code != _TOO_FEW_SERVERS:
                            raise
                        await asyncio.sleep(RETRY_INTERVAL)
        finally:
            for attempt in attempts:
                attempt.cancel()
            await asyncio.gather(*attempts, *done, return_exceptions=True)

    async def _connected(self) -> Client:
        """The client. It reconnects by itself, unless a server has refused it; then another one is made."""
        async with self._connecting:
            if self._client is None or self._client.is_closed:
                self._client = await self._connect()
        return self._client

    async def _connect(self) -> Client:
        client = _Client()
        try:
            await client.connect(
                self._servers,
                name="leadsman",
                error_cb=self._on_error,
                connect_timeout=OPENING * self._terms.patience,  # type: ignore[arg-type]  # a float will do, here and below
                ping_interval=self._terms.patience / 2,  # type: ignore[arg-type]
                max_outstanding_pings=1,
                reconnect_time_wait=RETRY_INTERVAL,  # type: ignore[arg-type]
                max_reconnect_attempts=-1,
            )
        except BaseException:
            await client.close()
            raise
        return client

    async def _on_error(self, error: Exception) -> None:
        text, self._last_error = str(error), error
        if isinstance(error, AuthorizationError) or "authorization violation" in text.lower():
            why = f"NATS at {self._where} does not accept the user and the password; correct them in the URL"
        elif "permissions violation" in text.lower():
            denied = text.partition(" for ")[2] or text
            why = (
                f"NATS at {self._where} does not permit {denied}; the user needs publish and subscribe on"
                f" '{self._prefix}>', '$JS.API.STREAM.*.{self._stream}', '$JS.API.STREAM.MSG.GET.{self._stream}' and"
                " '_INBOX.>'"
            )
        else:
            return
        if self._refusal is not None and not self._refusal.done():
            self._refusal.set_result(why)

    async def _why_unanswered(self, waited: float) -> LeaseError:
        where, wait = self._where, f"within {waited:g} s"
        if self._client is None or not self._client.is_connected:
            return LeaseStoreUnreachable(
                f"NATS at {where} cannot be reached {wait} ({self._last_error or 'no answer'}); check the URL, and that"
                " nats-server runs"
            )
        try:
            await self._info(self._client.jetstream(timeout=RETRY_INTERVAL))
        except NotFoundError:
            return TermsDiffer(
                f"bucket {self.name} at {where} was deleted; stop all nodes of the cluster, and start them again"
            )
        except (*_AWAY, APIError, nats.errors.Error):
            pass
        return LeaseStoreUnreachable(
            f"NATS at {where} did not answer {wait}; check that nats-server runs with JetStream (nats-server -js), and"
            " that more than half of the servers of its cluster run"
        )

    @property
    def _where(self) -> str:
        """The servers, without credentials."""
        return ", ".join(urlsplit(each).netloc.rpartition("@")[2] or each for each in self._servers)


def _check_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("nats", "tls") and parts.hostname and parts.port != 0
    except ValueError:
        good = False
    if not good:
        shown = url.rpartition("@")[2]
        raise InvalidValue(f"the URL of NATS cannot be read at {shown!r}; write nats://one:4222,nats://two:4222")
    return url


async def in_batches(request: Callable[[S], Coroutine[Any, Any, T]], items: Sequence[S]) -> list[T]:
    """Make a request for each item, some of them at the same time. Returns their answers, in order."""
    answers: list[T] = []
    for start in range(0, len(items), BATCH):
        answers += await asyncio.gather(*map(request, items[start : start + BATCH]))
    return answers


_Found = Lease | Member | str | None
"""What a key has; its own name if it has no member, though it is named like one; None if it was deleted."""


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
        self._member_revision = 0
        """That of the last write of its membership."""

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
            _, renewed = await asyncio.gather(self._renew_member(), in_batches(self._renew, chosen))
            return renewed

        renewed = await self._bucket.call(renew())
        return {lease.key: lease for lease in renewed if lease is not None}

    async def release(self, leases: Iterable[Lease]) -> None:
        """See `LeaseStore.release`."""
        await self._bucket.call(in_batches(lambda lease: self._write(lease, None), list(leases)))

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

    async def _refreshed(self, known: Mapping[str, "_Found"]) -> dict[str, "_Found"]:
        """The entries of the keys of the bucket: of those that are known nothing is asked but whether they still
        exist."""
        keys = await self._bucket.keys()
        wanted = [*keys - known.keys()]
        found = zip(wanted, await in_batches(self._bucket.get, wanted), strict=True)
        read = {key: _read(key, entry, self._terms.ttl) for key, entry in found if entry is not None}
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

    async def _renew_member(self) -> None:
        """Write the membership. One that takes part names the revision that it replaces, as a lease does: else each
        attempt that is not answered would keep the part of a node that has stopped."""
        key, value = self._member_key, _encode(self._member)
        expected = self._member_revision if self._member.takes_part else None
        revision = await self._bucket.put(key, value, expected)
        if revision is None:
            entry = await self._bucket.get(key)
            revision = await self._bucket.put(key, value, entry.revision if entry else 0)
        self._member_revision = revision or 0

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
        """The value that is written for a lease. The write that grants it does not have its own revision yet."""
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
    """The value of a key. What anybody else has written there counts as a lease of nobody, and as no member."""
    if entry.value is None:
        return None
    document = _document(entry.value)
    if name.startswith(_MEMBER):
        member = read_member(*(document.get(field) for field in ("node", "run", "labels", "version")))
        return member if member is not None and name == _key_of(member) else name
    key, owner, token = name.removeprefix(_LEASE), document.get("owner"), document.get("token", entry.revision)
    if not is_owner(owner) or type(token) is not int or not 0 <= token < 2**63:
        return Lease(key, "", entry.revision, ttl)
    return Lease(key, str(owner), token, ttl)


def _document(value: bytes) -> dict[str, object]:
    """The JSON object in a value; an empty one if it has none."""
    if len(value) > _MAX_VALUE_BYTES:
        return {}
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _snapshot(known: Mapping[str, "_Found"]) -> ClusterSnapshot:
    leases = {each.key: each for each in known.values() if isinstance(each, Lease)}
    members = [each for each in known.values() if isinstance(each, Member)]
    unread = [each for each in known.values() if isinstance(each, str)]
    unread += [f"{_LEASE}{lease.key}" for lease in leases.values() if not lease.owner]
    return ClusterSnapshot(
        leases, tuple(sorted(members, key=lambda member: (member.node, member.run))), frozenset(map(clean, unread))
    )
