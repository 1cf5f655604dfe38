"""One certificate is accepted, or refused, in the same way by each client, on each Python."""

import asyncio
import contextlib
import datetime
import ipaddress
import ssl
from pathlib import Path
from typing import NamedTuple

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

import leadsman
from leadsman import Broker
from leadsman.adapters.caldav import CalDav
from leadsman.adapters.http import HttpClient
from leadsman.core.loop.clock import system_clock
from leadsman.core.mqtt.client import connect
from leadsman.core.mqtt.connection import Connect
from leadsman_rigs.one_connection import Hooks

pytestmark = pytest.mark.system

NOW = datetime.datetime.now(datetime.UTC)
DAY = datetime.timedelta(days=1)
KEY = ec.generate_private_key(ec.SECP256R1())
"""Of everybody; nothing here is secret."""


def certificate(name, *extensions, issuer=None, ends=NOW + 365 * DAY):
    """A certificate with extensions, each with whether it is critical; by itself, or by another one."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = x509.CertificateBuilder(
        issuer_name=subject if issuer is None else issuer.subject,
        subject_name=subject,
        public_key=KEY.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=NOW - 30 * DAY,
        not_valid_after=ends,
    )
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical=critical)
    return builder.sign(KEY, hashes.SHA256())


NAMES = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
CA = x509.BasicConstraints(ca=True, path_length=None)
KEY_ID = x509.SubjectKeyIdentifier.from_public_key(KEY.public_key())
ISSUER_ID = x509.AuthorityKeyIdentifier.from_issuer_public_key(KEY.public_key())
SIGNS = x509.KeyUsage(*(False,) * 5, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False)

BY_THE_BOOK = certificate("By the book", (CA, True), (SIGNS, True), (KEY_ID, False))
HOME = {
    "by the book": BY_THE_BOOK,
    "mosquitto-tls(7)": certificate("Manual", (CA, True), (KEY_ID, False), (ISSUER_ID, False)),
    "nothing critical (openssl/openssl#28391)": certificate("Old", (CA, False)),
    "no use of the key (canonical/microk8s#4864)": certificate("MicroK8s", (CA, True)),
}
"""Authorities as people make them at home."""


class Case(NamedTuple):
    """What a server shows, and what a client trusts."""

    shown: list[x509.Certificate]
    trusted: x509.Certificate
    accepted: bool


def issued(authority, *extensions, **options):
    return certificate("localhost", (NAMES, False), *extensions, issuer=authority, **options)


STRANGER = certificate("Stranger", (CA, True), (SIGNS, True), (KEY_ID, False))
OWN = certificate("localhost", (NAMES, False))
LEAF = issued(BY_THE_BOOK, (ISSUER_ID, False))
MIDDLE = certificate("Middle", (CA, True), issuer=HOME["mosquitto-tls(7)"])
CASES = {
    **{f"an authority: {name}": Case([issued(made)], made, True) for name, made in HOME.items()},
    **{
        f"a leaf that names its authority: {name}": Case([issued(made, (ISSUER_ID, False))], made, True)
        for name, made in HOME.items()
    },
    "a chain": Case([issued(MIDDLE), MIDDLE], HOME["mosquitto-tls(7)"], True),
    "the middle of a chain is trusted": Case([issued(MIDDLE), MIDDLE], MIDDLE, True),
    "the own certificate of a device": Case([OWN], OWN, True),
    "the certificate that an authority issued is itself trusted": Case([LEAF], LEAF, True),
    "another authority": Case([LEAF], STRANGER, False),
    "another device": Case([OWN], certificate("localhost", (NAMES, False)), False),
    "an authority that is none": Case([issued(OWN)], OWN, False),
    "expired": Case([issued(BY_THE_BOOK, (ISSUER_ID, False), ends=NOW - DAY)], BY_THE_BOOK, False),
    "another name": Case([certificate("elsewhere", issuer=BY_THE_BOOK)], BY_THE_BOOK, False),
}


async def over_http(port, ca):
    async with HttpClient(f"https://localhost:{port}", ca=ca, timeout="20s") as http:
        await http.get_text("/")


async def over_caldav(port, ca):
    async with CalDav(f"https://localhost:{port}/", "ann", "secret", ca=ca, timeout="20s") as calendars:
        await calendars.events("Home", days=1)


async def over_mqtt(port, ca, scheme="mqtts", protocol="5.0"):
    broker, clock = Broker.from_url(f"{scheme}://localhost:{port}?ca={ca}"), system_clock(asyncio.get_running_loop())
    await connect(broker, clock, Connect("tester", protocol, "t/status", b"{}"), Hooks())


CLIENTS = {
    "HTTP": over_http,
    "CalDAV": over_caldav,
    "MQTT 5": over_mqtt,
    "MQTT 3.1.1": lambda port, ca: over_mqtt(port, ca, protocol="3.1.1"),
    "WebSocket": lambda port, ca: over_mqtt(port, ca, scheme="wss"),
}


def pem(made):
    return made.public_bytes(serialization.Encoding.PEM)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)
def test_a_certificate_is_accepted_or_refused_by_each_client_alike(tmp_path, client, case):
    private = KEY.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (tmp_path / "server.pem").write_bytes(private + b"".join(map(pem, case.shown)))
    (tmp_path / "ca.pem").write_bytes(pem(case.trusted))

    assert asyncio.run(asked(client, tmp_path)) == case.accepted


async def asked(client, directory):
    """Whether a client sends its request; else its error must be about the certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "server.pem")
    requests = []

    async def serve(reader, writer):
        with contextlib.suppress(OSError):
            requests.append(await reader.read(1))
        writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    async with server:
        with pytest.raises(Exception) as raised:  # noqa: PT011  # of each client its own: nothing answers
            await client(server.sockets[0].getsockname()[1], directory / "ca.pem")
    accepted = any(requests)
    assert accepted or "certificate" in str(raised.value)
    return accepted


def test_each_context_of_a_client_is_made_in_one_place():
    package = Path(leadsman.__file__).parent
    makers = ("create_default_context", "SSLContext(", "create_stdlib_context", "_create_unverified_context")

    found = [path.name for path in package.rglob("*.py") if any(maker in path.read_text() for maker in makers)]

    assert found == ["tls.py"]
