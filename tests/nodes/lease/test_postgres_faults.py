"""Leases in PostgreSQL while the server is killed, stopped or refuses."""

import asyncio
import time
from contextlib import aclosing

import psycopg
import pytest
from tests.nodes.lease.implementations import members_of
from tests.nodes.lease.waiting import until_it_works

from leadsman.errors import InvalidValue, LeaseStoreRefused, LeaseStoreUnreachable, TermsDiffer
from leadsman.nodes.lease.lease import Member, Terms
from leadsman.nodes.lease.postgres import PostgresStore
from leadsman_rigs.postgres_server import PostgresServer
from leadsman_rigs.proxy import Proxy

pytestmark = pytest.mark.system

TERMS = Terms("house", ttl=4.0, shards=8)
"""Calls end within 1 s."""
SLACK = 1.0
"""Seconds that a busy machine may take longer."""


@pytest.fixture(scope="module")
def server():
    with PostgresServer() as server:
        yield server


@pytest.fixture(autouse=True)
def empty(server):
    server.start_again()
    server.sql("drop schema if exists leadsman cascade; drop role if exists reader")


def store(url, node="a", terms=TERMS):
    return PostgresStore(url, terms, Member(node, "1"))


def test_a_server_that_was_killed_has_all_leases_when_it_is_back(server):
    async def scenario():
        async with store(server.url(), terms=Terms("house", ttl=60.0)) as a:
            lease = (await a.acquire(["k"])).granted["k"]
            server.kill()
            with pytest.raises(
                LeaseStoreUnreachable, match=r"PostgreSQL at 127\.0\.0\.1, database 'postgres', .*; check"
            ):
                await a.renew([lease])
            server.start()
            assert await until_it_works(a.renew, [lease]) == {"k": lease}
            assert (await a.acquire(["k"])).granted["k"].token > lease.token

    asyncio.run(scenario())


def test_a_call_to_a_server_that_is_stopped_ends_in_time_and_the_next_one_works(server):
    async def scenario():
        async with store(server.url()) as a:
            lease = (await a.acquire(["k"])).granted["k"]
            server.freeze()
            try:
                assert await seconds_of(a.renew([lease])) < TERMS.timeout + SLACK
                assert await seconds_of(a.renew([lease])) < TERMS.timeout + SLACK
                assert await seconds_of(store(server.url(), "b").__aenter__()) < 6 * TERMS.timeout + SLACK
            finally:
                server.thaw()
            await until_it_works(a.renew, [lease])

    asyncio.run(scenario())


def test_a_server_far_away_is_used_with_one_round_trip_for_each_call(server):
    """A call may take 1 s, and a round trip takes 0.8 s: a second one would be too late, and a connection has five."""

    async def scenario():
        with Proxy(server.port) as road:
            road.up.delay = road.down.delay = 0.4
            async with store(f"{server.url().rsplit(':', 1)[0]}:{road.port}/postgres") as a:
                async with aclosing(a.watch()) as snapshots:
                    await anext(snapshots)
                road.cut()
                await until_it_works(a.renew, ())
                lease = (await a.acquire(["k"])).granted["k"]
                assert await a.renew([lease]) == {"k": lease}
                await a.release([lease])

    asyncio.run(scenario())


def test_a_statement_that_fails_undoes_those_before_it(server):
    async def scenario():
        async with store(server.url()) as a:
            with pytest.raises(LeaseStoreUnreachable, match="division by zero"):
                await a._connection.run(["create table leadsman.t (n int)", "select 1/0", "select 1"], {})
            assert await a._connection.run(["select to_regclass('leadsman.t') is null"], {}) == [[(True,)]]

    asyncio.run(scenario())


def test_other_terms_are_refused_with_the_row_to_delete_and_not_the_table(server):
    async def scenario():
        async with store(server.url()):
            with pytest.raises(TermsDiffer, match=r", delete row 'house' of table leadsman\.terms and start"):
                await store(server.url(), "b", Terms("house", ttl=4.0, shards=16)).__aenter__()

    asyncio.run(scenario())


def test_a_caller_that_is_cancelled_does_not_wait_for_a_server_that_is_stopped(server):
    async def scenario():
        async with store(server.url(), terms=Terms("house", ttl=3600.0)) as a:
            server.freeze()
            try:
                call = asyncio.ensure_future(a.renew(()))
                await asyncio.sleep(0.1)
                begun = time.monotonic()
                call.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await call
                assert time.monotonic() - begun < SLACK
            finally:
                server.thaw()
            await a.renew(())

    asyncio.run(scenario())


def test_watching_ends_with_an_error_when_the_server_is_lost(server):
    async def scenario():
        async with store(server.url()) as a, aclosing(a.watch()) as snapshots:
            await anext(snapshots)
            server.kill()
            try:
                with pytest.raises(LeaseStoreUnreachable):
                    await anext(snapshots)
            finally:
                server.start()

    asyncio.run(scenario())


def test_a_wrong_password_is_refused_and_is_not_shown(server):
    async def scenario():
        with pytest.raises(LeaseStoreRefused, match="password authentication failed.*; correct the user") as refused:
            await store(server.url(password="wrong-one")).__aenter__()
        assert "wrong-one" not in str(refused.value)

    asyncio.run(scenario())


def test_a_database_that_does_not_exist_is_refused(server):
    async def scenario():
        with pytest.raises(LeaseStoreRefused, match='database "elsewhere" does not exist'):
            await store(server.url(database="elsewhere")).__aenter__()

    asyncio.run(scenario())


