"""ManageSieve (RFC 5804), spoken in memory: every command, what is refused and how, and what no client may do."""

import base64

import pytest
from twisted.internet.task import Clock

from imap.managesieve.managesettings import Settings
from imap.managesieve.protocol import factory
from store.accounts import passwords
from store.accounts.loginsettings import Settings as LoginSettings
from store.check.wholecheck import check
from store.net import authentication
from store.opening import make_empty_store, open_store
from store.settings import Settings as StoreSettings
from store.values import Secret
from tests.support.conversations.wire import Wire

PLAIN = base64.b64encode(b"\0alice\0secret")


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    root = tmp_path_factory.mktemp("sieve") / "store"
    make_empty_store(root)
    store = open_store(root, StoreSettings(special_mailboxes=()))
    authentication.attach(store, LoginSettings(slow_first=0))
    yield store
    assert check(store) == []
    store.close()


@pytest.fixture
def store(opened):
    made = passwords.hash_password(Secret(b"secret"), ())
    opened.directory.add("alice", made)
    yield opened
    from store.users import lifecycle
    lifecycle.remove_mail(opened, "alice")
    opened.directory.remove("alice")


class Client:
    """Says lines, and gives the answer; the greeting has been read."""

    def __init__(self, store, tls=None, **settings):
        clock = Clock()
        self.wire = Wire(factory(store, Settings(**settings), clock, tls), clock)
        self.greeting = self.wire.received()

    def say(self, line):
        self.wire.send(line + b"\r\n")
        return self.wire.received()

    def put(self, name, script):
        return self.say(b'PUTSCRIPT "%b" {%d+}\r\n%b' % (name, len(script), script))

    def log_in(self):
        assert self.say(b'AUTHENTICATE "PLAIN" "%b"' % PLAIN) == b'OK "Logged in"\r\n'
        return self


@pytest.fixture
def client(store):
    return Client(store).log_in()


def test_the_greeting_is_the_capabilities(store):
    lines = Client(store, tls=object()).greeting.split(b"\r\n")
    assert lines[-2].startswith(b"OK ")
    names = {line.split(b'"')[1] for line in lines[:-2]}
    assert names == {b"IMPLEMENTATION", b"SIEVE", b"NOTIFY", b"SASL", b"MAXREDIRECTS", b"VERSION", b"STARTTLS",
                     b"UNAUTHENTICATE", b"EXTLISTS"}
    assert b'"EXTLISTS" "tag group"' in lines               # RFC 6134: without the built-in directory more
    assert b'"VERSION" "1.0"' in lines
    assert b'"SASL" "PLAIN' in b"\n".join(lines)


def test_after_starttls_they_come_again_without_it(store):
    client = Client(store, tls=object())
    answer = client.say(b"STARTTLS")
    assert answer.startswith(b'OK "Begin the TLS handshake"\r\n"IMPLEMENTATION"') and b"STARTTLS" not in answer
    assert client.say(b"STARTTLS").startswith(b"NO ")


def test_a_command_that_does_not_end_is_not_kept(store):
    client = Client(store).log_in()
    client.wire.send(b"NOOP")
    for _ in range(100):
        client.wire.send(b" {1000+}\r\n" + b"x" * 1000)
    assert client.wire.received().startswith(b"BYE ") and client.wire.closed


def test_a_login_by_literal_and_in_steps(store):
    client = Client(store)
    assert client.say(b'AUTHENTICATE "plain" {%d+}\r\n%b' % (len(PLAIN), PLAIN)).startswith(b"OK ")
    client = Client(store)
    assert client.say(b'AUTHENTICATE "PLAIN"') == b'""\r\n'
    assert client.say(b'"%b"' % PLAIN).startswith(b"OK ")
    assert b'"OWNER" "alice"' in client.say(b"CAPABILITY")


def test_an_exchange_that_is_cancelled_or_wrong(store):
    client = Client(store)
    client.say(b'AUTHENTICATE "PLAIN"')
    assert client.say(b'"*"').startswith(b"NO ")
    wrong = base64.b64encode(b"\0alice\0wrong")
    assert client.say(b'AUTHENTICATE "PLAIN" "%b"' % wrong).startswith(b"NO ")
    assert client.say(b'AUTHENTICATE "NONE" ""').startswith(b"NO ")
    assert client.say(b"LISTSCRIPTS").startswith(b"NO ")


