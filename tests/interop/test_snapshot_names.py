"""A user gets a lost message out of a snapshot, with Python's imaplib: what it expects is not of our making."""

import imaplib
import json
import re

from tests.support.clients.python_imap import login, ok
from tests.support.servers.server import Server

OPTIONS = {"imap.time_travel": "group:time", "workers.imap": "2", "store.purge_delay": "0s", "store.sync": "none",
           "store.disk_reserve": "1M"}
KEPT, LOST = b"Subject: kept\r\n\r\nKept.\r\n", b"Subject: lost\r\n\r\n" + b"Lost.\r\n" * 20_000


def test_a_lost_message_comes_back(tmp_path):
    with Server(tmp_path, ["alice", "bob"], OPTIONS) as server:
        server.command("user", "set", "alice", "--group", "time")
        with login(server, "alice") as alice, login(server, "bob") as bob:
            ok(alice.create("Archive"))
            ok(alice.append("Archive", None, '"17-Jul-1996 02:44:25 -0700"', KEPT))
            ok(alice.append("Archive", r"(\Flagged $Important)", '"18-Jul-1996 02:44:25 -0700"', LOST))
            made = json.loads(server.command("snapshot", "create", "--json"))["snapshot"]
            ok(alice.select("Archive"))
            ok(alice.store("2", "+FLAGS", r"(\Deleted)"))
            ok(alice.expunge())
            ok(alice.unselect())
            server.command("purge")
            assert len(server.messages) == 2            # the snapshot keeps both

            assert ok(bob.namespace()) == [b'(("" "/")) (("user/" "/")) (("public/" "/"))']
            assert ok(bob.list('""', "#snapshots/*")) == [None]
            assert ok(alice.namespace()) == [b'(("" "/")) (("user/" "/")) (("public/" "/")("#snapshots/" "/"))']
            assert sorted(ok(alice.list())) == [b'(\\HasNoChildren) "/" Archive', b'(\\HasNoChildren) "/" INBOX']
            level = "#snapshots/" + re.sub(r"(....)(..)(..)T(..)(..)(..)Z", r"\1-\2-\3T\4:\5:\6Z", made)
            names = [line.split()[-1].decode() for line in ok(alice.list('""', "#snapshots/*"))]
            assert names == [level, f"{level}/Archive", f"{level}/INBOX"]
            assert bob.select(f"{level}/INBOX")[0] == "NO"

            assert ok(alice.select(f"{level}/Archive", readonly=True)) == [b"2"]
            assert ok(alice.search(None, "FLAGGED")) == [b"2"]
            assert ok(alice.search(None, "TEXT", "kept")) == [b"1"]
            assert ok(alice.fetch("2", "(BODY[])"))[0][1] == LOST
            assert alice.store("2", "+FLAGS", r"(\Seen)")[0] == "NO"
            assert b"\\Seen" not in ok(alice.fetch("2", "(FLAGS)"))[0]
            ok(alice.uid("copy", "2", "Archive"))
            with login(server, "alice") as other:       # by another process, perhaps
                assert ok(other.select(f"{level}/Archive", readonly=True)) == [b"2"]
                assert ok(other.sort("SUBJECT", "UTF-8", "ALL")) == [b"1 2"]
            assert ok(alice.select("Archive")) == [b"2"]
            found = ok(alice.fetch("2", "(FLAGS INTERNALDATE BODY.PEEK[])"))
            assert found[0][1] == LOST
            assert b'INTERNALDATE "18-Jul-1996 02:44:25 -0700"' in found[0][0]
            assert b"\\Flagged" in found[0][0] and b"$Important" in found[0][0]

            ok(alice.select(f"{level}/Archive", readonly=True))
            server.command("snapshot", "remove", "--force", "--yes", made)
            try:
                alice.noop()
                raise AssertionError("the snapshot is gone, and she was not told")
            except imaplib.IMAP4.abort:
                pass
        assert len(server.messages) == 2
        assert server.stop() == 0
        assert {path.name for path in (server.root / "snapshots").iterdir()} <= {"lock", ".scratch"}
        server.check()
        assert "Traceback" not in server.said()
