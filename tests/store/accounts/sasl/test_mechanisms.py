"""The mechanisms as state machines: the examples of the RFCs, malformed messages, and messages that are cut off."""

import base64
import hashlib
import hmac
import json

import pytest

from store.accounts import mechanisms
from store.accounts.base import Account, Status
from store.accounts.mechanisms import (
    Challenge,
    Channel,
    CheckPassword,
    CheckToken,
    FindKeys,
    FindNamed,
    Malformed,
    Proved,
    Turn,
    Wanted,
)
from store.accounts.sasl import scram
from store.accounts.sasl.saslprep import saslprep
from store.accounts.sasl.scram import Keys
from store.errors import Problem, StoreError
from tests.store.accounts.sasl import junk

ALICE = Account("alice", "primary")
NOTHING, ASKED_FOR = Channel(), Wanted()
BAD_LOGIN = StoreError(Problem.BAD_LOGIN)


class Client:
    """Drives an exchange: says responses, and answers the directory's questions as `answers` has it."""

    def __init__(self, mechanism, channel=NOTHING, wanted=ASKED_FOR, **answers):
        self.exchange = mechanisms.begin(mechanism, channel, wanted)
        self.answers = answers
        self.asked = []
        self.proved = None
        self.step = next(self.exchange)

    def say(self, response):
        """The next challenge; None when it is over."""
        assert isinstance(self.step, Challenge)
        try:
            self.step = self.exchange.send(response)
            while not isinstance(self.step, Challenge):
                self.asked.append(self.step)
                answer = None if isinstance(self.step, Turn) else self.answers[type(self.step).__name__]
                if isinstance(answer, StoreError):
                    self.step = self.exchange.throw(answer)
                else:
                    self.step = self.exchange.send(answer)
        except StopIteration as end:
            self.proved = end.value
            return None
        return self.step.octets


# The examples of the RFCs: mechanism, password, salt, nonce of the server, and what is said in turn

RFC_5802_5 = ("SCRAM-SHA-1", "pencil", "QSXCR+Q6sek8bf92", "3rfcNHYJY1ZVvWVs7j", [
    b"n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL",
    b"r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096",
    b"c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
    b"v=rmF9pqV8S7suAoZWja4dJRkFsKQ="])
RFC_7677_3 = ("SCRAM-SHA-256", "pencil", "W22ZaJ0SNY7soEsUEjb6gQ==", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0", [
    b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
    b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="])


@pytest.fixture(params=[RFC_5802_5, RFC_7677_3], ids=["RFC 5802", "RFC 7677"])
def example(request, faults):
    """The client, and what is said; our nonce is that of the example."""
    mechanism, password, salt, nonce, said = request.param
    keys = Keys.from_password(mechanism, password, base64.b64decode(salt), 4096)
    faults.around(scram, "encoded", lambda real, octets: nonce if octets == b"nonce" else real(octets))
    faults.around(mechanisms.os, "urandom", lambda *_: b"nonce")
    return Client(mechanism, FindKeys=(keys, ALICE)), said


def test_the_examples_of_scram(example):
    client, (first, server_first, final, server_final) = example
    assert client.step == Challenge(b"")
    assert client.say(first) == server_first
    assert client.asked == [FindKeys("user", client.asked[0].mechanism)]
    assert client.say(final) == server_final
    assert client.asked[1:] == [Turn("user")]       # guesses wait for their turn, before the proof is looked at
    assert client.say(b"") is None
    assert client.proved == Proved(ALICE, "")


def test_the_examples_cut_off_at_every_octet(example):
    client, (first, _, final, _) = example
    keys = client.answers["FindKeys"][0]
    for end in range(len(first)):
        cut = Client(keys.mechanism, FindKeys=(keys, ALICE))
        try:
            cut.say(first[:end])
        except Malformed:
            continue
        # what is left is whole, with another name or nonce: then the proof does not fit
        assert first[:end].startswith(b"n,,n=user,r=")
        with pytest.raises((StoreError, Malformed)):
            cut.say(final)
    for end in range(len(final)):
        cut = Client(keys.mechanism, FindKeys=(keys, ALICE))
        cut.say(first)
        with pytest.raises((StoreError, Malformed)):
            cut.say(final[:end])
        assert cut.proved is None


def test_the_examples_with_any_octet_changed(example):
    """Nothing but what the client has said proves it."""
    client, (first, _, final, _) = example
    keys = client.answers["FindKeys"][0]
    for at in range(len(final)):
        for octet in (final[at] ^ 1, final[at] ^ 0x20, 0xff):
            if bytes([octet]) in (b"=",) or final[at:at + 1] == b"=":
                continue
            other = Client(keys.mechanism, FindKeys=(keys, ALICE))
            other.say(first)
            changed = final[:at] + bytes([octet]) + final[at + 1:]
            try:
                other.say(changed)
            except (Malformed, StoreError):
                continue
            # base64 has bits to spare before its "=": the same octets
            assert base64.b64decode(changed.split(b"p=")[1]) == base64.b64decode(final.split(b"p=")[1])


# A client of the test's own, from RFC 5802 §3 alone

def client_final(mechanism, password, header, bare, server_first, binding=b"", nonce=None):
    digest = {"SCRAM-SHA-1": "sha1", "SCRAM-SHA-256": "sha256"}[mechanism]
    fields = dict(part.split("=", 1) for part in server_first.decode().split(","))
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), base64.b64decode(fields["s"]), int(fields["i"]))
    client_key = hmac.new(salted, b"Client Key", digest).digest()
    without = f"c={base64.b64encode(header + binding).decode()},r={nonce or fields['r']}"
    message = b",".join((bare, server_first, without.encode()))
    signature = hmac.new(hashlib.new(digest, client_key).digest(), message, digest).digest()
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    verifier = hmac.new(hmac.new(salted, b"Server Key", digest).digest(), message, digest).digest()
    return (f"{without},p={base64.b64encode(proof).decode()}".encode(), b"v=" + base64.b64encode(verifier))


