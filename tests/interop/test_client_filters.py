"""Clients that work on their own: imapfilter sorts mail into folders, fetchmail takes it away, also while it waits."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.support.clients import clients
from tests.support.clients.clients import HOST, Account, Mail, Message
from tests.support.processes import wait
from tests.support.servers.server import PASSWORD
from tests.support.stores import messages

LIMIT = 300
_IDLE = re.compile(rb"IMAP> A\d+ IDLE")


@pytest.fixture
def account(mail: Mail) -> Account:
    return mail.accounts(1)[0]


def sender(number: int) -> Message:
    return Message(b"From: <list%d@example.org>\r\nSubject: mail %d\r\n\r\n%b\r\n" % (
        number % 3, number, b"x" * 100 * number), [r"\Seen"] if number % 2 else [])


def test_imapfilter(account: Account, tmp_path: Path) -> None:
    account.create("Gr&APwA3w-e")
    found = [sender(number) for number in range(1, 31)]
    account.put("INBOX", found)
    config = tmp_path / "config.lua"
    config.write_text(f"""\
options.timeout = 180
options.certificates = true
options.create = true
options.subscribe = true
options.expunge = true
me = IMAP {{ server = "{HOST}", port = {account.mail.tls}, username = "{account.user}", password = "{PASSWORD}",
            ssl = "auto" }}
exist, recent, unread, uidnext = me.INBOX:check_status()
print("status", exist, unread, uidnext)
results = me.INBOX:contain_from("list0@") * me.INBOX:is_unseen()
results:move_messages(me["Lists/zero"])
results = me.INBOX:contain_from("LIST1@") + me.INBOX:contain_subject("mail 29")
results:copy_messages(me["Grüße"])
me.INBOX:is_larger(2750):mark_flagged()
me.INBOX:contain_from("list2@"):add_flags({{ "bulk", "$Label1" }})
results = me.INBOX:is_seen() * me.INBOX:is_smaller(400)
results:delete_messages()
boxes, folders = me:list_all("", "*")
table.sort(boxes)
print("boxes", table.concat(boxes, "|"))
""")
    said = clients.run(["imapfilter", "-t", account.mail.authority.file, "-c", config], tmp_path)
    assert "status\t30\t15\t31" in said and "boxes\tGrüße|INBOX|Lists/zero" in said, said

    def unread_of_zero(number: int) -> bool:
        return number % 3 == 0 and number % 2 == 0

    def small(number: int) -> bool:
        return number % 2 == 1 and len(sender(number).octets) < 400

    def flags(number: int) -> set[str]:
        more = {"bulk", "$Label1"} if number % 3 == 2 else set()
        return sender(number).flags | more | ({r"\Flagged"} if len(sender(number).octets) > 2750 else set())

    assert [message.octets for message in account.contents("Lists/zero").values()] == [
        message.octets for number, message in enumerate(found, 1) if unread_of_zero(number)]
    assert [message.octets for message in account.contents("Gr&APwA3w-e").values()] == [
        message.octets for number, message in enumerate(found, 1) if number % 3 == 1 or number == 29]
    assert {uid: message.flags for uid, message in account.contents("INBOX").items()} == {
        number: flags(number) for number in range(1, 31) if not unread_of_zero(number) and not small(number)}
    with account.login() as imap:
        imap.ok('LSUB "" *').find(rb"Lists/zero")


def test_fetchmail_waits_in_idle(account: Account, tmp_path: Path) -> None:
    box = tmp_path / "box"
    box.mkdir()
    keep = tmp_path / "keep"
    keep.write_text('#!/bin/sh\nfile=$(mktemp "$1/part.XXXXXXXXXX")\ncat >"$file"\nmv "$file" "$file.whole"\n')
    keep.chmod(0o755)
    rc = tmp_path / "fetchmailrc"
    rc.touch(0o600)
    rc.write_text(f"""\
set invisible
poll {HOST} service {account.mail.tls} protocol IMAP auth password no dns
    user "{account.user}" password "{PASSWORD}"
    ssl sslcertck sslcertfile "{account.mail.authority.file}" sslcommonname localhost
    folder "INBOX" fetchall no keep no rewrite pass8bits no mimedecode idle
    mda "{keep} {box}"
""")
    sent = [messages.make(8, number, 2000) for number in range(4)]

    def fetched() -> list[bytes]:
        return [path.read_bytes().replace(b"\n", b"\r\n") for path in box.glob("*.whole")]

    account.put("INBOX", [Message(octets) for octets in sent[:2]])
    with (tmp_path / "log").open("wb") as log, subprocess.Popen(
            ["fetchmail", "--nodetach", "--verbose", "--fetchmailrc", rc, "--pidfile", tmp_path / "pid"], cwd=tmp_path,
            env=clients.environment(tmp_path, FETCHMAILHOME=str(tmp_path)), stdin=subprocess.DEVNULL, stdout=log,
            stderr=log) as process:
        try:
            wait.until(lambda: len(fetched()) == 2, "two messages", pid=process.pid, limit=LIMIT)
            wait.until(lambda: _IDLE.search((tmp_path / "log").read_bytes()), "IDLE", pid=process.pid, limit=LIMIT)
            account.put("INBOX", [Message(octets) for octets in sent[2:]])
            wait.until(lambda: len(fetched()) == 4, "two more", pid=process.pid, limit=LIMIT)
            wait.until(lambda: not account.contents("INBOX"), "they are taken away", pid=process.pid, limit=LIMIT)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{(tmp_path / 'log').read_text(errors='replace')}") from None
        finally:
            process.terminate()
    assert sorted(fetched()) == sorted(sent)
