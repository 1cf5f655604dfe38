"""Leases in NATS while servers are killed, stopped or refuse."""

import asyncio
import gc
import time
import warnings
from contextlib import aclosing

import nats
import pytest
from tests.extensions.nodes.lease.implementations import members_of
from tests.extensions.nodes.lease.waiting import until_it_works

from leadsman.errors import InvalidValue, LeaseStoreRefused, LeaseStoreUnreachable, TermsDiffer
from leadsman.extensions.nodes.lease.jetstream import OPENING, JetStreamStore, in_batches
from leadsman.extensions.nodes.lease.lease import FENCE_AT, Member, Terms
from leadsman_rigs.nats_server import NatsServer, nats_cluster
from leadsman_rigs.proxy import Proxy

pytestmark = pytest.mark.system

TERMS = Terms("house", ttl=4.0, shards=8)
"""Calls end within 2.2 s."""
SLACK = 1.0
"""Seconds that a busy machine may take longer."""
HOSTILE = [
    b"",
    b"null",
    b'"text"',
    b"\xff\xfe",
    b"[" * 200_000,
    b'{"owner":' * 100_000,
    b'{"owner":"x/1","token":Infinity,"node":"b","run":"1","labels":Infinity,"version":""}',
    b'{"owner":"x/1","token":1e999,"node":"b","run":"1","labels":[[]],"version":""}',
    b'{"owner":7,"token":"1","node":"b c","run":"1","labels":[],"version":""}',
    b'{"owner":"x/1","token":-5,"node":"b","run":"1","labels":"ab","version":""}',
    b'{"owner":"x/1","token":' + b"9" * 5000 + b',"node":"b"}',
    b" " * 100_000 + b"{}",
]
"""What anybody may have written into a bucket."""


def store(url, node="a", terms=TERMS):
    return JetStreamStore(url, terms, Member(node, "1"))


@pytest.fixture
def server():
    with NatsServer() as server:
        yield server


def test_a_server_that_was_killed_has_all_leases_when_it_is_back(server):
    async def scenario():
        async with store(server.url, terms=Terms("house", ttl=30.0)) as a:
            lease = (await a.acquire(["k"])).granted["k"]
            server.kill()
            server.start()
            assert await a.renew([lease]) == {"k": lease}
            assert (await a.acquire(["k"])).granted["k"].token > lease.token

    asyncio.run(scenario())


def test_a_call_to_a_server_that_is_away_ends_in_time_and_names_it(server):
    async def scenario():
        async with store(server.url) as a:
            server.kill()
            assert await seconds_of(a.renew(())) < TERMS.patience + SLACK
            server.start()
            await until_it_works(a.renew, ())

    asyncio.run(scenario())


def test_a_call_to_a_server_that_is_stopped_ends_in_time_and_the_next_one_works(server):
    async def scenario():
        async with store(server.url) as a:
            granted = (await a.acquire([f"k.{number}" for number in range(100)])).granted
            server.freeze()
            try:
                assert await seconds_of(a.renew(granted.values())) < TERMS.patience + SLACK
            finally:
                server.thaw()
            assert len(await until_it_works(a.renew, granted.values())) == 100
            server.freeze()
            try:
                assert await seconds_of(store(server.url, "b").__aenter__()) < OPENING * TERMS.patience + SLACK
            finally:
                server.thaw()

    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", ResourceWarning
        )  # nats-py leaves the sockets of failed attempts to the collector
        asyncio.run(scenario())
        gc.collect()


def test_a_renewal_without_an_answer_is_sent_again_and_makes_lease_and_membership_last_once(server):
    """Else a node that has stopped would stay a member for as long as it sends."""

    async def scenario():
        client = await nats.connect(server.url)

        async def writes():
            return (await client.jetstream().stream_info("KV_leadsman-house")).state.last_seq

        with Proxy(server.port) as road:
            async with store(f"nats://127.0.0.1:{road.port}") as a:
                lease = (await a.acquire(["k"])).granted["k"]
                assert await a.renew([lease]) == {"k": lease}
                before = await writes()
                road.down.delay = 3600.0
                with pytest.raises(LeaseStoreUnreachable):
                    await a.renew([lease])
                after = await writes()
                road.down.delay = 0.0
                road.cut()
                await until_it_works(a.renew, [lease])
        await client.close()
        return after - before

    assert asyncio.run(scenario()) <= 2


def test_a_wrong_password_is_refused_at_once_and_is_not_shown():
    with NatsServer("authorization { user: house, password: right }") as server:

        async def scenario():
            begun = time.monotonic()
            with pytest.raises(
                LeaseStoreRefused, match="does not accept the user and the password; correct"
            ) as refused:
                await store(server.url.replace("//", "//house:wrong-one@")).__aenter__()
            assert time.monotonic() - begun < TERMS.patience
            assert "wrong-one" not in str(refused.value)
            async with store(server.url.replace("//", "//house:right@")) as a:
                assert (await a.acquire(["k"])).granted

        asyncio.run(scenario())