def scram_login(mechanism, password="pencil", header=b"n,,", name=b"user", binding=b"", channel=NOTHING,
                account=ALICE, keys=None):
    plain = mechanism.removesuffix("-PLUS")
    keys = keys or Keys.from_password(plain, "pencil", b"0123456789abcdef", 4096)
    client = Client(mechanism, channel, FindKeys=(keys, account))
    bare = b"n=" + name + b",r=abc"
    server_first = client.say(header + bare)
    final, verifier = client_final(plain, password, header, bare, server_first, binding)
    assert client.say(final) == verifier
    assert client.say(b"") is None
    return client


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-1", "SCRAM-SHA-256"])
def test_scram(mechanism):
    assert scram_login(mechanism).proved == Proved(ALICE)
    assert scram_login(mechanism, header=b"n,a=bob,").proved == Proved(ALICE, "bob")
    assert scram_login(mechanism, name=b"a=2Cb=3Dc").asked[0].user == "a,b=c"
    assert scram_login(mechanism, header=b"y,,").proved == Proved(ALICE)
    for wrong in ("Pencil", "pencil ", ""):
        with pytest.raises(StoreError) as refused:
            scram_login(mechanism, wrong)
        assert refused.value.problem is Problem.BAD_LOGIN


@pytest.mark.parametrize("account", [None, Account("alice", "primary", Status.DISABLED)])
def test_the_right_proof_of_one_who_may_not_log_in(account):
    with pytest.raises(StoreError) as refused:
        scram_login("SCRAM-SHA-256", account=account)
    assert refused.value.problem is Problem.BAD_LOGIN


