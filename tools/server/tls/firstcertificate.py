"""The certificate of a new store."""

from pathlib import Path

from tools.server.tls.contexts import Certificates
from tools.serversettings import Tls


def make(folder: Path) -> None:
    """Make a self-signed certificate there. Raises Failure."""
    Certificates.from_settings(Tls(), folder)
