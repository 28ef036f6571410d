"""The sample tree of docs/ldap as the users of a running server: what a new user gets, and what is said of others."""

from collections.abc import Iterator

import pytest

from tests.support import ROOT
from tests.support.clients.imap import Imap, Refused
from tests.support.clients.lmtp import Lmtp
from tests.support.servers import slapd
from tests.support.servers.server import Server

DOCS = ROOT / "docs" / "ldap"
BASE = slapd.BASE
MAIL = b"From: carol@example.org\r\nTo: all@example.org\r\nSubject: hello\r\n\r\nHello.\r\n"
SPECIAL = {b"Drafts", b"Sent", b"Junk", b"Trash", b"Archive"}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[slapd.Slapd]:
    folder = tmp_path_factory.mktemp("slapd")
    with slapd.Slapd(folder / "one", schemas=[slapd.SCHEMAS / "misc.schema", DOCS / "onecopy.schema"],
                     rules=f"include {DOCS}/index.conf\ninclude {DOCS}/access.conf",
                     tree=(DOCS / "sample.ldif").read_text()) as made:
        yield made


@pytest.fixture(scope="module")
def server(directory: slapd.Slapd, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("server")
    (folder / "password").write_text("secret\n")
    with Server(folder, options={
            "store.host": "mail1.example.org", "store.special_mailboxes": "Drafts,Sent,Junk,Trash,Archive",
            "directory.uris": directory.uri, "directory.starttls": "no", "directory.cache_time": "0",
            "directory.cache_negative_time": "0", "directory.bind_dn": f"cn=onecopy,ou=services,{BASE}",
            "directory.bind_password_file": str(folder / "password"), "directory.base": f"ou=people,{BASE}",
            "directory.domain_base": f"ou=domains,{BASE}", "directory.group_base": f"ou=groups,{BASE}"}) as made:
        yield made


def test_the_first_delivery_makes_a_user_with_all_that_belongs_to_it(server):
    with Lmtp(server.lmtp) as relay:
        replies = relay.deliver("carol@example.org", [
            "alice@example.org", "Alice.Smith@example.org", "bob@example.net", "dave@example.org", "nobody@example.org",
            "x@example.info"], MAIL)
        assert [reply.code for reply in replies[:2]] == [250, 250]
        assert [reply.enhanced for reply in replies[2:]] == ["4.4.4", "4.2.1", "5.1.1", "5.1.1"]
    with Imap(server.imap, "alice") as client:
        listed = client.ok('LIST "" "*" RETURN (SPECIAL-USE SUBSCRIBED)').untagged
        for name in SPECIAL:
            line, = (response.text for response in listed if response.text.strip(b'"').endswith(name))
            assert b"\\" + name in line and b"\\Subscribed" in line
        assert client.ok("GETQUOTAROOT INBOX").find(rb"STORAGE \d+ (\d+)")[1] == str(2 << 20).encode()
        assert client.ok("GETQUOTAROOT Archive").find(rb'"?alice/Archive"? \(STORAGE \d+ (\d+)')[1] == str(
            10 << 20).encode()
        client.select()
        assert len(client.uids()) == 1                  # two addresses of one user
    assert len(server.messages) == 1


def test_a_changed_quota_holds_from_the_next_look_on(server, directory):
    directory.change(f"dn: uid=alice,ou=people,{BASE}\nchangetype: modify\nreplace: mailMsgQuota\nmailMsgQuota: 0\n")
    with Lmtp(server.lmtp) as relay:
        reply, = relay.deliver("carol@example.org", ["alice@example.org"], MAIL)
        assert str(reply)[:3] in ("452", "552")
    directory.change(f"dn: uid=alice,ou=people,{BASE}\nchangetype: modify\nreplace: mailMsgQuota\nmailMsgQuota: lots\n")
    with Lmtp(server.lmtp) as relay:                # as it was: 0
        assert str(relay.deliver("carol@example.org", ["alice@example.org"], MAIL)[0])[:3] in ("452", "552")
    directory.change(f"dn: uid=alice,ou=people,{BASE}\nchangetype: modify\nreplace: mailMsgQuota\nmailMsgQuota: -1\n")
    with Lmtp(server.lmtp) as relay:
        assert str(relay.deliver("carol@example.org", ["alice@example.org"], MAIL)[0])[:3] == "250"
    assert "'lots' is not a number" in server.said()


def test_who_may_not_log_in_does_not(server):
    for user in ("dave", "bob@example.net", "alice.smith"):
        with pytest.raises(Refused):
            Imap(server.imap, user).close()
