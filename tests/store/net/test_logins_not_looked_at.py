"""A refused login of which the directory is not asked is one line of the log, too: address, user where it is known, and
reason; fail2ban finds those that are attacks (issue 22, section 3)."""

import logging
import re
from base64 import b64encode

import pytest
from twisted.internet.task import Clock

from imap import protocol as imap
from imap.settings import Settings as ImapSettings
from lmtp import protocol as lmtp
from lmtp.settings import Settings as LmtpSettings
from pop3 import protocol as pop3
from pop3.settings import Settings as Pop3Settings
from store.accounts.loginsettings import Settings as LoginSettings
from store.accounts.rejectedlogins import LINES
from store.net import authentication
from tests.store.accounts.test_refusallines import FORM, bans
from tests.support.conversations.wire import Wire
from tools.server.process.logs import Line

PEER = "192.0.2.7"
CLEAR = "passwords are taken only under TLS"
ATTACK, NONE = "invalid", "cancelled"
PLAIN = b64encode(b"\0alice\0secret")


@pytest.fixture
def told(caplog):
    caplog.set_level(logging.WARNING, "refused")

    def lines():
        found = [record for record in caplog.records if record.name == "refused"]
        caplog.clear()
        return [Line().format(record) for record in found]
    return lines


def connect(store, protocol, *, private=True, **settings):
    """A connection from elsewhere; `private`: passwords are taken on it."""
    clock = Clock()
    authentication.attach(store, LoginSettings(slow_first=0))
    made = {"imap": lambda: imap.factory(store, ImapSettings(plaintext_login=private, **settings), clock),
            "pop": lambda: pop3.factory(store, Pop3Settings(plaintext_login=private, **settings), clock),
            "lmtp": lambda: lmtp.factory(store, LmtpSettings(**settings), clock)}[protocol]()
    wire = Wire(made, clock, PEER if protocol != "lmtp" else "127.0.0.1")
    wire.received()
    return wire


def facts(line):
    return FORM.search(line).group(1, 2, 3, 4, 5)


CASES = [
    # protocol, private, what is sent, kind, user, words of the reason
    ("imap", False, b"a LOGIN alice secret\r\n", ATTACK, "alice", CLEAR),
    ("imap", False, b"a AUTHENTICATE PLAIN " + PLAIN + b"\r\n", ATTACK, "", CLEAR),
    ("imap", True, b"a AUTHENTICATE CRAM-MD5\r\n", ATTACK, "", "CRAM-MD5 is not offered"),
    ("imap", True, b"a AUTHENTICATE PLAIN " + b64encode(b"junk") + b"\r\n", ATTACK, "", "not a message of PLAIN"),
    ("imap", True, b"a AUTHENTICATE PLAIN !!!!\r\n", ATTACK, "", "base64"),
    ("imap", True, b"a AUTHENTICATE PLAIN\r\n!!!!\r\n", ATTACK, "", "base64"),
    ("imap", True, b"a AUTHENTICATE PLAIN\r\n" + b"A" * 16_000 + b"\r\n", ATTACK, "", "not a message of PLAIN"),
    ("imap", True, b"a AUTHENTICATE LOGIN\r\n\r\n\r\n", ATTACK, "", "name and a password"),
    ("imap", True, b"a AUTHENTICATE PLAIN\r\n*\r\n", NONE, "", "given up"),
    ("imap", True, b"a LOGIN alice\r\n", ATTACK, "", ""),
    ("pop", False, b"USER alice\r\n", ATTACK, "alice", CLEAR),
    ("pop", False, b"AUTH PLAIN " + PLAIN + b"\r\n", ATTACK, "", CLEAR),
    ("pop", True, b"AUTH NTLM\r\n", ATTACK, "", "NTLM is not offered"),
    ("pop", True, b"AUTH PLAIN " + b64encode(b"junk") + b"\r\n", ATTACK, "", "not a message of PLAIN"),
    ("pop", True, b"AUTH PLAIN !!!!\r\n", ATTACK, "", "base64"),
    ("pop", True, b"AUTH PLAIN\r\n!!!!\r\n", ATTACK, "", "base64"),
    ("pop", True, b"AUTH PLAIN\r\n*\r\n", NONE, "", "cancelled"),
    ("pop", True, b"PASS secret\r\n", ATTACK, "", "USER comes first"),
    ("pop", True, b"USER\r\n", ATTACK, "", "a name is needed"),
    ("pop", True, b"APOP alice c4c9334bac560ecc979e58001b3e22fb\r\n", ATTACK, "", "APOP is not offered"),
    ("lmtp", True, b"LHLO c\r\nAUTH PLAIN " + PLAIN + b"\r\n", ATTACK, "", "not offered"),
    ("lmtp", True, b"LHLO c\r\nAUTH\r\n", ATTACK, "", "AUTH mechanism"),
]


