"""Which certificates receivers are known by: those of the host, by the authorities of the system or of a file."""

from typing import Any

from twisted.internet import ssl

from mboxlist import privatefiles
from tools.outbox.outboxsettings import Settings

_SSL: Any = ssl           # it has no types
_END = b"-----END CERTIFICATE-----"


def client_options(host: str, settings: Settings) -> Any:
    """For a connection to that host. Raises OSError, and OpenSSL's error for a file that has no certificates."""
    if settings.authorities is None:
        return _SSL.optionsForClientTLS(host, _SSL.platformTrust())
    parts = privatefiles.read_named(settings.authorities).split(_END)[:-1]
    return _SSL.optionsForClientTLS(host, _SSL.trustRootFromCertificates([_SSL.Certificate.loadPEM(part + _END)
                                                                          for part in parts]))
