"""A real HTTP server on loopback, also with TLS, which plays recorded answers and does wrong what it is told."""

import asyncio
import hashlib
import re
import socket
import ssl
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from leadsman.adapters.http.wire import HttpRequest
from leadsman.testing.twins import Recordings


class Web:
    """Answers with what is recorded for a path, and counts its connections. `fault` is called with the handler instead,
    if there is one; `account` asks for a digest with this name and password.

    Args:
        answers: see `Recordings`.
        certificate: an ssl.SSLContext of a server; None for plain HTTP.
    """

    def __init__(self, answers=None, certificate=None, account=None, algorithm="MD5"):
        self.recordings = Recordings(answers or {})
        self.fault, self.certificate, self.account, self.algorithm = None, certificate, account, algorithm
        self.connections = self.logins = self.challenges = 0
        self.open = set()

    @property
    def port(self):
        return self.server.server_port

    @property
    def url(self):
        return f"http{'s' if self.certificate else ''}://localhost:{self.port}"

    def play(self, path, *answers):
        self.recordings.play(path, *answers)

    def __enter__(self):
        web = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1  # a reply is one packet

            def handle_one_request(self):
                self.raw_requestline = self.rfile.readline(65537)
                if not self.raw_requestline or not self.parse_request():
                    self.close_connection = True
                    return
                self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                web.answer(self)
                self.wfile.flush()

            def as_request(self):
                headers = dict(self.headers.items())
                url = f"http{'s' if web.certificate else ''}://{self.headers['Host']}{self.path}"
                return HttpRequest(self.command, url, headers, self.body)

            def reply(self, status, headers, content):
                self.send_response_only(status)
                for name, value in {"content-length": str(len(content)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *args): ...

        class Server(ThreadingHTTPServer):
            daemon_threads, block_on_close, request_queue_size = True, False, 1024

            def get_request(self):
                connection, address = super().get_request()
                web.connections += 1
                web.open.add(connection)
                return connection, address

            def finish_request(self, request, client_address):
                if web.certificate is not None:  # in its own thread: a client may stop within
                    request.settimeout(30)
                    with web.certificate.wrap_socket(request, server_side=True) as wrapped:
                        super().finish_request(wrapped, client_address)
                else:
                    super().finish_request(request, client_address)

            def shutdown_request(self, request):
                web.open.discard(request)
                super().shutdown_request(request)

            def handle_error(self, *args): ...

        self.server = Server(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def answer(self, handler):
        """Answer a request, or do what is wrong."""
        if self.fault is not None:
            self.fault(handler)
        elif self.account is None or self.logged_in(handler):
            handler.reply(*asyncio.run(self.recordings.answer(handler.as_request())))

    def logged_in(self, handler):
        """Whether the request has the right digest (RFC 7616 §3.4.1); if not, the reply asks for one."""
        name, password = self.account
        given = dict(re.findall(r'(\w+)="?([^",]*)"?', handler.headers.get("Authorization", "")))
        digest = {"MD5": hashlib.md5, "SHA-256": hashlib.sha256}[self.algorithm]

        def h(text):
            return digest(text.encode()).hexdigest()

        first, second = h(f"{name}:door:{password}"), h(f"{handler.command}:{handler.path}")
        if given.get("response") and given["response"] == h(
            f"{first}:{given['nonce']}:{given['nc']}:{given['cnonce']}:{given['qop']}:{second}"
        ):
            self.logins += 1
            return True
        challenge = f'Digest realm="door", nonce="{time.monotonic_ns()}", qop="auth", algorithm={self.algorithm}'
        self.challenges += 1
        handler.reply(401, {"WWW-Authenticate": challenge}, b"")
        return False

    def __exit__(self, *exc_info):
        self.server.shutdown()
        self.server.server_close()


def send(status, pieces, length=None, pause=0.0):
    """A fault of a `Web`: it begins an answer, and closes the connection after these pieces of the body."""

    def fault(handler):
        handler.send_response(status)
        if length is not None:
            handler.send_header("Content-Length", str(length))
        handler.end_headers()
        for piece in pieces:
            handler.wfile.write(piece)
            handler.wfile.flush()
            time.sleep(pause)
        handler.close_connection = True

    return fault


class Silent:
    """A port that accepts connections, and then nothing."""

    def __enter__(self):
        self.socket = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}"
        return self

    def __exit__(self, *exc_info):
        self.socket.close()


def server_context(authority, *names, **options):
    """What a server of these names needs for TLS, with a certificate of a trustme.CA."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names, **options).configure_cert(context)
    return context
