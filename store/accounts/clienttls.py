"""TLS to other servers, as their client: a directory, a provider of tokens, an IMAP server, a relay, the API."""

import ssl
from pathlib import Path


def context(authorities: str | Path | None = None, *, pem: str | None = None) -> ssl.SSLContext:
    """Takes the certificate of the host that was named, by an authority in that file or in `pem`; without either by
    one that the system knows. Nothing older than TLS 1.2 is spoken (RFC 8996), which some Pythons leave to OpenSSL's
    configuration. Raises OSError, of which ssl.SSLError is one."""
    if pem is not None and not pem.strip():
        raise ssl.SSLError("there is no certificate")           # or those that the system knows would count
    made = ssl.create_default_context(cafile=authorities, cadata=pem)
    made.minimum_version = max(made.minimum_version, ssl.TLSVersion.TLSv1_2)
    return made
