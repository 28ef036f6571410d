"""mutt in a terminal: what a person does with it, seen on the screen and in the store."""

import os
import re
from pathlib import Path

import pytest

from tests.support.clients import clients
from tests.support.clients.clients import HOST, Account, Mail, Message
from tests.support.clients.terminal import LIMIT, Terminal, is_possible
from tests.support.processes import wait
from tests.support.servers.server import PASSWORD

pytestmark = pytest.mark.skipif(not is_possible() and "CI" not in os.environ,
                                reason="the system gives out no terminals")

_COMMAND = re.compile(r"^(?:.*> )?a\d{4} ([^\r\n]*)", re.MULTILINE)


def letter(number: int, body: bytes = b"nothing") -> Message:
    return Message(b"From: Sender %d <sender%d@example.org>\r\nTo: alice@example.org\r\n"
                   b"Subject: =?utf-8?Q?Gr=C3=BC=C3=9Fe?= %d!\r\nMessage-ID: <%d@example.org>\r\n"
                   b"Date: Tue, 5 Mar 2024 10:00:00 +0000\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n"
                   b"Dear reader,\r\n%b in %d.\r\n" % (number, number, number, number, body, number))


class Mutt(Terminal):
    """mutt on one account, by IMAPS with a certificate that is verified."""

    def __init__(self, account: Account, folder: Path) -> None:
        mail, cache, rc = account.mail, folder / "cache", folder / "muttrc"
        cache.mkdir(exist_ok=True)
        rc.write_text(f"""\
set folder="imaps://{account.user}@{HOST}:{mail.tls}/" spoolfile="=INBOX" record="" postponed="=Drafts"
set imap_user="{account.user}" imap_pass="{PASSWORD}"
set ssl_ca_certificates_file="{mail.authority.file}" certificate_file="{folder}/certificates" ssl_verify_host=yes
set header_cache="{cache}" message_cachedir="{cache}"
set imap_idle=yes imap_condstore=yes imap_qresync=yes
set sort=mailbox-order delete=yes move=no confirmappend=no confirmcreate=no quit=yes wait_key=no timeout=1 beep=no
set index_format="%4C %Z %s" mark_old=no
""")
        self._log = folder / ".muttdebug0"
        self.account = account
        super().__init__(["mutt", "-n", "-d", "2", "-F", rc], folder, clients.environment(folder))

    def sent(self) -> list[str]:
        """The commands that it has sent, without their tags."""
        return _COMMAND.findall(self._log.read_text(errors="replace"))

    def idles(self) -> None:
        """Wait until it is in IDLE."""
        wait.until(lambda: self.sent()[-1] == "IDLE", "mutt idles", pid=self.pid, limit=LIMIT)

    def leave(self) -> None:
        """Quit."""
        self.keys("q")
        wait.until(self.ended, "mutt ends", pid=self.pid, limit=LIMIT)


@pytest.fixture
def account(mail: Mail) -> Account:
    account, = mail.accounts(1)
    account.put("INBOX", [letter(number, b"a walrus" if number in (3, 7) else b"nothing") for number in range(1, 13)])
    return account