def test_a_user_who_may_not_make_the_schema_is_told_what_to_type_and_it_helps(server):
    server.sql("create role reader login password 'reader'")
    url = server.url("reader", "reader")

    async def refused():
        with pytest.raises(LeaseStoreRefused, match='type: GRANT CREATE ON DATABASE "postgres" TO "reader"'):
            await store(url).__aenter__()

    async def works():
        async with store(url) as a:
            assert (await a.acquire(["k"])).granted

    asyncio.run(refused())
    server.sql('GRANT CREATE ON DATABASE "postgres" TO "reader"')
    asyncio.run(works())
    server.sql("drop owned by reader")


def test_a_user_of_a_schema_that_somebody_else_made_needs_its_tables_and_its_sequence(server):
    server.sql("create role reader login password 'reader'")
    url = server.url("reader", "reader")

    async def scenario():
        async with store(server.url()):
            pass
        with pytest.raises(LeaseStoreRefused, match="GRANT ALL ON SCHEMA leadsman"):
            await store(url).__aenter__()
        for what in ("schema", "all tables in schema", "all sequences in schema"):
            server.sql(f"grant all on {what} leadsman to reader")
        async with store(url, "b") as b:
            assert (await b.acquire(["k"])).granted

    asyncio.run(scenario())
    server.sql("drop owned by reader")


def test_a_schema_of_somebody_else_is_left_alone(server):
    server.sql("create schema leadsman; create table leadsman.terms (something text)")

    async def scenario():
        with pytest.raises(TermsDiffer, match="holds something else in the schema leadsman.*; stop all nodes"):
            await store(server.url()).__aenter__()

    asyncio.run(scenario())


def test_a_schema_that_is_dropped_is_reported_by_name(server):
    async def scenario():
        async with store(server.url()) as a:
            server.sql("drop schema leadsman cascade")
            with pytest.raises(TermsDiffer, match="or it was deleted"):
                await a.renew(())

    asyncio.run(scenario())


def test_a_server_that_may_only_be_read_is_told_from_one_that_is_away(server):
    server.sql("create role reader login superuser password 'reader'")
    server.sql("alter role reader set default_transaction_read_only = on")

    async def scenario():
        async with store(server.url()):
            pass
        with pytest.raises(LeaseStoreUnreachable, match="is a standby.*target_session_attrs=read-write"):
            await store(server.url("reader", "reader")).__aenter__()

    asyncio.run(scenario())


def test_a_lease_is_durable_where_the_server_would_not_wait_for_its_disk(server):
    server.sql("alter role owner set synchronous_commit = off")

    async def scenario():
        async with store(server.url()) as a:
            await a.renew(())
            assert await a._connection.run(["show synchronous_commit"], {}) == [[("on",)]]

    asyncio.run(scenario())
    server.sql("alter role owner reset synchronous_commit")


@pytest.mark.parametrize(
    "columns",
    [
        "'x/1', 'a b!', '1', '{}', ''",
        "'b/1', 'b', '1', '{NULL}', ''",
        "'b/1', 'b', '1', '{{a,b},{c,d}}', ''",
        "'b/1', 'b', E'1\\n2', '{}', ''",
        "'b/1', 'b', '1', array[repeat('x', 200)], ''",
        "'b/1', repeat('b', 1000000), '1', '{}', ''",
        "'b/1', 'b', '1', array(select repeat('x', 50) from generate_series(1, 100000)), ''",
        "'b/1', 'a', '1', '{}', ''",
    ],
)
def test_a_row_that_is_no_member_costs_nobody_else_anything(server, columns):
    async def scenario():
        async with store(server.url()) as a, aclosing(a.watch()) as snapshots:
            lease = (await a.acquire(["mine"])).granted["mine"]
            server.sql(
                "insert into leadsman.member (cluster, owner, node, run, labels, version, until)"
                f" values ('house', {columns}, 'infinity')"
            )
            while len((snapshot := await anext(snapshots)).unread) != 1:
                pass
            assert snapshot.leases["mine"] == lease
            assert [member.node for member in snapshot.members] == ["a"]
            assert await a.renew([lease]) == {"mine": lease}

    asyncio.run(scenario())


def test_nodes_that_start_together_make_one_schema(server):
    async def scenario():
        stores = [store(server.url(), f"node-{number}", Terms("house", ttl=20.0)) for number in range(8)]
        opened = await asyncio.gather(*(each.__aenter__() for each in stores))
        assert len(await members_of(opened[0])) == 8
        for each in opened:
            await each.__aexit__()

    asyncio.run(scenario())


def test_a_transaction_that_blocks_the_rows_costs_no_more_than_the_timeout(server):
    async def scenario():
        async with store(server.url()) as a, store(server.url(), "b") as b:
            lease = (await a.acquire(["k"])).granted["k"]
            with psycopg.connect(server.url()) as blocking:
                blocking.execute("select from leadsman.lease for update")
                assert await seconds_of(a.renew([lease])) < TERMS.timeout + SLACK
                assert (await b.acquire(["k", "free"])).granted.keys() == {"free"}
            await until_it_works(a.renew, [lease])

    asyncio.run(scenario())


@pytest.mark.parametrize("url", ["postgresql://h/d?colour=red", "nonsense"])
def test_a_url_that_cannot_be_read_is_refused_with_an_example(url):
    with pytest.raises(InvalidValue, match="write postgresql://user:password@host/database"):
        store(url)


async def seconds_of(call):
    begun = time.monotonic()
    with pytest.raises(
        LeaseStoreUnreachable, match=r"PostgreSQL at 127\.0\.0\.1, .* did not answer within [16] s; check"
    ):
        await call
    return time.monotonic() - begun
