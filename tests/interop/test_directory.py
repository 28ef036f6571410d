"""A started server whose users are in LDAP: mail and logins, servers of the directory that die, hang and talk nonsense.

What must hold: a temporary failure or a clear line in the log, never a traceback, never a lost message, never a login
that should not be.
"""

import json
import re
from pathlib import Path

from tests.store.accounts.ldap.ldap_support import OPTIONS
from tests.support.clients.imap import Imap
from tests.support.clients.lmtp import Lmtp, stuffed
from tests.support.clients.pop3 import Pop3
from tests.support.processes import wait
from tests.support.servers.false_ldap import BIND, BOUND, DONE, FalseLdap, entry, message, result, tlv
from tests.support.servers.server import Server
from tests.support.servers.slapd import BASE, Slapd, person

PEOPLE = f"ou=people,{BASE}"
MAIL = b"Subject: hello\r\nMessage-ID: <%d@example.org>\r\n\r\nhello\r\n"
BRIEF = {"directory.search_time": "3s", "directory.bind_time": "3s", "directory.connect_time": "3s",
         "directory.retry_first": "0s", "directory.retry_longest": "0s", "directory.cache_time": "0s",
         "directory.cache_negative_time": "0s", "login.remember_time": "0s", "login.slow_first": "0s"}


