"""Which certificates of servers are accepted: the same ones on each Python and for each protocol."""

import ssl
from pathlib import Path


def client_context(ca: str | Path | None = None) -> ssl.SSLContext:
    """What a client needs for TLS. Reads files.

    `ssl.create_default_context` checks more strictly from Python 3.13 on: it refuses authorities that are made at home
    as the manuals of OpenSSL and mosquitto show, which name no use of their key or mark nothing as critical
    (canonical/microk8s#4864, openssl/openssl#28391). So both flags that differ are set here: the rules of RFC 5280 that
    no attacker gains by are not enforced (``VERIFY_X509_STRICT``), and a certificate that is trusted need not be that
    of an authority (``VERIFY_X509_PARTIAL_CHAIN``), so that `ca` may be the own certificate of a device.

    Args:
        ca: a file with certificates in PEM that are trusted instead of those of the system.

    Raises:
        OSError: the file cannot be read; an `ssl.SSLError`, which is one, if it holds no certificate.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # at least TLS 1.2, with the name and the certificate checked
    context.verify_flags = (context.verify_flags | ssl.VERIFY_X509_PARTIAL_CHAIN) & ~ssl.VERIFY_X509_STRICT
    if ca is None:
        context.load_default_certs()
    else:
        context.load_verify_locations(ca)
    return context
