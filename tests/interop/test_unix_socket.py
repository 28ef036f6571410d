"""Postfix delivers over a UNIX socket, as it does where both are on one machine."""

import tempfile
from pathlib import Path

from tests.support.clients.imap import Imap
from tests.support.readers import trace
from tests.support.servers.postfix import DOMAIN, Postfix
from tests.support.servers.server import PASSWORD, Server
from tests.support.stores import messages


def test_postfix_delivers_over_a_unix_socket(tmp_path: Path) -> None:
    message = messages.make(1, 0, 100_000)
    sender = f"sender@{DOMAIN}"
    with tempfile.TemporaryDirectory(prefix="onecopy-socket-") as folder:
        Path(folder).chmod(0o755)                   # Postfix's client is not root
        path = Path(folder) / "lmtp"
        with Server(tmp_path, ["alice", "bob"], {"lmtp.socket": str(path)}) as server:
            with Postfix(str(path)) as postfix:
                postfix.send(sender, [f"alice@{DOMAIN}", f"bob@{DOMAIN}", f"nobody@{DOMAIN}"], message)
                postfix.empty(limit=180)
                log = postfix.log()
            assert log.count("status=sent (250 2.0.0") == 2
            assert "to=<nobody@example.org>" in log and "550 5.1.1" in log
            for user in ("alice", "bob"):
                with Imap(server.imap, user, PASSWORD) as imap:
                    imap.select()
                    found, = imap.messages().values()
                    assert trace.below(found, sender, relayed=True) == message
            assert len(server.messages) == 1
            assert server.stop() == 0
            assert not path.exists()