@pytest.mark.parametrize(("protocol", "private", "octets", "kind", "user", "reason"), CASES, ids=range(len(CASES)))
def test_it_is_one_line(store, told, tmp_path, protocol, private, octets, kind, user, reason):
    wire = connect(store, protocol, private=private)
    wire.send(octets)
    line, = told()
    assert facts(line) == (kind, "127.0.0.1" if protocol == "lmtp" else PEER, user, protocol, "1")
    assert reason.lower() in re.search(r'reason="(.*)"(?: session=\S+)?$', line)[1].lower()
    assert "secret" not in line


def test_a_response_that_is_too_long_is_one_line_beside_that_of_the_limit(store, told):
    """It is also more than may be sent before login."""
    connect(store, "imap", private=True).send(b"a AUTHENTICATE PLAIN\r\n" + b"A" * 66_000 + b"\r\n")
    login, limit = told()
    assert facts(login)[0] == ATTACK and "too long" in login
    assert facts(limit)[0] == "limit" and "before login" in limit


@pytest.mark.parametrize(("octets", "kind"), [
    (b"AUTH CRAM-MD5\r\n", ATTACK), (b"AUTH PLAIN !!!!\r\n", ATTACK), (b"AUTH PLAIN\r\n!!!!\r\n", ATTACK),
    (b"AUTH PLAIN " + b64encode(b"junk") + b"\r\n", ATTACK), (b"AUTH PLAIN\r\n*\r\n", NONE)])
def test_a_relay_that_logs_in(store, told, octets, kind):
    wire = connect(store, "lmtp", auth_users=("alice",), networks=("10.0.0.1",))
    wire.protocol.transport.startTLS(None)
    wire.send(b"LHLO c\r\n")
    told()
    wire.send(octets)
    assert [facts(line)[0] for line in told()] == [kind], wire.received()


@pytest.mark.parametrize(("protocol", "guess"), [("imap", b"a LOGIN alice guess%d\r\n"),
                                                 ("pop", b"USER alice\r\nPASS guess%d\r\n")])
def test_who_has_tried_too_often_is_told_of(store, told, protocol, guess):
    wire = connect(store, protocol, login_attempts=3)
    for number in range(3):
        wire.send(guess % number)
    assert wire.closed
    found = [facts(line) for line in told()]
    assert [kind for kind, *_ in found] == ["login", "login", "limit", "login"] or \
        [kind for kind, *_ in found] == ["login", "login", "login", "limit"]


def test_fail2ban_bans_for_those_that_are_attacks(store, told, tmp_path):
    lines = []
    for protocol, private, octets, *_ in CASES:
        if protocol != "lmtp":
            connect(store, protocol, private=private).send(octets)
            lines += told()
    assert len(lines) == 20 and len(bans(tmp_path, lines)) == len([case for case in CASES if case[3] == ATTACK]) - 2


def test_a_flood_is_counted_and_not_written(store, told):
    """Nobody fills the log with logins that cost nothing."""
    wire = connect(store, "imap", bad_commands=10_000)
    now = [100.0]
    turned = authentication.Authenticator.of(store).turned
    turned.clock = lambda: now[0]
    for _ in range(500):
        wire.send(b"a AUTHENTICATE CRAM-MD5\r\n")
    lines = told()
    assert len(lines) == LINES + 1
    now[0] += 2
    wire.send(b"a AUTHENTICATE CRAM-MD5\r\n")
    lines += told()
    assert sum(int(facts(line)[4]) for line in lines) == 501


def test_so_is_a_flood_of_acts_for_which_a_right_is_lacking(store, told):
    """Whoever has logged in can try as fast as answers come, with another name each time."""
    wire, now = connect(store, "imap"), [100.0]
    turned = authentication.Authenticator.of(store).turned
    turned.clock = lambda: now[0]
    wire.send(b"a LOGIN bob secret\r\n")
    for number in range(500):
        wire.send(b"b SETQUOTA user%d (STORAGE 1)\r\n" % number)
    assert wire.received().count(b"b NO [NOPERM]") == 500
    lines = told()
    assert [facts(line) for line in lines] == [("right", PEER, "bob", "imap", "1")] * LINES
    turned.tell_counted()
    assert told() == []                         # it has not been a second yet
    now[0] += 2
    turned.tell_counted()                       # though nothing more is refused
    line, = told()
    assert facts(line) == ("right", PEER, "bob", "imap", str(500 - LINES)) and "more of these" in line
    wire.send(b"b SETQUOTA again (STORAGE 1)\r\n")
    assert [facts(line)[4] for line in told()] == ["1"]