def test_channel_binding():
    """RFC 5802 §6: the data goes into the proof; a client that believes that we cannot is told off if we can."""
    channel = Channel(secure=True, plus=True, binding={"tls-exporter": b"data", "tls-unique": b"other"}.get)
    for kind, data in (("tls-exporter", b"data"), ("tls-unique", b"other")):
        header = f"p={kind},,".encode()
        found = scram_login("SCRAM-SHA-256-PLUS", header=header, binding=data, channel=channel)
        assert found.proved == Proved(ALICE)
        with pytest.raises(StoreError):
            scram_login("SCRAM-SHA-256-PLUS", header=header, binding=b"of another channel", channel=channel)
        with pytest.raises(StoreError):
            scram_login("SCRAM-SHA-256-PLUS", header=header, binding=b"", channel=channel)
    for header, data, problem in ((b"y,,", b"", StoreError), (b"p=tls-exporter,,", b"data", Malformed)):
        with pytest.raises(problem):
            scram_login("SCRAM-SHA-256", header=header, binding=data, channel=channel)
    for header, problem in ((b"n,,", Malformed), (b"y,,", Malformed), (b"p=unheard-of,,", StoreError)):
        with pytest.raises(problem):
            scram_login("SCRAM-SHA-256-PLUS", header=header, channel=channel)
    assert scram_login("SCRAM-SHA-256", channel=channel).proved


@pytest.mark.parametrize("message", [
    b"", b"n", b"n,", b"n,,", b"n,,n=user", b"n,,n=user,", b"n,,n=user,r=", b"n,,r=abc,n=user", b"n,,n=,r=abc",
    b"n,,m=x,n=user,r=abc",                         # RFC 5802 §5.1: an extension that must be known
    b"x,,n=user,r=abc", b"p=,,n=user,r=abc", b"p,,n=user,r=abc", b"n,b,n=user,r=abc", b"n,a=,n=user,r=abc",
    b"n,,n=us=er,r=abc", b"n,,n=us=2cer,r=abc", b"n,,n=user,r=a c", b"n,,n=user,r=a\x00c", b"n,,n=user,r=abc,",
    b"n,,n=user,r=abc,x", b"n,,n=\xff,r=abc", b"n,,n=a\x00b,r=abc", b"n,,n=a\x07b,r=abc", b"n,,n=user,r=abc\r\n"])
def test_what_is_no_first_message_of_scram(message):
    client = Client("SCRAM-SHA-1", FindKeys=(None, None))
    with pytest.raises(Malformed):
        client.say(message)
    assert not client.asked


@pytest.mark.parametrize("change", [
    lambda final: b"", lambda final: final + b",x=y", lambda final: final.replace(b"c=biws", b"c=eSws"),
    lambda final: final.replace(b"c=biws,", b""), lambda final: final.replace(b",p=", b",p=A"),
    lambda final: final.replace(b"r=abc", b"r=abd"), lambda final: final.replace(b"c=", b"d="),
    lambda final: final.partition(b",p=")[0], lambda final: final.partition(b",p=")[0] + b",p=AAAA",
    lambda final: final.partition(b",p=")[0] + b",p=" + base64.b64encode(bytes(200)),
    lambda final: final + b"\n", lambda final: b"\xff" + final])
def test_what_is_no_last_message_of_scram(change):
    keys = Keys.from_password("SCRAM-SHA-256", "pencil", b"0123456789abcdef", 4096)
    client = Client("SCRAM-SHA-256", FindKeys=(keys, ALICE))
    server_first = client.say(b"n,,n=user,r=abc")
    final, _ = client_final("SCRAM-SHA-256", "pencil", b"n,,", b"n=user,r=abc", server_first)
    with pytest.raises((Malformed, StoreError)):
        client.say(change(final))
    assert client.proved is None


def test_a_proof_with_another_nonce():
    """RFC 5802 §5.1: it must be the one that we have said, also where everything fits together."""
    keys = Keys.from_password("SCRAM-SHA-256", "pencil", b"0123456789abcdef", 4096)
    client = Client("SCRAM-SHA-256", FindKeys=(keys, ALICE))
    server_first = client.say(b"n,,n=user,r=abc")
    with pytest.raises(StoreError):
        client.say(client_final("SCRAM-SHA-256", "pencil", b"n,,", b"n=user,r=abc", server_first, nonce="abc")[0])


def test_more_than_is_wanted_at_the_end_of_scram():
    with pytest.raises(Malformed):
        keys = Keys.from_password("SCRAM-SHA-256", "pencil", b"0123456789abcdef", 4096)
        client = Client("SCRAM-SHA-256", FindKeys=(keys, ALICE))
        server_first = client.say(b"n,,n=user,r=abc")
        client.say(client_final("SCRAM-SHA-256", "pencil", b"n,,", b"n=user,r=abc", server_first)[0])
        client.say(b"more")