def test_a_day_with_mutt(account: Account, tmp_path: Path) -> None:
    with Mutt(account, tmp_path) as mutt:
        mutt.see("Grüße 1!", "Grüße 12!", "Msgs:12")
        # read one
        mutt.type("2")
        mutt.keys("Enter")
        mutt.see("Dear reader,", "nothing in 2.")
        mutt.keys("i")
        mutt.see("Grüße 12!")
        # flag one, delete one, and save one to a folder that is not there
        mutt.type("4")
        mutt.keys("F")
        mutt.type("5")
        mutt.keys("d")
        mutt.type("6")
        mutt.keys("s", "C-u")
        mutt.type("=Grüße")
        mutt.see("Del:2")
        # several at once
        mutt.keys("T", "C-u")
        mutt.type("~s '1[012]'")
        mutt.keys(";", "s", "C-u")
        mutt.type("=Archive/2024")
        mutt.see("Del:5")
        mutt.keys("$")
        mutt.see("Msgs:7", without=["Grüße 12!"])
        flags = {uid: set(message.flags) for uid, message in account.contents("INBOX").items()}
        assert flags == {1: set(), 2: {r"\Seen"}, 3: set(), 4: {r"\Flagged"}, 7: set(), 8: set(), 9: set()}
        assert [message.octets for message in account.contents("Gr&APwA3w-e").values()] == [letter(6).octets]
        assert [message.octets for message in account.contents("Archive/2024").values()] == [
            letter(number).octets for number in (10, 11, 12)]
        # search in the bodies, which the server does
        mutt.keys("l", "C-u")
        mutt.type("=b WALRUS")
        mutt.see("Grüße 3!", "Grüße 7!", without=["Grüße 2!", "Grüße 8!"])
        assert 'UID SEARCH BODY "WALRUS"' in mutt.sent()
        mutt.keys("l", "C-u")
        mutt.type("all")
        mutt.see("Grüße 2!", "Grüße 8!")
        # make a folder, and look into another
        mutt.keys("c", "?")
        mutt.see("Archive")
        mutt.keys("C")
        mutt.see("Create mailbox:")
        mutt.type("Süd")
        mutt.see("IMAP", "Süd", without=["Create mailbox:"])
        assert account.names() == ["Archive/2024", "Gr&APwA3w-e", "INBOX", "S&APw-d"]
        mutt.keys("q")
        mutt.see("Msgs:7")
        # look into another folder, and bring a letter back
        mutt.keys("c", "C-u")
        mutt.type("=Archive/2024")
        mutt.see("Msgs:3", "Grüße 12!")
        mutt.type("2")
        mutt.keys("s", "C-u")
        mutt.type("=INBOX")
        mutt.see("Del:1")
        mutt.leave()
    assert [message.octets for message in account.contents("Archive/2024").values()] == [
        letter(10).octets, letter(12).octets]
    assert account.contents("INBOX")[13].octets == letter(11).octets


def test_what_changed_meanwhile(account: Account, tmp_path: Path) -> None:
    with Mutt(account, tmp_path) as mutt:
        mutt.see("Grüße 1!", "Grüße 12!", "Msgs:12")
        mutt.leave()
    account.run("INBOX", r"UID STORE 1,4 +FLAGS.SILENT (\Flagged)", r"UID STORE 2 +FLAGS.SILENT (\Seen)",
                r"UID STORE 3,8 +FLAGS.SILENT (\Deleted)", "EXPUNGE")
    account.put("INBOX", [letter(13)])
    with Mutt(account, tmp_path) as mutt:
        mutt.see("Grüße 13!", "Msgs:11", "Flag:2", without=["Grüße 3!", "Grüße 8!"])
        commands = mutt.sent()
        # RFC 7162 §3.2.6: nothing but what has changed
        assert [each for each in commands if re.match(r"UID FETCH 1:12 \(FLAGS\) \(CHANGEDSINCE \d+ VANISHED\)", each)]
        fetched = [command for command in commands if "BODY.PEEK[HEADER" in command]
        assert [command.split()[:2] for command in fetched] == [["FETCH", "11"]]
        # and what happens while it waits in IDLE
        mutt.idles()
        account.put("INBOX", [letter(14)])
        mutt.see("Grüße 14!", "Msgs:12")
        mutt.idles()
        account.run("INBOX", r"UID STORE 9 +FLAGS.SILENT (\Flagged)", r"UID STORE 10 +FLAGS.SILENT (\Deleted)",
                    "UID EXPUNGE 10")
        mutt.see("Msgs:11", "Flag:3", without=["Grüße 10!"])
        assert "NOOP" not in mutt.sent()
        mutt.leave()
