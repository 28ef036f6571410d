"""What names a TLS connection: the client of Python's own ssl must have the same."""

import hashlib
import ssl

import pytest
from OpenSSL import SSL

from tests.support.servers.certificates import Authority, showing
from tools.server.tls.contexts import Certificates
from tools.serversettings import Tls


class Joined:
    """A client and our server, joined in memory, when the handshake is over."""

    def __init__(self, certificates, version, session=None):
        context = showing(None, version)
        if session is not None:
            context, session = session
        self.context = context
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.client = context.wrap_bio(self._in, self._out, session=session)
        self.server = certificates.serverConnectionForTLS(None)
        self.server.set_accept_state()
        done = set()
        for _ in range(20):
            for name, work in (("client", self.client.do_handshake), ("server", self.server.do_handshake)):
                try:
                    work()
                    done.add(name)
                except (ssl.SSLWantReadError, SSL.WantReadError):
                    pass
                self._carry()
        assert done == {"client", "server"}
        self.server.send(b"x")
        self._carry()
        assert self.client.read(1) == b"x"              # and the session tickets of TLS 1.3 with it

    def _carry(self):
        data = self._out.read()
        if data:
            self.server.bio_write(data)
        try:
            while True:
                self._in.write(self.server.bio_read(65536))
        except SSL.WantReadError:
            pass


@pytest.fixture
def certificates(tmp_path):
    authority = Authority(tmp_path, "authority")
    return Certificates.from_settings(Tls(certificate=authority.server()), tmp_path)


V12, V13 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3


def test_tls_unique(certificates):
    """RFC 5929 §3, also when a session is taken up; not with TLS 1.3."""
    first = Joined(certificates, V12)
    unique = first.client.get_channel_binding("tls-unique")
    assert len(unique) == 12 and certificates.channel_binding(first.server, "tls-unique") == unique
    again = Joined(certificates, V12, (first.context, first.client.session))
    assert again.client.session_reused
    other = again.client.get_channel_binding("tls-unique")
    assert other != unique and certificates.channel_binding(again.server, "tls-unique") == other
    assert certificates.channel_binding(Joined(certificates, V13).server, "tls-unique") is None


def test_tls_exporter(certificates):
    """RFC 9266 §2, §3: 32 octets, of each connection its own; gsasl says whether they are the right ones."""
    first, second = (certificates.channel_binding(Joined(certificates, V13).server, "tls-exporter") for _ in range(2))
    assert len(first) == len(second) == 32 and first != second
    assert certificates.channel_binding(Joined(certificates, V12).server, "tls-exporter") is None


@pytest.mark.parametrize("version", [V12, V13])
def test_tls_server_end_point(certificates, version):
    """RFC 5929 §4.1"""
    joined = Joined(certificates, version)
    digest = hashlib.sha256(joined.client.getpeercert(binary_form=True)).digest()
    assert certificates.channel_binding(joined.server, "tls-server-end-point") == digest


def test_what_is_no_channel_binding(certificates):
    joined = Joined(certificates, V13)
    for kind in ("", "tls-unique-for-telnet", "TLS-EXPORTER"):
        assert certificates.channel_binding(joined.server, kind) is None
