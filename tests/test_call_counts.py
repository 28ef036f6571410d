"""What a frequent command costs is the number of functions that it calls: the profile is flat. They are counted here,
exactly and on any machine, and may only become fewer. `tools/bench commands` says what that is in microseconds.

So are the modules that a walk through the code enters, which whoever reads it must have open: `MODULES`.

Counted are our own functions and those that attrs has made for us; not those of Twisted, numpy and Python, of which
another version may have more. Whoever makes a command cheaper writes the lower number down.
"""

import io
import logging
import math
import sys
import tempfile
from pathlib import Path

import pytest
from twisted.internet.task import Clock

from imap import protocol as imap
from imap.settings import Settings as ImapSettings
from lmtp import protocol as lmtp
from lmtp.settings import Settings as LmtpSettings
from mboxlist.names import MailboxName
from pop3 import protocol as pop3
from pop3.settings import Settings as Pop3Settings
from store.accounts.loginsettings import Settings as LoginSettings
from store.check.wholecheck import check
from store.deliverylog import FileDeliveryLog
from store.events.receivers import Receiver, Receivers
from store.filtering import userscripts
from store.mailboxes import firstuse, namespace
from store.mailboxes.copymessages import copy_messages
from store.net import authentication
from tests.conftest import MEMORY
from tests.support import ROOT
from tests.support.conversations.wire import Wire
from tests.support.stores.stores import HASH, deliver, make_store
from tools.server.process import logs

MESSAGES = 300
LARGER = {1_000: "carol", 100_000: "dave"}      # whose INBOX has so many: what concerns one message costs no more there
FILING = 50             # users whose scripts have `TEN_RULES`
READY_FILES = 12        # times as many files as a server makes ready at a time
A_FEW = 6               # calls that one version of Python makes and another does not
MESSAGE = b"From: a@example.org\r\nTo: b@example.org\r\nSubject: %d\r\nMessage-ID: <%d@example.org>\r\n\r\n" + (
    b"The text of this message.\r\n" * 290)

#: What people have in their scripts: lists, colleagues, what programs send. One of these messages goes to a mailbox.
TEN_RULES = rb"""
require ["fileinto", "envelope", "imap4flags"];
if header :contains "list-id" "<dev.example.org>" { fileinto "Lists"; stop; }
if anyof (header :contains "list-id" "announce", header :contains ["to", "cc"] "announce@") { fileinto "Lists"; stop; }
if address :is "from" ["boss@example.org", "chief@example.org"] { addflag "\\Flagged"; }
if allof (address :domain "from" "corp.example", not header :contains "subject" "news") { fileinto "Work"; stop; }
if header :matches "subject" ["*[ticket #*", "*invoice*"] { fileinto "Tickets"; stop; }
if header :contains "x-spam-flag" "yes" { fileinto "Junk"; stop; }
if envelope :domain "from" "shop.example" { addflag "shopping"; }
if size :over 5M { fileinto "Large"; stop; }
if address :localpart :contains ["to", "cc"] "sales" { fileinto "Work"; stop; }
if header :contains "subject" "7" { fileinto "Sevens"; stop; }
"""

COUNTS = {
    "a session: LOGIN, SELECT, LOGOUT": 452,
    "NOOP": 23,
    "UID STORE": 95,
    "UID STORE of a keyword": 224,
    "UID FETCH BODY.PEEK[]": 41,
    "UID FETCH (FLAGS ENVELOPE)": 56,
    "FETCH 1:250 (ENVELOPE BODYSTRUCTURE)": 63,
    "FETCH 1:250 BODY.PEEK[HEADER.FIELDS (FROM SUBJECT)]": 58,
    "UID SEARCH UNSEEN": 27,
    "SELECT": 77,
    "STATUS": 111,
    "APPEND": 263,
    "LMTP": 179,
    "LMTP to one in IDLE": 258,
    "LMTP to one with ten rules": 307,
    "LMTP to fifty with ten rules": 2759,
    "RETR": 63,
    "UID STORE, a receiver hears it": 105,
    "LMTP, a receiver hears it": 186,
    "LMTP, and its line as JSON": 188,
    "a session, and its lines as JSON": 460,
    "LMTP, and what is noted of it": 193,
}
MODULES = {
    "UID FETCH BODY.PEEK[]": 15,
    "LMTP": 43,             # from MAIL to 250
    # From the first octet of the message to 250: its file, its records, the answers and news; and the list, which knows
    # whether a script runs: that is asked when all of it has come, and was one of those before the first octet.
    "LMTP octets": 36,
}
#: What is not on the way from the octets to the message file and the index, or has one front door that is read as one:
#: the database engine, what is found out about the text of a message, the transport, replies, the delivery log, news to
#: other sessions.
BESIDE = ("mboxlist/engine/", "store/message/", "store/net/stream.py", "lmtp/replies.py", "lmtp/noting.py",
          "store/deliverylog.py", "store/changes.py", "store/partition/views.py")
