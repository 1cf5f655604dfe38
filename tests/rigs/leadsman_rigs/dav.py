"""Real CalDAV servers, Radicale and two versions of xandikos, and a proxy before them that breaks things."""

import html
import http.client
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from leadsman.testing.mosquitto import free_port
from leadsman_rigs.web import Web, send

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


class Server:
    """A server, and a user of it, ann, with the password secret; `add` puts events into her calendars."""

    name: str
    calendars = "/ann"
    """Where her calendars are."""

    def command(self, folder):
        """Write what the server needs into a folder, and return the command that starts it at `port`."""
        raise NotImplementedError

    def __enter__(self):
        self.directory = tempfile.TemporaryDirectory(prefix="leadsman-dav-")
        base = Path(self.directory.name)
        self.port = free_port()
        with (base / "log").open("w") as log:
            self.process = subprocess.Popen(self.command(base), stdout=log, stderr=log)
        deadline = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                return self
            except OSError:
                assert self.process.poll() is None, (base / "log").read_text()
                assert time.monotonic() < deadline
                time.sleep(0.02)

    def ask(self, method, path, body=b"", **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        connection.request(method, self.calendars + path, body, {"Authorization": "Basic YW5uOnNlY3JldA==", **headers})
        response = connection.getresponse()
        text = response.read()
        connection.close()
        assert response.status < 400, text
        return text

    def calendar(self, name, title=None, kind="VEVENT"):
        body = (
            '<?xml version="1.0"?><C:mkcalendar xmlns:D="DAV:" xmlns:C="urn:ietf:params:xml:ns:caldav"><D:set><D:prop>'
            f"<D:displayname>{html.escape(title or name)}</D:displayname><C:supported-calendar-component-set>"
            f'<C:comp name="{kind}"/></C:supported-calendar-component-set></D:prop></D:set></C:mkcalendar>'
        )
        self.ask("MKCALENDAR", f"/{name}/", body.encode(), **{"Content-Type": "text/xml"})

    def add(self, calendar, uid, *lines):
        self.put(calendar, uid, event(uid, *lines))

    def put(self, calendar, uid, text):
        self.ask("PUT", f"/{calendar}/{uid}.ics", text.encode(), **{"Content-Type": "text/calendar"})

    def remove(self, calendar, uid):
        self.ask("DELETE", f"/{calendar}/{uid}.ics")

    def __exit__(self, *exc_info):
        self.process.kill()  # at a SIGTERM they wait for connections that nobody uses any more
        self.process.wait()
        self.directory.cleanup()


class Radicale(Server):
    """Radicale, which has passwords."""

    name = "radicale"

    def command(self, folder):
        (folder / "users").write_text("ann:secret\n")
        text = CONFIGURATION.format(port=self.port, users=folder / "users", folder=folder / "collections")
        (folder / "configuration").write_text(text)
        return [sys.executable, "-m", "radicale", "--config", str(folder / "configuration")]


class Xandikos(Server):
    """The newest xandikos. It takes any password."""

    name = "xandikos"
    calendars = "/ann/calendars"
    program = (sys.executable, "-m", "xandikos", "serve")

    def command(self, folder):
        options = ["-l", "127.0.0.1", "-p", str(self.port), "--current-user-principal", "/ann/", "--autocreate"]
        return [*self.program, "-d", str(folder / "collections"), *options]


class DebianXandikos(Xandikos):
    """The xandikos of this Debian. Version 0.2.8 leaves most recurring events out of a search by time."""

    name = "xandikos-of-debian"
    program = ("/usr/bin/xandikos",)


SERVERS = (Radicale, Xandikos, DebianXandikos)


class Proxy(Web):
    """Passes on what it is asked, or does what `fault` says: a status, or one of ``html``, ``cut``, ``hang``, ``drip``,
    or bytes that are the body of a 207."""

    def __init__(self, port):
        super().__init__()
        self.target, self.asked = port, []

    def answer(self, handler):
        self.asked.append(handler.command)
        fault = self.fault
        if fault == "hang":
            time.sleep(30)
        elif isinstance(fault, int):
            handler.reply(fault, {"Retry-After": "120"} if fault in (429, 503) else {}, b"no")
        elif fault == "html":
            handler.reply(200, {"Content-Type": "text/html"}, b"<html><body>Please log in</body></html>")
        elif isinstance(fault, bytes):
            handler.reply(207, {"Content-Type": "text/xml"}, fault)
        elif fault == "drip":
            send(207, [b" "] * 300, 10**6, pause=0.1)(handler)
        else:
            self.forward(handler, cut=fault == "cut")

    def forward(self, handler, cut):
        connection = http.client.HTTPConnection("127.0.0.1", self.target)
        headers = {
            name: value for name, value in handler.headers.items() if name.lower() not in ("host", "accept-encoding")
        }
        connection.request(handler.command, handler.path, handler.body, headers)
        response = connection.getresponse()
        text = response.read()
        connection.close()
        passed = {
            n: v for n, v in response.getheaders() if n.lower() in ("content-type", "www-authenticate", "dav", "etag")
        }
        if cut:
            send(response.status, [text[: len(text) // 2]], len(text))(handler)
        else:
            handler.reply(response.status, passed, text)