class Mails:
    """Messages that were acknowledged, by user: all must be there at the end."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.taken: dict[str, list[bytes]] = {}
        self._made = 0

    def send(self, user: str) -> int:
        """The code of the reply to RCPT, or of the delivery."""
        self._made += 1
        body = MAIL % self._made
        lmtp = Lmtp(self.server.lmtp)
        try:
            assert lmtp.command("MAIL FROM:<sender@example.net>").code == 250
            code = lmtp.command(f"RCPT TO:<{user}@example.org>").code
            if code == 250:
                assert lmtp.command("DATA").code == 354
                lmtp.socket.sendall(stuffed(body))
                code = lmtp.reply().code
                if code == 250:
                    self.taken.setdefault(user, []).append(body)
            return code
        finally:
            lmtp.socket.close()

    def all_there(self) -> None:
        """Each user has what was taken for the user, and nothing twice."""
        for user, bodies in self.taken.items():
            with Imap(self.server.imap, user) as imap:
                imap.select()
                found = [octets[octets.index(b"Subject:"):] for octets in imap.messages().values()]
                assert sorted(found) == sorted(bodies)


def said(server: Server) -> str:
    """The whole log, in which there must be no traceback and no password."""
    text = server.log.read_text(errors="replace")
    assert "Traceback" not in text, text[text.index("Traceback"):][:3000]
    assert "secret" not in text and "for searching" not in text
    return text


def refusal(server: Server, user: str, password: str = "secret") -> str:
    """The answer to a login that must fail."""
    with Imap(server.imap) as imap:
        answer = imap.command(f'LOGIN "{user}" "{password}"')
        assert answer.status == "NO", answer
        return answer.text


def test_mail_and_logins(tmp_path: Path) -> None:
    """Several worker processes: what one has learnt the others know, and a flush reaches all."""
    with Slapd(tmp_path / "slapd") as slapd:
        slapd.add("".join(person(user, "secret", line) for user, line in [
            ("alice", "mail: info@example.org"), ("bob", "employeeType: disabled"), ("both1", "mail: both@example.org"),
            ("both2", "mail: both@example.org"), ("greedy", "employeeNumber: lots"), ("small", "employeeNumber: 0")]))
        options = {**slapd.options, **OPTIONS, "workers.imap": "2", "workers.lmtp": "1", "login.slow_first": "0s"}
        with Server(tmp_path, (), options) as server:
            mails = Mails(server)
            assert mails.send("alice") == 250
            assert mails.send("nobody") == 550 and mails.send("bob") == 550
            assert mails.send("both") // 100 == 4 and mails.send("greedy") // 100 == 4
            assert mails.send("small") == 552               # Sun's 0: nothing fits, ever
            for user, password in (("alice", "wrong"), ("nobody", "secret"), ("bob", "secret"), ("info", "secret"),
                                   ("alice", "")):
                assert "AUTHENTICATIONFAILED" in refusal(server, user, password)
            assert len({refusal(server, user, "wrong") for user in ("alice", "nobody", "bob", "info")}) == 1
            assert "UNAVAILABLE" in refusal(server, "both") and "UNAVAILABLE" in refusal(server, "greedy")
            with Imap(server.imap) as imap, Pop3(server.pop3, "alice") as pop3:
                told = str(imap.ok("CAPABILITY"))
                assert "AUTH=PLAIN" in told and "SCRAM" not in told
                assert pop3.ok("STAT").startswith("+OK 1 ")
            for _ in range(4):                              # all processes know the password
                Imap(server.imap, "alice").close()
            slapd.change(f"dn: uid=alice,{PEOPLE}\nchangetype: modify\nreplace: userPassword\nuserPassword: changed\n")
            Imap(server.imap, "alice").close()              # believed
            server.command("directory", "flush")
            for _ in range(4):
                assert "AUTHENTICATIONFAILED" in refusal(server, "alice")
            slapd.change(f"dn: uid=alice,{PEOPLE}\nchangetype: modify\nreplace: userPassword\nuserPassword: secret\n")
            status = json.loads(server.command("directory", "status", "--json"))
            assert [(row["server"], row["answers"]) for row in status] == [(slapd.uri, True)]
            mails.all_there()
            text = said(server)
            assert "both1" in text and "both2" in text and "lots" in text
        slapd.kill()
        assert not json.loads(server.command("directory", "status", "--json", status=1))[0]["answers"]


def test_a_password_is_proved_once_for_all_processes(tmp_path: Path) -> None:
    """IMAP and POP3 have a process each. Until the entry changes, or what is believed is flushed."""
    alice = f"uid=alice,{PEOPLE}"
    with Slapd(tmp_path / "slapd", telling=True) as slapd:
        slapd.add(person("alice"))
        options = {**slapd.options, **OPTIONS, "workers.imap": "1", "workers.pop3": "1", "workers.lmtp": "1",
                   "login.slow_first": "0s"}
        with Server(tmp_path, (), options) as server:
            for _ in range(2):
                Imap(server.imap, "alice").close()
                Pop3(server.pop3, "alice").close()
            assert slapd.binds(alice) == 1
            server.command("directory", "flush")
            Pop3(server.pop3, "alice").close()
            Imap(server.imap, "alice").close()
            assert slapd.binds(alice) == 2
            server.command("directory", "flush")
            slapd.change(f"dn: {alice}\nchangetype: modify\nreplace: userPassword\nuserPassword: changed\n")
            assert "AUTHENTICATIONFAILED" in refusal(server, "alice")
            Imap(server.imap, "alice", "changed").close()
            assert slapd.binds(alice) == 4
            Pop3(server.pop3, "alice", "changed").close()
            with Pop3(server.pop3) as pop3:
                pop3.ok("USER alice")
                assert pop3.command("PASS secret").startswith("-ERR")
            assert slapd.binds(alice) == 5
            said(server)


def test_a_replica_dies_and_comes_back_under_logins(tmp_path: Path) -> None:
    with Slapd(tmp_path / "provider") as provider, Slapd(tmp_path / "replica", provider=provider) as replica:
        provider.add("".join(person(f"user{number}") for number in range(4)))
        replica.copied("(uid=user3)")
        options = {**provider.options, **OPTIONS, **BRIEF, "directory.uris": f"{replica.uri},{provider.uri}"}
        with Server(tmp_path, (), options) as server:
            mails = Mails(server)

            def everything_works(users: int = 4) -> None:
                for number in range(users):
                    assert mails.send(f"user{number}") == 250
                    Imap(server.imap, f"user{number}").close()
                    assert "AUTHENTICATIONFAILED" in refusal(server, f"user{number}", "wrong")
                assert mails.send("nobody") == 550

            everything_works()
            replica.kill()
            everything_works()
            replica.start()
            everything_works()
            replica.hang()
            everything_works(1)                             # each question waits for it first
            provider.kill()                                 # nobody is left
            assert mails.send("user0") // 100 == 4 and mails.send("nobody") // 100 == 4
            assert "UNAVAILABLE" in refusal(server, "user0") and "UNAVAILABLE" in refusal(server, "nobody")
            replica.resume()
            everything_works()                              # it is used again: there is no other
            mails.all_there()
            text = said(server)
            assert f"{replica.uri} answers again" in text and f"{provider.uri}: " in text
            assert server.stop() == 0


FAULTS = {
    "silence": lambda number: b"",
    "it closes": lambda number: None,
    "another protocol": lambda number: b"\x16\x03\x01\x00\x05hello",
    "half an answer": lambda number: message(number, entry(b"uid=alice", {b"uid": [b"alice"]}))[:9],
    "the number of no request": lambda number: message(number + 7, result(DONE, 0)),
    "a length of two gigabytes": lambda number: b"\x30\x84\x7f\xff\xff\xff",
    "an answer to something else": lambda number: message(number, result(BOUND, 0)),
    "an entry of garbage": lambda number: message(number, tlv(0x64, b"\x04\x7fabcd\x30")),
    "an entry without attributes": lambda number: message(number, entry(f"uid=alice,{PEOPLE}".encode(), {})) + message(
        number, result(DONE, 0)),
    "an entry without a name": lambda number: message(number, entry(b"", {b"uid": [b"alice"]})) + message(
        number, result(DONE, 0)),
    "a referral": lambda number: message(number, result(DONE, 10, tlv(0xA3, tlv(4, b"ldap://192.0.2.1/")))),
    "a reference": lambda number: message(number, tlv(0x73, tlv(4, b"ldap://192.0.2.1/"))) + message(
        number, result(DONE, 0)),
    "values that are no text": lambda number: message(number, entry(f"uid=alice,{PEOPLE}".encode(), {
        b"uid": [b"\xff\xfe"], b"mail": [b"\xff"]})) + message(number, result(DONE, 0)),
    "busy": lambda number: message(number, result(DONE, 51)),
    "nothing there": lambda number: message(number, result(DONE, 0)),
}


def test_answers_that_are_wrong_in_every_way(tmp_path: Path) -> None:
    """The false server says yes to every bind: an account must still never come out of a wrong answer."""
    fault = [""]

    def answers(operation: int, number: int, _: bytes) -> object:
        return message(number, result(BOUND, 0)) if operation == BIND else FAULTS[fault[0]](number)

    options = {**OPTIONS, **BRIEF, "directory.starttls": "no", "directory.search_time": "200ms"}
    with FalseLdap(answers) as false, \
            Server(tmp_path, (), {**options, "directory.uris": false.uri}) as server:     # type: ignore[arg-type]
        mails = Mails(server)
        for name in FAULTS:
            fault[0] = name
            assert mails.send("alice") // 100 == 4, name
            assert "UNAVAILABLE" in refusal(server, "alice"), name
            with Pop3(server.pop3) as pop3:
                pop3.ok("USER alice")
                assert pop3.command("PASS secret").startswith("-ERR [SYS/TEMP]"), name
        lines = re.findall(r"directory: .*", said(server))
        assert len(lines) >= len(FAULTS)
        assert not list(server.root.glob("partitions/*/users/*/*/alice"))
        server.check()
        fault[0], before = "silence", len(false.requests)
        with Imap(server.imap) as imap:                     # a stop does not wait for what will not come
            imap.send(b"a LOGIN alice secret\r\n")
            wait.until(lambda: len(false.requests) > before, "the directory is asked", pid=server.pid, limit=180)
            assert server.stop() == 0
        said(server)