@pytest.mark.parametrize(
    ("denied", "named"),
    [("$KV.leadsman-house.lease.>", r"\$kv\.leadsman-house\.lease\.k"), ("$JS.API.STREAM.>", r"\$js\.api\.stream")],
)
def test_a_user_who_may_not_write_is_told_what_is_needed(denied, named):
    user = f'user: u, password: p, permissions: {{ publish: {{ deny: "{denied}" }} }}'
    with NatsServer(f"authorization {{ users: [{{ {user} }}] }}") as server:

        async def scenario():
            with pytest.raises(LeaseStoreRefused, match=f"{named}.*the user needs publish and subscribe on"):
                async with store(server.url.replace("//", "//u:p@")) as a:
                    await a.acquire(["k"])

        asyncio.run(scenario())


def test_a_server_without_jetstream_is_named_with_what_to_type():
    with NatsServer(jetstream=False) as server:

        async def scenario():
            with pytest.raises(LeaseStoreUnreachable, match=r"runs with JetStream \(nats-server -js\)"):
                await store(server.url).__aenter__()

        asyncio.run(scenario())


def test_a_bucket_of_somebody_else_is_left_alone(server):
    async def scenario():
        client = await nats.connect(server.url)
        await client.jetstream().create_key_value(bucket="leadsman-house")
        with pytest.raises(TermsDiffer, match="was not made by leadsman; give the cluster another name than 'house'"):
            await store(server.url).__aenter__()
        await client.close()

    asyncio.run(scenario())


def test_a_bucket_whose_ttl_was_changed_is_refused(server):
    async def scenario():
        async with store(server.url):
            client = await nats.connect(server.url)
            config = (await client.jetstream().stream_info("KV_leadsman-house")).config
            await client.jetstream().update_stream(config.evolve(max_age=60.0))
            with pytest.raises(TermsDiffer, match=r"ttl is 4 here, and 60\.0 in bucket leadsman-house"):
                await store(server.url, "b").__aenter__()
            await client.close()

    asyncio.run(scenario())


def test_a_bucket_that_is_deleted_is_reported_by_name(server):
    async def scenario():
        async with store(server.url) as a:
            client = await nats.connect(server.url)
            await client.jetstream().delete_stream("KV_leadsman-house")
            await client.close()
            with pytest.raises(TermsDiffer, match="leadsman-house at .* was deleted; stop all nodes"):
                await a.renew(())

    asyncio.run(scenario())


def test_what_a_person_wrote_into_the_bucket_is_held_by_nobody_until_it_is_over(server):
    async def scenario():
        async with store(server.url) as a:
            client = await nats.connect(server.url)
            bucket = await client.jetstream().key_value("leadsman-house")
            await bucket.put("lease.k", b"\xff not JSON")
            await bucket.put("member.x", b"[]")
            assert (await a.acquire(["k"])).held["k"].owner == ""
            assert [member.node for member in await members_of(a)] == ["a"]
            async with aclosing(a.watch()) as snapshots:
                assert (await anext(snapshots)).leases["k"].owner == ""
            await client.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("value", HOSTILE)
def test_an_entry_that_is_no_member_and_no_lease_costs_nobody_else_anything(server, value):
    async def scenario():
        client = await nats.connect(server.url)
        async with store(server.url) as a, aclosing(a.watch()) as snapshots:
            lease = (await a.acquire(["mine"])).granted["mine"]
            for key in ("member.b.1", "lease.other"):
                await client.jetstream().publish(f"$KV.leadsman-house.{key}", value)
            while (snapshot := await anext(snapshots)).unread != {"member.b.1", "lease.other"}:
                pass
            assert snapshot.leases["mine"] == lease
            assert [member.node for member in snapshot.members] == ["a"]
            assert await a.renew([lease]) == {"mine": lease}
            assert (await a.acquire(["other"])).granted == {}
        await client.close()

    asyncio.run(scenario())


def test_two_nodes_that_begin_a_cluster_at_the_same_time_with_other_terms_do_not_both_get_in(server):
    async def scenario():
        stores = [store(server.url, "a"), store(server.url, "b", Terms("house", ttl=4.0, shards=16))]
        results = await asyncio.gather(*(each.__aenter__() for each in stores), return_exceptions=True)
        assert sorted(type(each).__name__ for each in results) == ["JetStreamStore", "TermsDiffer"]
        for each in stores:
            await each.__aexit__()

    asyncio.run(scenario())


