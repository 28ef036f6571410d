"""What sessions and flushes count, by conversations in memory."""

from base64 import b64encode

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from imap import protocol as imap
from imap.settings import Settings as ImapSettings
from lmtp import protocol as lmtp
from lmtp.settings import Settings as LmtpSettings
from pop3 import protocol as pop3
from pop3.settings import Settings as Pop3Settings
from store.metrics.histograms import SECONDS
from store.metrics.processcounters import Counters
from store.net import sharedsyncs
from store.net.authentication import Authenticator
from tests.support.conversations.wire import Wire


class Servers:
    """One connection to each of the three."""

    def __init__(self, store):
        self.clock = Clock()
        factories = {"imap": imap.factory(store, ImapSettings(plaintext_login=True), self.clock),
                     "pop3": pop3.factory(store, Pop3Settings(plaintext_login=True), self.clock),
                     "lmtp": lmtp.factory(store, LmtpSettings(), self.clock)}
        self.admission = {name: factory.admission for name, factory in factories.items()}
        self.wires = {name: Wire(factory, self.clock) for name, factory in factories.items()}

    def say(self, server, *lines):
        for line in lines:
            self.wires[server].send(line + b"\r\n")
        return self.wires[server].received()

    def end(self):
        for wire in self.wires.values():
            wire.hang_up()


def counts(store, server):
    return {name: sum(times.counts) for name, times in Counters.of(store).of_server(server).items()}


def test_each_command_that_was_answered_is_counted_once(store):
    servers = Servers(store)
    servers.say("imap", b"a LOGIN alice secret", b"b SELECT INBOX", b"c NOOP", b"d NOOP", b"e UID FETCH 1:* (FLAGS)",
                b"f SELECT nowhere", b"g NOSUCH", b"h FETCH", b"i IDLE", b"DONE")
    servers.say("lmtp", b"LHLO x", b"MAIL FROM:<>", b"RCPT TO:<alice>", b"RCPT TO:<bob>", b"DATA", b"x", b".", b"NONE",
                b"QUIT")
    servers.say("pop3", b"USER bob", b"PASS secret", b"STAT", b"RETR 1", b"RETR 9", b"BOGUS", b"QUIT")
    servers.end()
    assert counts(store, "imap") == {b"LOGIN": 1, b"SELECT": 2, b"NOOP": 2, b"UID FETCH": 1}
    assert counts(store, "lmtp") == {b"LHLO": 1, b"MAIL": 1, b"RCPT": 2, b"DATA": 1, b"QUIT": 1}
    assert counts(store, "pop3") == {"USER": 1, "PASS": 1, "STAT": 1, "RETR": 2, "QUIT": 1}
    for server in ("imap", "pop3", "lmtp"):
        for times in Counters.of(store).of_server(server).values():
            assert len(times.counts) == len(SECONDS) + 1


def test_time_is_that_since_the_command_came(store):
    """Also of those that came together: each begins when the one before is answered."""
    servers = Servers(store)
    servers.say("imap", b"a LOGIN alice secret")
    servers.clock.advance(100)                                  # nobody waits
    servers.say("imap", b"b NOOP", b"c AUTHENTICATE PLAIN", b"d NOOP")
    servers.say("pop3", b"USER bob")
    servers.clock.advance(7)
    servers.say("pop3", b"PASS secret")
    servers.say("lmtp", b"LHLO x", b"MAIL FROM:<>", b"RCPT TO:<alice>", b"DATA", b"x")
    servers.clock.advance(5)                                    # the message comes slowly
    servers.say("lmtp", b"y", b".")
    servers.end()
    counters = Counters.of(store)
    assert {each.total for server in counters.commands.values() for each in server.values()} == {0.0}


def test_a_command_that_takes_long(store):
    """In the bucket with the next larger bound, and in the sum."""
    servers = Servers(store)
    assert servers.say("imap", b"a AUTHENTICATE PLAIN").endswith(b"+ \r\n")
    servers.clock.advance(3)
    assert b"a OK" in servers.say("imap", b64encode(b"\0alice\0secret"))
    servers.end()
    timed = Counters.of(store).of_server("imap")[b"AUTHENTICATE"]
    assert timed.total == 3.0 and timed.counts[SECONDS.index(10.0)] == sum(timed.counts) == 1


def test_who_did_how_much(store):
    servers = Servers(store)
    servers.say("imap", b"a LOGIN alice secret", b"b NOOP", b"c LOGOUT")
    servers.say("pop3", b"USER bob", b"PASS secret", b"NOOP")
    servers.end()
    assert {name: weight for name, weight, _ in servers.admission["imap"].busiest.users["operations"].first()} == {
        "alice": 3}
    assert {name: weight for name, weight, _ in servers.admission["pop3"].busiest.users["operations"].first()} == {
        "bob": 3}
    counted = servers.admission["imap"].counted
    assert counted["octets received"] == len(b"a LOGIN alice secret\r\nb NOOP\r\nc LOGOUT\r\n")
    (_, octets, _), = servers.admission["imap"].busiest.users["octets"].first()
    assert octets == counted["octets received"] + counted["octets sent"]


def test_why_logins_failed(store):
    servers = Servers(store)
    servers.say("imap", b"a LOGIN alice wrong", b"b LOGIN nobody wrong", b"c AUTHENTICATE NO-SUCH")
    servers.say("pop3", b"APOP alice x")
    servers.end()
    assert Authenticator.of(store).turned.counted == {
        ("imap", "login"): 2, ("imap", "invalid"): 1, ("pop", "invalid"): 1}


def test_how_many_shared_a_flush(store):
    """The flush that is under way takes nobody in; who comes meanwhile shares the next one."""
    class Threads:
        def __init__(self):
            self.begun = []

        def run(self, kind, work):
            self.begun.append(Deferred())
            return self.begun[-1]

    threads = Threads()
    partition = store.partitions["primary"]
    syncs = sharedsyncs.SharedSyncs(store, threads, None)
    syncs.log(partition)
    for _ in range(3):
        syncs.log(partition)
    for begun in threads.begun:             # the second is begun when the first has ended
        begun.callback(None)
    sharing = Counters.of(store).sharing["primary"]
    assert sharing.counts[:3] == [1, 0, 1] and sharing.total == 4      # 1; 3 are at most 4
    assert sum(Counters.of(store).flushes["primary"].counts) == 2