def test_the_life_of_a_script(client):
    script = b'require "fileinto";\r\nfileinto "x";\r\n'
    assert client.say(b'HAVESPACE "main" %d' % len(script)).startswith(b"OK")
    assert client.put(b"main", script).startswith(b"OK")
    assert client.say(b"LISTSCRIPTS") == b'"main"\r\nOK\r\n'
    assert client.say(b'SETACTIVE "main"').startswith(b"OK")
    assert client.put(b"other", b"keep;").startswith(b"OK")
    assert client.say(b"LISTSCRIPTS") == b'"main" ACTIVE\r\n"other"\r\nOK\r\n'
    assert client.say(b'GETSCRIPT "main"') == b"{%d}\r\n%b\r\nOK\r\n" % (len(script), script)
    assert client.say(b'DELETESCRIPT "main"').startswith(b"NO (ACTIVE) ")
    assert client.say(b'RENAMESCRIPT "main" "other"').startswith(b"NO (ALREADYEXISTS) ")
    assert client.say(b'RENAMESCRIPT "main" "new"').startswith(b"OK")
    assert client.say(b"LISTSCRIPTS") == b'"new" ACTIVE\r\n"other"\r\nOK\r\n'
    assert client.say(b'SETACTIVE ""').startswith(b"OK")
    assert client.say(b'DELETESCRIPT "new"').startswith(b"OK")
    for line in (b'DELETESCRIPT "new"', b'GETSCRIPT "new"', b'SETACTIVE "new"', b'RENAMESCRIPT "new" "x"'):
        assert client.say(line).startswith(b"NO (NONEXISTENT) ")


def test_a_script_that_is_none_is_refused_with_its_place(client):
    assert client.put(b"bad", b"keep;\r\n  fail;") == b'NO "line 2, column 3: there is no command fail"\r\n'
    assert client.say(b"LISTSCRIPTS") == b"OK\r\n"
    assert client.say(b'CHECKSCRIPT "keep"').startswith(b"NO ")
    assert client.say(b'CHECKSCRIPT "keep;"').startswith(b"OK")


def test_sizes(client):
    assert client.say(b'HAVESPACE "x" 4000000000').startswith(b"NO (QUOTA/MAXSIZE) ")
    big = b"#" * (64 << 10)
    assert client.put(b"x", big).startswith(b"NO (QUOTA/MAXSIZE) ")
    assert client.say(b"NOOP").startswith(b"OK")                # nothing of it was taken for commands
    for number in range(32):
        assert client.put(b"s%d" % number, b"keep;").startswith(b"OK")
    assert client.put(b"one more", b"keep;").startswith(b"NO (QUOTA/MAXSCRIPTS) ")
    assert client.say(b'HAVESPACE "one more" 5').startswith(b"NO (QUOTA/MAXSCRIPTS) ")
    assert client.put(b"s3", b"discard;").startswith(b"OK")


def test_noop_gives_back_what_it_is_given(client):
    assert client.say(b'NOOP "a \\"tag\\""') == b'OK (TAG "a \\"tag\\"") "Done"\r\n'


def test_unauthenticate(client):
    client.put(b"x", b"keep;")
    assert client.say(b"UNAUTHENTICATE").startswith(b"OK")
    assert client.say(b"LISTSCRIPTS").startswith(b"NO ")
    client.log_in()
    assert client.say(b"LISTSCRIPTS") == b'"x"\r\nOK\r\n'


@pytest.mark.parametrize("line", [
    b"", b" ", b'"keep"', b"FOO", b"PUTSCRIPT", b'PUTSCRIPT "x" 7', b'PUTSCRIPT x "keep;"', b'GETSCRIPT "a" "b"',
    b'HAVESPACE "x" "y"', b'HAVESPACE "x" 4294967296', b'GETSCRIPT "open', b"GETSCRIPT {x+}", b'PUTSCRIPT "" "keep;"',
    b'PUTSCRIPT "\xff" "keep;"', b'PUTSCRIPT "a\x07b" "keep;"'])