def test_an_extension_of_scram_that_need_not_be_known():
    """RFC 5802 §5.1: optional ones are ignored, and are part of what is proved."""
    keys = Keys.from_password("SCRAM-SHA-256", "pencil", b"0123456789abcdef", 4096)
    client = Client("SCRAM-SHA-256", FindKeys=(keys, ALICE))
    bare = b"n=user,r=abc,x=something"
    server_first = client.say(b"n,," + bare)
    client.say(client_final("SCRAM-SHA-256", "pencil", b"n,,", bare, server_first)[0])
    assert client.say(b"") is None and client.proved


# RFC 4013 §3, RFC 3454

@pytest.mark.parametrize(("text", "prepared"), [
    ("I\u00adX", "IX"), ("user", "user"), ("USER", "USER"), ("\u00aa", "a"), ("\u2168", "IX"),
    ("a\u00a0b", "a b"), ("\u0627\u0628\u0627", "\u0627\u0628\u0627"), ("", "")])
def test_saslprep(text, prepared):
    assert saslprep(text) == prepared


@pytest.mark.parametrize("text", ["\u0007", "\u06271", "a\u0000", "\ue000", "\ufffd", "\u200e", "\u06271b",
                                  "\U000e0001"])
def test_what_saslprep_refuses(text):
    with pytest.raises(ValueError):
        saslprep(text)


def test_a_character_that_unicode_3_2_does_not_know():
    """RFC 4013 §2.5: it may be asked for, and not stored."""
    assert saslprep("\u0221") == "\u0221"
    with pytest.raises(ValueError):
        saslprep("\u0221", stored=True)


# The others

@pytest.mark.parametrize(("message", "asked", "acts_as"), [
    (b"\0tim\0tanstaaftanstaaf", "tim", ""), (b"Ursel\0Kurt\0xipj3plmq", "Kurt", "Ursel")])         # RFC 4616 §4
def test_plain(message, asked, acts_as):
    client = Client("PLAIN", CheckPassword=ALICE)
    assert client.say(message) is None
    question, = client.asked
    assert isinstance(question, CheckPassword) and question.user == asked
    assert question.password.reveal() == message.split(b"\0")[2]
    assert client.proved == Proved(ALICE, acts_as)
    for end in range(len(message) - len(message.split(b"\0")[2])):
        with pytest.raises(Malformed):
            Client("PLAIN", CheckPassword=ALICE).say(message[:end])


def test_login():
    client = Client("LOGIN", CheckPassword=ALICE)
    assert client.step == Challenge(b"Username:")
    assert client.say(b"tim") == b"Password:"
    assert client.say(b"tanstaaf") is None
    assert (client.asked[0].user, client.asked[0].password.reveal()) == ("tim", b"tanstaaf")
    for name, password in ((b"", b"x"), (b"tim", b""), (b"\xff", b"x"), (b"a\0b", b"x"), (b"tim", b"x\0")):
        with pytest.raises(Malformed):
            client = Client("LOGIN", CheckPassword=ALICE)
            client.say(name)
            client.say(password)


def test_a_wrong_password():
    for mechanism, said in (("PLAIN", [b"\0a\0b"]), ("LOGIN", [b"a", b"b"])):
        client = Client(mechanism, CheckPassword=BAD_LOGIN)
        with pytest.raises(StoreError):
            for each in said:
                client.say(each)


def test_external():
    """RFC 4422 appendix A"""
    channel = Channel(secure=True, certificate=("alice", "alice.example.org"))
    client = Client("EXTERNAL", channel, FindNamed=ALICE)
    assert client.say(b"") is None
    assert client.asked == [FindNamed(("alice", "alice.example.org"))] and client.proved == Proved(ALICE)
    client = Client("EXTERNAL", channel, FindNamed=ALICE)
    assert client.say(b"bob") is None and client.proved == Proved(ALICE, "bob")
    for wrong in (b"\xff", b"a\0b"):
        with pytest.raises(Malformed):
            Client("EXTERNAL", channel, FindNamed=ALICE).say(wrong)


# RFC 7628 §4.1 and §4.3

