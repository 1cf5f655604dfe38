"""Connections and their limits: slow clients, broken requests, many at once, a port in use, and the stop."""

import asyncio
import contextlib
import os
import selectors
import socket
import time

import httpx
import pytest
from tests.extensions.http.conftest import house_app, streams

from leadsman.core.introspection.service import MAX_LARGE_ANSWERS
from leadsman.core.settings.sources import Where
from leadsman.extensions.http import routes, server
from leadsman.testing import MemoryBroker
from leadsman.testing.mosquitto import free_port


async def ended(reader, within):
    """Whether the server ends a connection in time."""
    try:
        async with asyncio.timeout(within):
            while await reader.read(65536):
                pass
    except ConnectionError:
        return True
    except TimeoutError:
        return False
    return True


class Turns(selectors.DefaultSelector):
    """Counts the turns of a loop."""

    count = 0

    def select(self, timeout=None):
        self.count += 1
        return super().select(timeout)


def test_a_server_that_nobody_asks_does_not_wake_up():
    turns = Turns()

    async def run():
        with socket.create_server(("127.0.0.1", 0)) as listener:
            serving = asyncio.create_task(server.serve(lambda *_: None, listener))
            await asyncio.sleep(0.2)
            before = turns.count
            await asyncio.sleep(1.0)
            woken = turns.count - before
            serving.cancel()
            await asyncio.wait([serving])
            return woken

    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(turns)) as runner:
        assert runner.run(run()) <= 2  # those of the test


@pytest.mark.parametrize("text", [b"", b"GET / HTTP/1.1\r\nHost: localhost\r\n", b"G"])
def test_a_request_that_does_not_arrive_ends_its_connection(run, monkeypatch, text):
    monkeypatch.setattr(server, "HEAD_TIMEOUT", 0.2)

    async def wait(house):
        reader, writer = await house.raw(text)
        gone = await ended(reader, 60)
        writer.close()
        monkeypatch.undo()
        return gone, (await house.get("/livez")).status_code

    assert run(wait) == (True, 200)


@pytest.mark.slow
def test_a_second_request_has_a_deadline_too(run, monkeypatch):
    monkeypatch.setattr(server, "HEAD_TIMEOUT", 1.0)
    monkeypatch.setattr(server, "IDLE_TIMEOUT", 2)

    async def wait(house):
        reader, writer = await house.raw(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        first = await reader.readuntil(b'{"status":"pass"}')
        writer.write(b"GET /")
        gone = await ended(reader, 60)
        writer.close()
        return first.startswith(b"HTTP/1.1 200"), gone

    assert run(wait) == (True, True)


def test_a_body_that_does_not_arrive_is_given_up(run, monkeypatch):
    monkeypatch.setattr("leadsman.extensions.http.routes.BODY_TIMEOUT", 0.2)

    async def wait(house):
        head = b"POST /devices/boiler/hold HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n{"
        reader, writer = await house.raw(head)
        answer = await reader.readline()
        writer.close()
        return answer

    assert b"408" in run(wait)


def test_a_client_that_goes_before_its_body_has_arrived_is_no_fault(run):
    async def wait(house):
        head = b"POST /devices/boiler/hold HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n{"
        _, writer = await house.raw(head)
        await asyncio.sleep(0.1)
        writer.close()
        await writer.wait_closed()
        await asyncio.sleep(0.1)
        assert (await house.get("/livez")).status_code == 200
        return [fault.json["where"] for fault in house.broker.messages("house/error")]

    assert "the HTTP endpoint" not in run(wait)


@pytest.mark.parametrize(
    "text",
    [
        b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET /" + b"x" * 300_000,
        b"POST /devices/boiler/hold HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n",
        b"GET /events HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_what_is_no_request_is_refused_and_nothing_is_logged(run, text, caplog):
    async def send(house):
        reader, writer = await house.raw(text)
        gone = await ended(reader, 60)
        writer.close()
        return gone, (await house.get("/livez")).status_code

    assert run(send) == (True, 200)
    assert [record for record in caplog.records if record.name.startswith(("uvicorn", "asyncio"))] == []


def _two_lengths(first, second, version=b"1.1"):
    more = b"0\r\n\r\nGET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
    head = b"POST /devices/boiler/hold HTTP/" + version + b"\r\nHost: localhost\r\n"
    return head + first + b"\r\n" + second + b"\r\n\r\n" + more


_LENGTH, _CHUNKED = b"Content-Length: 5", b"Transfer-Encoding: chunked"


@pytest.mark.parametrize(
    "text",
    [
        _two_lengths(_LENGTH, _CHUNKED),
        _two_lengths(_CHUNKED, _LENGTH),
        _two_lengths(b"content-LENGTH: 0", b"transfer-ENCODING: chunked"),
        _two_lengths(b"X: y", _CHUNKED, b"1.0"),
        b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n" + _two_lengths(_LENGTH, _CHUNKED),
    ],
)
def test_a_request_with_two_lengths_is_refused_and_the_connection_closed(run, text):
    async def send(house):
        reader, writer = await house.raw(text)
        async with asyncio.timeout(60):
            answer = await reader.read()
        writer.close()
        return answer

    answer = run(send)
    statuses = [line.split()[1] for line in answer.split(b"\r\n") if line.startswith(b"HTTP/1.1 ")]
    if text.startswith(b"GET"):  # the one before is answered, and no other
        assert statuses in ([b"200"], [b"200", b"400"])
    else:
        assert statuses == [b"400"]


@pytest.mark.parametrize("host", ["0.0.0.0", "0.0.0.0:{port}", "[::]:{port}", "[::ffff:0.0.0.0]", "0"])
def test_the_address_of_nobody_is_no_name_of_ours(run, host):
    async def send(house):
        name = host.format(port=house.port)
        reader, writer = await house.raw(f"GET /livez HTTP/1.1\r\nHost: {name}\r\n\r\n".encode())
        answer = await reader.readline()
        writer.close()
        return answer

    assert run(send).split()[1] == b"421"


@pytest.mark.parametrize(
    "text",
    [
        b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /?" + b"x" * 20_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 20_000 + b"\r\n\r\n",
    ],
)
def test_a_head_that_is_too_large_is_refused_also_if_it_arrives_at_once(run, text):
    async def send(house):
        reader, writer = await house.raw(text)
        answer = await reader.readline()
        writer.close()
        return answer

    assert run(send).split()[1] in (b"431", b"400")  # 400 if it arrived in pieces


def test_many_slow_connections_keep_nobody_out(run, monkeypatch):
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 16)

    async def crowd(house):
        slow = [await house.raw(b"GET / HTTP/1.1\r\n") for _ in range(300)]
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{house.port}", trust_env=False) as fresh:
            answers = [(await fresh.get("/introspect")).status_code for _ in range(5)]
        gone = sum([await ended(reader, 30) for reader, _ in slow[:200]])
        for _, writer in slow:
            writer.close()
        return answers, gone

    answers, gone = run(crowd)

    assert answers == [200] * 5
    assert gone == 200


@pytest.mark.slow
def test_connections_that_come_at_once_each_make_room_for_one(run, monkeypatch):
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 8)

    async def crowd(house):
        slow = await asyncio.gather(*(house.raw() for _ in range(30)))
        gone = sum(await asyncio.gather(*(ended(reader, 3) for reader, _ in slow)))
        for _, writer in slow:
            writer.close()
        return gone

    assert run(crowd) >= 30 - 8


def test_a_new_connection_is_served_although_others_were_served_before(run, monkeypatch):
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 4)
    request = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"

    async def crowd(house):
        kept = []
        for _ in range(4):
            reader, writer = await house.raw(request)
            await reader.readuntil(b'{"status":"pass"}')
            kept.append(writer)
        reader, writer = await house.raw()
        await asyncio.sleep(0.1)
        writer.write(request)
        answer = await reader.readline()
        for each in (*kept, writer):
            each.close()
        return answer

    assert run(crowd).startswith(b"HTTP/1.1 200")


