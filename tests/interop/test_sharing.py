"""Python's imaplib shares a mailbox, and looks at its quota: what it sends and expects is not of our making."""

from tests.support.clients.python_imap import login, ok
from tests.support.servers.server import Server


def test_acl_and_quota_by_imaplib(tmp_path):
    with Server(tmp_path, ["alice", "bob"], {"store.default_quota": "1M"}) as server:
        with login(server, "alice") as alice, login(server, "bob") as bob:
            assert {"ACL", "RIGHTS=KXTE", "QUOTA"} <= set(ok(alice.capability())[0].decode().upper().split())
            ok(alice.create("Team"))
            ok(alice.append("Team", None, None, b"Subject: one\r\n\r\n" + b"x" * 5000))
            ok(alice.setacl("Team", "bob", "lrs"))
            assert ok(alice.getacl("Team")) == [b"Team alice lrswipkxteacd bob lrs"]
            assert ok(bob.myrights("user/alice/Team")) == [b"user/alice/Team lrs"]
            ok(bob.select("user/alice/Team", readonly=True))          # \Seen is her own: nobody else sees a change
            assert ok(bob.search(None, "ALL")) == [b"1"]
            ok(bob.unselect())
            roots, quotas = ok(alice.getquotaroot("Team"))
            assert (roots, quotas) == ([b"Team alice"], [b"alice (STORAGE 5 1024)"])
            assert alice.getquota("bob")[0] == "NO" and alice.setquota("alice", "(STORAGE 5)")[0] == "NO"
            ok(alice.deleteacl("Team", "bob"))
            assert bob.myrights("user/alice/Team")[0] == "NO"
        server.stop()
        server.check()