def test_what_makes_no_sense_is_refused_and_the_session_goes_on(client, line):
    assert client.say(line).startswith(b"NO ")
    assert client.say(b"NOOP").startswith(b"OK")


def test_a_literal_that_waits_ends_the_connection(client):
    assert client.say(b'PUTSCRIPT "x" {5}').startswith(b"BYE ")
    assert client.wire.closed


def test_too_much_before_login(store):
    client = Client(store)
    assert client.say(b'AUTHENTICATE "PLAIN" {9000+}').startswith(b"BYE ") and client.wire.closed


def test_names_are_utf8_and_bad_commands_are_counted(client):
    name = "Krankheit – Уход".encode()
    assert client.put(name, b"keep;").startswith(b"OK")
    assert client.say(b"LISTSCRIPTS") == b'"%b"\r\nOK\r\n' % name
    for _ in range(19):
        assert client.say(b"FOO").startswith(b"NO ")
    assert client.say(b"FOO").startswith(b"BYE ")


def test_every_cut_of_the_stream_is_one_conversation(store):
    talk = (b'AUTHENTICATE "PLAIN" "%b"\r\nPUTSCRIPT "cut" {5+}\r\nkeep;\r\nSETACTIVE "cut"\r\nGETSCRIPT "cut"\r\n'
            b"LOGOUT\r\n" % PLAIN)
    whole = Client(store)
    whole.wire.send(talk)
    expected = whole.wire.received()
    assert expected.endswith(b'OK "Goodbye"\r\n') and whole.wire.closed
    one = Client(store)
    for octet in talk:
        one.wire.send(bytes((octet,)))
    assert one.wire.received() == expected


# Who may have scripts (settings of a user or a domain)

def test_who_may_have_no_scripts_is_told_so_and_let_into_nothing(store):
    for rules in ("enabled=no", "own=no"):
        store.directory.change("alice", sieve=rules)
        client = Client(store)
        assert client.say(b'AUTHENTICATE "PLAIN" "%b"' % PLAIN) == b'NO "Sieve is switched off for this user"\r\n'
        assert client.say(b"LISTSCRIPTS").startswith(b"NO ") and b"OWNER" not in client.say(b"CAPABILITY")
        wrong = base64.b64encode(b"\0alice\0wrong")            # who cannot show the password learns nothing of it
        assert b"Sieve" not in client.say(b'AUTHENTICATE "PLAIN" "%b"' % wrong)


def test_who_may_have_none_any_more_is_told_so(client, store):
    client.put(b"main", b"keep;")
    store.directory.domains.set_sieve("example.org", "own=no")
    try:
        assert client.say(b"NOOP").startswith(b"OK")
        assert client.say(b'GETSCRIPT "main"') == b'BYE "Sieve is switched off for this user"\r\n'
        assert client.wire.closed
    finally:
        store.directory.domains.set_sieve("example.org", "")


def test_the_capabilities_are_the_users(client, store):
    assert b" vacation " in client.say(b"CAPABILITY")
    store.directory.change("alice", sieve="redirects=2 vacation=no")
    answer = client.say(b"CAPABILITY")
    assert b'"MAXREDIRECTS" "2"\r\n' in answer and b"vacation" not in answer
    assert b" vacation " in Client(store).greeting and b'"MAXREDIRECTS" "5"' in Client(store).greeting


def test_limits_of_a_user(client, store):
    store.directory.change("alice", sieve="scripts=1 script_size=10")
    assert client.put(b"long", b"#" * 11) == b'NO (QUOTA/MAXSIZE) "The script is too large: 10 at most"\r\n'
    assert client.say(b'HAVESPACE "long" 11').startswith(b"NO (QUOTA/MAXSIZE) ")
    assert client.say(b'CHECKSCRIPT {11+}\r\n' + b"#" * 11).startswith(b"NO (QUOTA/MAXSIZE) ")
    assert client.put(b"one", b"keep;").startswith(b"OK")
    assert client.put(b"two", b"keep;").startswith(b"NO (QUOTA/MAXSCRIPTS) ")
    assert client.say(b'HAVESPACE "two" 5').startswith(b"NO (QUOTA/MAXSCRIPTS) ")
