"""Users whose names are not ASCII: they log in, get mail, and share mailboxes (RFC 4616 §2, RFC 3501 §5.1.3)."""

from base64 import b64encode

import pytest

from imap.wire.utf7 import encode
from store.mailboxes import firstuse, namespace
from store.mailboxes.authorization import set_acl
from store.users import lifecycle
from tests.support.conversations.scripts import Player
from tests.support.stores.stores import HASH

MESSAGE = b"Subject: x\r\n\r\nx\r\n"


@pytest.fixture
def joerg(place):
    """jörg and jörg@bücher.example, each with an INBOX; the user ids."""
    users = [place.store.directory.add(address, HASH) for address in ("jörg", "jörg@bücher.example")]
    for user in users:
        firstuse.inbox(place.store, user)
    yield [user.user for user in users]
    for user in users:
        lifecycle.remove_mail(place.store, user.user)
        place.store.directory.remove(user.user)


def plain(user):
    return b64encode(b"\0" + user.encode() + b"\0secret").decode()


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("login", [
    "C: a1 AUTHENTICATE PLAIN {plain}\nS: a1 OK ...",
    "C: a1 LOGIN {{{octets}}}\nS: + ...\nC: {user} secret\nS: a1 OK ...",
])
@pytest.mark.parametrize("written", [str, str.upper, lambda name: name.replace("ö", "o\u0308")])
def test_such_a_user_logs_in_and_has_mail(place, joerg, which, login, written):
    place.deliver(f"user/{joerg[which]}/INBOX", MESSAGE)
    name = written(("jörg", "jörg@bücher.example")[which])
    Player(place).play("S: * OK ...\n" + login.format(plain=plain(name), user=name, octets=len(name.encode())) + r"""
C: a2 STATUS INBOX (MESSAGES)
S: * STATUS INBOX (MESSAGES 1)
S: a2 OK ...
""")


def test_its_mailboxes_are_listed_and_read_by_others(place, joerg):
    r"""RFC 3501 §5.1.3: ö is U+00F6, in UTF-16 and base64 APY."""
    one, two = joerg
    assert two == "jörg@xn--bcher-kva.example"
    for owner in joerg:
        namespace.create_mailbox(place.store, place.name(f"user/{owner}/x"))
        set_acl(place.store, place.name(f"user/{owner}/x"), "alice", "lr")
        place.deliver(f"user/{owner}/x", MESSAGE)
    Player(place).play(r"""
have: C is logged in
C: a1 LIST "" "user/%/%"
S: * LIST (\HasNoChildren) "/" user/j&APY-rg/x
S: * LIST (\HasNoChildren) "/" user/j&APY-rg@xn--bcher-kva.example/x
S: a1 OK ...
C: a2 STATUS user/j&APY-rg/x (MESSAGES)
S: * STATUS user/j&APY-rg/x (MESSAGES 1)
S: a2 OK ...
C: a3 EXAMINE user/j&APY-rg@xn--bcher-kva.example/x
S: ...
S: a3 OK ...
C: a4 LIST "" user/j&APY-rg/%
S: * LIST (\HasNoChildren) "/" user/j&APY-rg/x
S: a4 OK ...
""")
    assert encode(f"user/{one}/x") == b"user/j&APY-rg/x"


def test_it_sees_its_own_without_a_prefix_and_those_of_others(place, joerg):
    namespace.create_mailbox(place.store, place.name("user/jörg/Bücher"))
    set_acl(place.store, place.name("user/alice/INBOX"), "JO\u0308RG", "lr")
    Player(place).play(f"S: * OK ...\nC: a1 AUTHENTICATE PLAIN {plain('jörg')}\n" + r"""S: a1 OK ...
C: a2 LIST "" "*"
S: * LIST (\HasNoChildren) "/" INBOX
S: * LIST (\HasNoChildren) "/" B&APw-cher
S: * LIST (\Noselect \HasChildren) "/" user
S: * LIST (\Noselect \HasChildren) "/" user/alice
S: * LIST (\HasNoChildren) "/" user/alice/INBOX
S: a2 OK ...
""")
    set_acl(place.store, place.name("user/alice/INBOX"), "jörg", "")


def test_an_alias_does_not_log_in(place):
    place.store.directory.change("alice", aliases=["jörg"])
    Player(place).play(f"""S: * OK ...
C: a1 LOGIN alice secret
S: a1 OK ...
C2: a1 AUTHENTICATE PLAIN {plain("jörg")}
S2: * OK ...
S2: a1 NO [AUTHENTICATIONFAILED] ...
""")


def test_such_a_user_is_given_rights(place, joerg):
    """RFC 4314 §2: an identifier is UTF-8; one form is kept (§3.3), and LISTRIGHTS answers what was sent (§3.4)."""
    wire = place.connect()
    wire.send(b"a0 LOGIN alice secret\r\n")
    wire.received()

    def answer(tag, command):
        wire.send(b"%s %s\r\n" % (tag, command))
        return wire.received()

    upper = "JÖRG".encode()
    assert answer(b"a1", b"SETACL INBOX {%d+}\r\n%s lr" % (len(upper), upper)).startswith(b"a1 OK")
    assert answer(b"a2", b"GETACL INBOX").startswith(
        b"* ACL INBOX alice lrswipkxteacd {5}\r\n" + "jörg lr\r\n".encode())
    assert answer(b"a3", b"LISTRIGHTS INBOX {%d+}\r\n%s" % (len(upper), upper)).startswith(
        b"* LISTRIGHTS INBOX {5}\r\n" + upper + b' "" l r s w i p k x t e a c d\r\n')
    assert answer(b"a4", b"DELETEACL INBOX {5+}\r\n" + "jörg".encode()).startswith(b"a4 OK")
    assert answer(b"a5", b"GETACL INBOX").startswith(b"* ACL INBOX alice lrswipkxteacd\r\n")
    assert answer(b"a6", b"SETACL INBOX {1+}\r\n\xff lr").startswith(b"a6 BAD")