def flooding_app():
    """An app in which more happens than a client that does not read can be sent."""
    app = house_app()

    @app.source("flood")
    async def flood():
        await asyncio.sleep(0.5)
        for _ in range(3000):
            yield {f"field{number}": "x" * 90 for number in range(32)}
        await asyncio.sleep(3600)

    return app


def test_a_stream_that_nobody_reads_is_cut_off(run, monkeypatch):
    monkeypatch.setattr(server, "WRITE_TIMEOUT", 0.3)

    async def ignore(house):
        loop = asyncio.get_running_loop()
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.setblocking(False)
            await loop.sock_connect(client, ("127.0.0.1", house.port))
            await loop.sock_sendall(client, b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await loop.sock_recv(client, 1)
            before = streams()
            async with asyncio.timeout(60):
                while streams():
                    await asyncio.sleep(0.05)
        return before, (await house.get("/introspect")).status_code

    assert run(ignore, flooding_app()) == (1, 200)


LISTEN = socket.socket.listen


def with_small_buffers(listener, *arguments):
    """As `listen`; the system keeps little of what a client does not read."""
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    LISTEN(listener, *arguments)


LARGE = ("/introspect", "/metrics", "/registry")


@contextlib.asynccontextmanager
async def unread(house, path):
    """A client that asks for an answer, and reads only how it begins."""
    loop = asyncio.get_running_loop()
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.setblocking(False)
        await loop.sock_connect(client, ("127.0.0.1", house.port))
        await loop.sock_sendall(client, f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        await loop.sock_recv(client, 1)
        yield


async def wait_for_room(house):
    async with asyncio.timeout(60):
        while (await house.get("/introspect")).status_code != 200:
            await asyncio.sleep(0.05)


@pytest.mark.slow
def test_large_answers_are_few_at_a_time_and_clients_that_do_not_take_them_lose_them(run, monkeypatch):
    monkeypatch.setattr(server, "WRITE_TIMEOUT", 1000)
    monkeypatch.setattr(routes, "SEND_TIMEOUT", 1000)
    monkeypatch.setattr(socket.socket, "listen", with_small_buffers)

    async def crowd(house):
        async with contextlib.AsyncExitStack() as clients:
            for _ in range(MAX_LARGE_ANSWERS):
                await clients.enter_async_context(unread(house, "/introspect"))
            refused = [await house.get(path) for path in LARGE]
            others = [(await house.get(path)).status_code for path in ("/healthz", "/introspect/boiler")]
        await wait_for_room(house)
        monkeypatch.setattr(routes, "SEND_TIMEOUT", 0.2)
        async with contextlib.AsyncExitStack() as clients:
            for _ in range(MAX_LARGE_ANSWERS):
                await clients.enter_async_context(unread(house, "/introspect"))
            monkeypatch.setattr(routes, "SEND_TIMEOUT", 1000)  # of those that begin from now on
            await wait_for_room(house)
        return [(each.status_code, "retry-after" in each.headers) for each in refused], others

    assert run(crowd, house_app(1000)) == ([(503, True)] * len(LARGE), [200, 200])


def test_the_stop_waits_neither_for_streams_nor_for_connections():
    async def stop():
        app, port = house_app(), free_port()
        app.load(Where.nowhere({"http.bind": f"127.0.0.1:{port}"}))
        running = asyncio.create_task(
            app.serve(MemoryBroker().connect, environment={"XDG_STATE_HOME": os.environ["XDG_STATE_HOME"]})
        )
        writers = []
        for text in (b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n", b"GET /"):
            while True:
                with contextlib.suppress(ConnectionError):
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                    break
                await asyncio.sleep(0.01)
            writer.write(text)
            writers.append(writer)
        while not streams():
            await asyncio.sleep(0.01)
        began = time.monotonic()
        app.stop()
        await running
        took = time.monotonic() - began
        for writer in writers:
            writer.close()
        return took, streams()

    took, left = asyncio.run(stop())

    assert took < 10
    assert left == 0


def test_the_stop_ends_requests_that_are_being_answered(monkeypatch):
    monkeypatch.setattr("leadsman.core.introspection.service.Service.poll", lambda self, device, answer, request: None)

    async def stop():
        app, port = house_app(), free_port()
        app.load(Where.nowhere({"http.bind": f"127.0.0.1:{port}"}))
        running = asyncio.create_task(
            app.serve(MemoryBroker().connect, environment={"XDG_STATE_HOME": os.environ["XDG_STATE_HOME"]})
        )
        while True:
            with contextlib.suppress(ConnectionError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                break
            await asyncio.sleep(0.01)
        writer.write(b"POST /devices/boiler/poll HTTP/1.1\r\nHost: localhost\r\n\r\n")
        while not requests():
            await asyncio.sleep(0.01)
        app.stop()
        await running
        writer.close()
        return requests()

    assert asyncio.run(stop()) == 0


def requests():
    """How many requests are being answered: each has a task."""
    return sum("run_asgi" in str(task.get_coro()) for task in asyncio.all_tasks())


def test_a_port_in_use_is_reported_once_and_the_app_runs_and_takes_it_later(monkeypatch, caplog):
    monkeypatch.setattr("leadsman.extensions.http.door.BIND_RETRY_INTERVAL", 0.05)
    app, port = house_app(), free_port()
    app.load(Where.nowhere({"http.bind": f"127.0.0.1:{port}"}))

    async def start():
        with socket.socket() as other:
            other.bind(("127.0.0.1", port))
            other.listen()
            running = asyncio.create_task(
                app.serve(MemoryBroker().connect, environment={"XDG_STATE_HOME": os.environ["XDG_STATE_HOME"]})
            )
            while "cannot be opened" not in caplog.text:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.3)
        async with httpx.AsyncClient(trust_env=False) as client:
            while True:
                with contextlib.suppress(httpx.TransportError):
                    status = (await client.get(f"http://127.0.0.1:{port}/livez")).status_code
                    break
                await asyncio.sleep(0.01)
        app.stop()
        await running
        return status

    assert asyncio.run(start()) == 200
    assert sum("another program uses it" in record.getMessage() for record in caplog.records) == 1


def test_a_unix_socket_is_served_and_removed_at_the_end(tmp_path):
    path = tmp_path / "http.sock"
    app = house_app()
    app.load(Where.nowhere({"http.bind": f"unix:{path}"}))

    async def ask():
        running = asyncio.create_task(
            app.serve(MemoryBroker().connect, environment={"XDG_STATE_HOME": os.environ["XDG_STATE_HOME"]})
        )
        while not path.exists():
            await asyncio.sleep(0.01)
        transport = httpx.AsyncHTTPTransport(uds=str(path))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            while True:
                with contextlib.suppress(httpx.TransportError):
                    answers = [(await client.post("/devices/boiler/hold")).status_code]
                    break
                await asyncio.sleep(0.01)
            answers.append((await client.get("/introspect")).status_code)
        app.stop()
        await running
        return answers

    assert asyncio.run(ask()) == [200, 200]
    assert not os.path.exists(path)