def test_no_call_makes_a_consumer(server):
    async def scenario():
        async with store(server.url) as a, aclosing(a.watch()) as snapshots:
            await anext(snapshots)
            granted = (await a.acquire(["k"])).granted
            await anext(snapshots)
            await a.renew(granted.values())
            client = await nats.connect(server.url)
            assert (await client.jetstream().stream_info("KV_leadsman-house")).state.consumer_count == 0
            await client.close()

    asyncio.run(scenario())


def test_of_three_servers_the_leader_may_be_killed_and_no_lease_is_lost():
    terms = Terms("house", ttl=15.0, shards=64)
    keys = [f"shard.{number}" for number in range(64)]
    with nats_cluster(3) as servers:
        urls = ",".join(server.url for server in servers)

        async def scenario():
            async with await until_it_opens(urls, terms) as a:
                granted = (await a.acquire(keys)).granted
                assert len(await a.renew(granted.values())) == 64
                asked_at = time.monotonic()
                config, leader = await info_of(urls)
                assert config.num_replicas == 3
                next(server for server in servers if server.name == leader).kill()
                assert await until_it_works(a.renew, granted.values()) == granted
                assert time.monotonic() - asked_at < FENCE_AT * terms.ttl
                for _ in range(5):
                    assert await a.renew(granted.values()) == granted

        asyncio.run(scenario())


def test_of_three_servers_one_that_follows_may_be_killed_without_an_error():
    terms = Terms("house", ttl=15.0, shards=64)
    with nats_cluster(3) as servers:
        urls = ",".join(server.url for server in servers)

        async def scenario():
            async with await until_it_opens(urls, terms) as a:
                granted = (await a.acquire([f"shard.{number}" for number in range(64)])).granted
                _, leader = await info_of(urls)
                next(server for server in servers if server.name != leader).kill()
                for _ in range(5):
                    assert await a.renew(granted.values()) == granted

        asyncio.run(scenario())


async def info_of(urls):
    """The configuration of the bucket, and the name of the server that leads it."""
    client = await nats.connect(urls.split(","))
    info = await client.jetstream().stream_info("KV_leadsman-house")
    await client.close()
    return info.config, info.cluster.leader


async def until_it_opens(urls, terms):
    """A cluster that has just been started elects its leaders first."""
    deadline = time.monotonic() + 60.0
    while True:
        opened = store(urls, terms=terms)
        try:
            async with opened:
                return store(urls, terms=terms)
        except LeaseStoreUnreachable:
            assert time.monotonic() < deadline


async def seconds_of(call):
    begun = time.monotonic()
    with pytest.raises(LeaseStoreUnreachable, match=r"NATS at 127\.0\.0\.1:\d+ .*; check"):
        await call
    return time.monotonic() - begun


def test_the_servers_are_named_without_credentials():
    async def scenario():
        urls = "nats://u:secret@127.0.0.1:1,nats://u:secret@127.0.0.1:2"
        with pytest.raises(LeaseStoreUnreachable, match=r"NATS at 127\.0\.0\.1:1, 127\.0\.0\.1:2 .*failed") as away:
            await store(urls, terms=Terms("house", ttl=1.0)).__aenter__()
        assert "secret" not in str(away.value)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "url", ["nats://host:port", "nats://", "nats://one:4222,two:4222", "nats://u:secret@one:99999"]
)
def test_a_url_that_cannot_be_read_is_refused_with_an_example(url):
    with pytest.raises(InvalidValue, match="write nats://one:4222,nats://two:4222") as refused:
        store(url)
    assert "secret" not in str(refused.value)


def test_a_server_far_away_is_used_since_the_answer_to_an_earlier_attempt_counts(server):
    """There and back takes 1.2 s, and a request is sent again after 1 s."""
    terms = Terms("house", ttl=15.0, shards=8)

    async def scenario():
        with Proxy(server.port) as road:
            road.up.delay = road.down.delay = 0.6
            async with store(f"nats://127.0.0.1:{road.port}", terms=terms) as a:
                lease = (await a.acquire(["k"])).granted["k"]
                assert await a.renew([lease]) == {"k": lease}
            async with store(server.url, "b", terms) as b:
                assert (await b.acquire(["k"])).granted == {}

    asyncio.run(scenario())


def test_requests_that_are_given_up_before_they_begin_are_never_made():
    made = []

    async def request(key):
        made.append(key)

    async def give_up():
        requests = asyncio.ensure_future(in_batches(request, ["one", "two"]))
        requests.cancel()
        await asyncio.wait({requests})

    asyncio.run(give_up())
    assert made == []
    assert asyncio.run(in_batches(request, ["one", "two"])) == [None, None]
    assert made == ["one", "two"]
