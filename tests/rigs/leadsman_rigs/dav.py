"""A real CalDAV server, Radicale, and a proxy before it that breaks things."""

import html
import http.client
import socket
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from leadsman.testing.mosquitto import free_port

CONFIGURATION = """\
[server]
hosts = 127.0.0.1:{port}
[auth]
type = htpasswd
htpasswd_filename = {users}
htpasswd_encryption = plain
delay = 0
[storage]
filesystem_folder = {folder}
[logging]
level = error
[web]
type = none
"""


def event(uid, *lines):
    """An iCalendar object with one event."""
    head = [
        "BEGIN:VCALENDAR",
        "VERSION:2.0",
        "PRODID:-//tests//",
        "BEGIN:VEVENT",
        f"UID:{uid}",
        "DTSTAMP:20260101T000000Z",
    ]
    return "\r\n".join([*head, *lines, "END:VEVENT", "END:VCALENDAR", ""])


def multistatus(*texts):
    """What a server answers to a search that found these iCalendar objects."""
    answers = "".join(
        f"<response><href>/ann/home/{n}.ics</href><propstat><prop><getetag>1</getetag>"
        f"<C:calendar-data><![CDATA[{text}]]></C:calendar-data></prop>"
        "<status>HTTP/1.1 200 OK</status></propstat></response>"
        for n, text in enumerate(texts)
    )
    spaces = 'xmlns="DAV:" xmlns:C="urn:ietf:params:xml:ns:caldav"'
    return f'<?xml version="1.0"?><multistatus {spaces}>{answers}</multistatus>'


class Radicale:
    """The server. One user, ann, with the password secret; `add` puts events into her calendars."""

    def __enter__(self):
        self.directory = tempfile.TemporaryDirectory(prefix="leadsman-dav-")
        base = Path(self.directory.name)
        self.port = free_port()
        (base / "users").write_text("ann:secret\n")
        (base / "configuration").write_text(
            CONFIGURATION.format(port=self.port, users=base / "users", folder=base / "collections")
        )
        self.process = subprocess.Popen(
            [sys.executable, "-m", "radicale", "--config", str(base / "configuration")], stderr=subprocess.DEVNULL
        )
        deadline = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                return self
            except OSError:
                assert self.process.poll() is None, "radicale ended"
                assert time.monotonic() < deadline
                time.sleep(0.02)

    def ask(self, method, path, body=b"", **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        connection.request(method, path, body, {"Authorization": "Basic YW5uOnNlY3JldA==", **headers})
        response = connection.getresponse()
        text = response.read()
        connection.close()
        assert response.status < 400, text
        return text

    def calendar(self, name, title=None):
        body = (
            '<?xml version="1.0"?><C:mkcalendar xmlns:D="DAV:" xmlns:C="urn:ietf:params:xml:ns:caldav"><D:set><D:prop>'
            f"<D:displayname>{html.escape(title or name)}</D:displayname></D:prop></D:set></C:mkcalendar>"
        )
        self.ask("MKCALENDAR", f"/ann/{name}/", body.encode())

    def add(self, calendar, uid, *lines):
        self.ask("PUT", f"/ann/{calendar}/{uid}.ics", event(uid, *lines).encode(), **{"Content-Type": "text/calendar"})

    def remove(self, calendar, uid):
        self.ask("DELETE", f"/ann/{calendar}/{uid}.ics")

    def __exit__(self, *exc_info):
        self.process.kill()  # at a SIGTERM it waits for connections that nobody uses any more
        self.process.wait()
        self.directory.cleanup()


class Proxy:
    """Passes on what it is asked, or does what `fault` says: a status, or one of ``html``, ``cut``, ``hang``, ``drip``,
    or bytes that are the body of a 207."""

    def __init__(self, port):
        self.target, self.fault, self.asked = port, None, []

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server.server_port}"

    def __enter__(self):
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one_request(self):
                self.raw_requestline = self.rfile.readline(65537)
                if not self.raw_requestline or not self.parse_request():
                    self.close_connection = True
                    return
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                proxy.asked.append(self.command)
                proxy.answer(self, body)

            def log_message(self, *args): ...

        class Server(ThreadingHTTPServer):
            daemon_threads, block_on_close = True, False

            def handle_error(self, *args): ...

        self.server = Server(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def answer(self, handler, body):
        fault = self.fault
        if fault == "hang":
            time.sleep(30)
        elif isinstance(fault, int):
            self.say(handler, fault, b"no", **({"Retry-After": "120"} if fault in (429, 503) else {}))
        elif fault == "html":
            self.say(handler, 200, b"<html><body>Please log in</body></html>", **{"Content-Type": "text/html"})
        elif isinstance(fault, bytes):
            self.say(handler, 207, fault, **{"Content-Type": "text/xml"})
        elif fault == "drip":
            handler.send_response(207)
            handler.send_header("Content-Length", "1000000")
            handler.end_headers()
            for _ in range(300):
                handler.wfile.write(b" ")
                time.sleep(0.1)
        else:
            self.forward(handler, body, cut=fault == "cut")

    def forward(self, handler, body, cut):
        connection = http.client.HTTPConnection("127.0.0.1", self.target)
        headers = {
            name: value for name, value in handler.headers.items() if name.lower() not in ("host", "accept-encoding")
        }
        connection.request(handler.command, handler.path, body, headers)
        response = connection.getresponse()
        text = response.read()
        connection.close()
        passed = {
            n: v for n, v in response.getheaders() if n.lower() in ("content-type", "www-authenticate", "dav", "etag")
        }
        if cut:
            passed["Content-Length"] = str(len(text))
            text = text[: len(text) // 2]
        self.say(handler, response.status, text, **passed)
        if cut:
            handler.connection.shutdown(socket.SHUT_RDWR)

    def say(self, handler, status, text, **headers):
        handler.send_response(status)
        for name, value in ({"Content-Length": str(len(text))} | headers).items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(text)
        handler.wfile.flush()

    def __exit__(self, *exc_info):
        self.server.shutdown()
        self.server.server_close()