TOKEN = b"vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg=="
OAUTHBEARER = b"n,a=user@example.com,\1host=server.example.com\1port=143\1auth=Bearer " + TOKEN + b"\1\1"
EMPTY = b"n,a=user@example.com,\1host=server.example.com\1port=143\1auth=\1\1"
XOAUTH2 = b"user=user@example.com\1auth=Bearer " + TOKEN + b"\1\1"


@pytest.mark.parametrize(("mechanism", "message"), [("OAUTHBEARER", OAUTHBEARER), ("XOAUTH2", XOAUTH2)])
def test_tokens(mechanism, message):
    client = Client(mechanism, CheckToken=ALICE)
    assert client.say(message) is None
    question, = client.asked
    assert isinstance(question, CheckToken) and question.user == "user@example.com"
    assert question.token.reveal() == TOKEN and client.proved == Proved(ALICE, "user@example.com")
    for end in range(len(message)):
        with pytest.raises(Malformed):
            Client(mechanism, CheckToken=ALICE).say(message[:end])


@pytest.mark.parametrize("auth", [b"bearer x", b"BEARER x", b"BeArEr  x"])
def test_the_scheme_in_any_case(auth):
    """RFC 7628 §4"""
    client = Client("OAUTHBEARER", CheckToken=ALICE)
    assert client.say(b"n,,\1auth=" + auth + b"\1\1") is None
    assert client.asked[0].token.reveal() == b"x" and client.proved == Proved(ALICE)


@pytest.mark.parametrize(("message", "problem"), [(EMPTY, None), (OAUTHBEARER, BAD_LOGIN)])
def test_a_token_that_is_not_taken(message, problem):
    """RFC 7628 §3.2.2, §4.3: the client hears why, and answers before the exchange fails."""
    wanted = Wanted("example_scope", "https://example.com/.well-known/openid-config")
    client = Client("OAUTHBEARER", wanted=wanted, CheckToken=problem)
    assert json.loads(client.say(message)) == {
        "status": "invalid_token", "scope": "example_scope",
        "openid-configuration": "https://example.com/.well-known/openid-config"}
    with pytest.raises(StoreError) as refused:
        client.say(b"\1")
    assert refused.value.problem is Problem.BAD_LOGIN and client.proved is None


def test_when_a_token_cannot_be_checked_now():
    client = Client("OAUTHBEARER", CheckToken=StoreError(Problem.UNAVAILABLE))
    with pytest.raises(StoreError) as refused:
        client.say(OAUTHBEARER)
    assert refused.value.problem is Problem.UNAVAILABLE


@pytest.mark.parametrize("message", [
    b"", b"n,,", b"n,,\1", b"n,,\1\1", b"n,,\1auth=Bearer x\1", b"p=tls-unique,,\1auth=Bearer x\1\1",
    b"n,,\1auth=Basic x\1\1", b"n,,\1auth=Bearer\1\1", b"n,,\1auth=Bearer x y\1\1", b"n,,\1auth=Bearer x\1auth=y\1\1",
    b"n,,\x01auth=Bearer x\1\1\1", b"n,,\1=x\1\1", b"n,,\1a1=x\1\1", b"n,,\1auth=Bearer \xff\1\1",
    b"n,a=a=b,\1auth=Bearer x\1\1", b"n,b,\1auth=Bearer x\1\1"])
def test_what_is_no_message_of_oauthbearer(message):
    with pytest.raises(Malformed):
        Client("OAUTHBEARER", CheckToken=ALICE).say(message)


@pytest.mark.parametrize("message", [
    b"", b"user=a", b"user=a\1auth=Bearer x\1", b"auth=Bearer x\1\1", b"user=a\1auth=Basic x\1\1",
    b"user=a\1auth=Bearer x\1\1\1", b"user=a\1auth=Bearer x y\1\1", b"user=\xff\1auth=Bearer x\1\1"])
def test_what_is_no_message_of_xoauth2(message):
    with pytest.raises(Malformed):
        Client("XOAUTH2", CheckToken=ALICE).say(message)


# Whatever a client says

def test_junk():
    """Only the errors that the protocols know, and never a login. By hand with a number: see junk.py."""
    junk.run(3000, 8)