OCTETS_TO_INDEX = 20
WITHIN_LARGER = {
    "UID STORE": 96,
    "UID FETCH BODY.PEEK[]": 41,
    "SELECT": 80,
    "APPEND": 265,
}


class Counted:
    """The functions that are called within, and the modules of ours that these are in."""

    def __init__(self) -> None:
        self.calls = 0
        self.modules: set[str] = set()

    def __enter__(self) -> "Counted":
        sys.setprofile(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _called(self, frame, event, argument) -> None:
        if event == "call":
            file = frame.f_code.co_filename
            if file.startswith(tuple(f"{ROOT}/{room}/" for room in ("imap", "lmtp", "pop3", "store", "mboxlist"))):
                self.calls += 1
                self.modules.add(file.removeprefix(f"{ROOT}/"))
            else:
                self.calls += file.startswith("<attrs generated")


@pytest.fixture(scope="module")
def sends():
    """What sends each command for the n-th time, and gives the answer."""
    with tempfile.TemporaryDirectory(prefix="onecopy-", dir=MEMORY if MEMORY.is_dir() else None) as folder:
        store = make_store(Path(folder) / "store", ("alice", "bob", "erin", *LARGER.values()))
        authentication.attach(store, LoginSettings())
        for partition in store.partitions.values():
            partition._roomy_until = math.inf       # else a slow machine looks for room during each command
            for _ in range(READY_FILES):            # as in a server
                partition.serials.make_ready()
        for number in range(MESSAGES):
            deliver(store, MESSAGE % (number, number), "user/alice/INBOX")
        clock = Clock()
        client = Wire(imap.factory(store, ImapSettings(plaintext_login=True), clock), clock)
        relay = Wire(lmtp.factory(store, LmtpSettings(), clock), clock)
        idler = Wire(imap.factory(store, ImapSettings(plaintext_login=True), clock), clock)
        maildrop = Wire(pop3.factory(store, Pop3Settings(plaintext_login=True), clock), clock)

        def ask(wire: Wire, *parts: bytes) -> bytes:
            for part in parts:
                wire.send(part)
            return wire.received()

        ask(relay, b"LHLO example.org\r\n")
        for number in range(5):
            deliver(store, MESSAGE % (number, 5000 + number), "user/bob/INBOX")
        ask(maildrop, b"USER bob\r\nPASS secret\r\n")
        assert b"x OK" in ask(client, b"x LOGIN alice secret\r\nx SELECT INBOX\r\n")

        assert b"+ " in ask(idler, b"x LOGIN erin secret\r\nx SELECT INBOX\r\nx IDLE\r\n")

        def deliver_to_idler(n: int) -> bytes:
            answer = ask(relay, b"MAIL FROM:<a@example.org>\r\nRCPT TO:<erin>\r\nDATA\r\n", message(n, 3) + b".\r\n")
            assert b"EXISTS" in idler.received()
            return answer

        filing = ["finn", *(f"u{number}" for number in range(FILING - 1))]
        for user in filing:
            account = store.directory.add(user, HASH)
            firstuse.inbox(store, account)
            namespace.create_mailbox(store, MailboxName(user, "Sevens"))
            userscripts.put(store, account, "main", TEN_RULES)
            userscripts.activate(store, user, "main")

        def deliver_by_script(n: int, users: int, series: int) -> bytes:
            named = b"".join(b"RCPT TO:<%b>\r\n" % user.encode() for user in filing[:users])
            return ask(relay, b"MAIL FROM:<a@example.org>\r\n%bDATA\r\n" % named, message(n, series) + b".\r\n")

        def begin_delivery() -> None:
            assert b"354" in ask(relay, b"MAIL FROM:<a@example.org>\r\nRCPT TO:<bob>\r\nDATA\r\n")

        def finish_delivery(n: int) -> bytes:
            return ask(relay, message(n, 4) + b".\r\n")

        finish_delivery.before = begin_delivery

        larger = {}
        for size, user in LARGER.items():
            entry = store.entry(MailboxName(user, "INBOX"))
            deliver(store, MESSAGE % (0, 6000 + size), str(entry.name))
            while missing := size - store.status(entry).messages:
                copy_messages(store, entry, entry, store.open_mailbox(entry).uids[:missing])
            larger[size] = Wire(imap.factory(store, ImapSettings(plaintext_login=True), clock), clock)
            assert b"x OK" in ask(larger[size], b"x LOGIN %b secret\r\nx SELECT INBOX\r\n" % user.encode())

        def session(_: int) -> bytes:
            wire = Wire(imap.factory(store, ImapSettings(plaintext_login=True), clock), clock)
            answer = ask(wire, b"x LOGIN alice secret\r\n", b"x SELECT INBOX\r\n", b"x LOGOUT\r\n")
            assert answer.count(b"x OK") == 3
            return answer

        def imap_command(text: bytes, wire: Wire = client):
            return lambda n: ask(wire, b"x " + (text % (n % MESSAGES + 1) if b"%d" in text else text) + b"\r\n")

        def appending(wire: Wire, series: int):
            return lambda n: ask(wire, b"x APPEND INBOX {%d+}\r\n%b\r\n" % (
                len(message(n, series)), message(n, series)))

        def message(n: int, series: int) -> bytes:
            return MESSAGE % (n, series * 1_000_000 + n)

        hears_all, nobody = Receivers.of([Receiver("all")]), Receivers()

        def heard(send):
            """All that happens meanwhile is an event."""
            def heard_send(n: int) -> bytes:
                store.recorder.receivers = hears_all
                try:
                    return send(n)
                finally:
                    store.recorder.receivers = nobody
            return heard_send

        def logged(send):
            """With the log of a server; how lines are written is no part of it."""
            def logged_send(n: int) -> bytes:
                root = logging.getLogger()
                handlers, level, output = root.handlers[:], root.level, logs.Output(io.StringIO())
                output.setFormatter(logs.JsonLine())
                root.handlers[:] = [output]
                root.setLevel(logging.INFO)
                try:
                    with logs.gathering(clock):
                        return send(n)
                finally:
                    root.handlers[:] = handlers
                    root.setLevel(level)
            return logged_send

        def noted(send):
            """By a server's delivery log, and written by that."""
            def noted_send(n: int) -> bytes:
                before, store.delivery_log = store.delivery_log, delivery_log
                try:
                    answer = send(n)
                    delivery_log.write()
                    return answer
                finally:
                    store.delivery_log = before
            return noted_send

        delivery_log = FileDeliveryLog(store.root, "lmtp-1", lambda: (1 << 20, 86400))

        def delivering(series: int):
            return lambda n: ask(relay, b"MAIL FROM:<a@example.org>\r\nRCPT TO:<bob>\r\nDATA\r\n",
                                 message(n, series) + b".\r\n")

        yield {
            "a session: LOGIN, SELECT, LOGOUT": session,
            "NOOP": imap_command(b"NOOP"),
            "UID STORE": imap_command(b"UID STORE %d +FLAGS (\\Seen)"),
            "UID STORE of a keyword": imap_command(b"UID STORE %d +FLAGS (Work)"),
            "UID FETCH BODY.PEEK[]": imap_command(b"UID FETCH %d BODY.PEEK[]"),
            "UID FETCH (FLAGS ENVELOPE)": imap_command(b"UID FETCH %d (FLAGS ENVELOPE)"),
            "FETCH 1:250 (ENVELOPE BODYSTRUCTURE)": imap_command(b"FETCH 1:250 (ENVELOPE BODYSTRUCTURE)"),
            "FETCH 1:250 BODY.PEEK[HEADER.FIELDS (FROM SUBJECT)]": imap_command(
                b"FETCH 1:250 BODY.PEEK[HEADER.FIELDS (FROM SUBJECT)]"),
            "UID SEARCH UNSEEN": imap_command(b"UID SEARCH UNSEEN"),
            "SELECT": imap_command(b"SELECT INBOX"),
            "STATUS": imap_command(b"STATUS INBOX (MESSAGES UNSEEN UIDNEXT)"),
            "APPEND": appending(client, 1),
            "LMTP": delivering(2),
            "LMTP octets": finish_delivery,
            "LMTP to one in IDLE": deliver_to_idler,
            "LMTP to one with ten rules": lambda n: deliver_by_script(n, 1, 5),
            "LMTP to fifty with ten rules": lambda n: deliver_by_script(n, FILING, 6),
            "RETR": lambda n: ask(maildrop, b"RETR %d\r\n" % (n % 5 + 1)),
            "UID STORE, a receiver hears it": heard(imap_command(b"UID STORE %d +FLAGS (\\Flagged)")),
            "LMTP, a receiver hears it": heard(delivering(7)),
            "LMTP, and its line as JSON": logged(delivering(8)),
            "a session, and its lines as JSON": logged(session),
            "LMTP, and what is noted of it": noted(delivering(9)),
        } | {(size, command): send for size, wire in larger.items() for command, send in {
            "UID STORE": imap_command(b"UID STORE %d +FLAGS (\\Seen)", wire),
            "UID FETCH BODY.PEEK[]": imap_command(b"UID FETCH %d BODY.PEEK[]", wire),
            "SELECT": imap_command(b"SELECT INBOX", wire),
            "APPEND": appending(wire, 10 + size),
        }.items()}
        for wire in (client, relay, idler, maildrop, *larger.values()):
            wire.hang_up()
        store.recorder.receivers = hears_all            # else what waits is for nobody
        assert check(store) == []
        store.close()


@pytest.mark.parametrize("command", COUNTS)
def test_a_command_calls_no_more_functions_than_before(sends, command):
    assert counted(sends[command]).calls <= COUNTS[command] + A_FEW


@pytest.mark.parametrize("command", MODULES)
def test_a_walk_enters_no_more_modules_than_before(sends, command):
    """FETCH BODY[] from the command to its answer; mail from MAIL, and from its first octet, to 250. Nothing of what a
    start mends is among them."""
    modules = counted(sends[command], first=100).modules        # what no test before has delivered
    assert len(modules) <= MODULES[command], sorted(modules)
    assert not any(module.startswith(("store/recovery/", "store/rebuild/")) for module in modules)


def test_from_octets_to_file_and_index_there_are_few_modules(sends):
    way = {module for module in counted(sends["LMTP octets"], first=200).modules if not module.startswith(BESIDE)}
    assert len(way) <= OCTETS_TO_INDEX, sorted(way)


@pytest.mark.parametrize("size", LARGER)
@pytest.mark.parametrize("command", WITHIN_LARGER)
def test_in_a_large_mailbox_a_command_calls_no_more_functions(sends, command, size):
    assert counted(sends[size, command]).calls <= WITHIN_LARGER[command] + A_FEW


def counted(send, first: int = 0) -> Counted:
    """The fewest functions that are called when the command is sent again and again: the first fill what is
    remembered."""
    tries = []
    for number in range(first, first + 6):
        getattr(send, "before", lambda: None)()         # is not counted
        with Counted() as trial:
            answer = send(number)
        assert not any(word in answer for word in (b"x NO", b"x BAD", b"-ERR", b"\n4")), answer
        tries.append(trial)
    return min(tries, key=lambda trial: trial.calls)
