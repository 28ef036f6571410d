"""Clients that fetch over POP3 and leave mail on the server: fetchmail, getmail and mpop compare unique-ids and delete.

What a client has fetched is read from its files; what is left on the server over a connection of the test's own.
"""

import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from attrs import frozen

from tests.support.clients import clients
from tests.support.clients.clients import HOST, Account, Mail, Message
from tests.support.clients.pop3 import Pop3
from tests.support.servers.server import PASSWORD
from tests.support.stores import messages

LIMIT = 300         # seconds, far more than any of it takes


@frozen
class Reader:
    """A client with files of its own in `folder`. `run` fetches what it has not fetched before; it says so of all that
    it has fetched in its life: octets with the system's line ends."""

    account: Account
    folder: Path
    config: Callable[["Reader", bool], Sequence[str]]

    @property
    def port(self) -> int:
        """That of POP3 under TLS."""
        return int(self.account.mail.server.options["pop3.tls_port"])

    @property
    def authority(self) -> Path:
        """Who has signed the server's certificate."""
        return self.account.mail.authority.file

    def run(self, *, keep: bool) -> str:
        """Fetch; what it said."""
        (self.folder / "new").mkdir(parents=True, exist_ok=True)
        for name in ("cur", "tmp"):
            (self.folder / name).mkdir(exist_ok=True)
        done = subprocess.run(self.config(self, keep), cwd=self.folder, stdin=subprocess.DEVNULL, capture_output=True,
                              timeout=LIMIT, check=False, env=clients.environment(self.folder, FETCHMAILHOME=str(
                                  self.folder), GETMAIL_CONFIG=str(self.folder)))
        said = done.stdout.decode(errors="replace") + done.stderr.decode(errors="replace")
        assert done.returncode in (0, 1 if "fetchmail" in done.args[0] else 0), said      # 1: there was no mail
        return said

    def fetched(self) -> list[bytes]:
        """All messages that it ever got, but for what it puts in front of them."""
        return rest([path.read_bytes() for path in (self.folder / "new").iterdir()])

    def written(self, name: str, text: str) -> str:
        """A file that only its owner may read."""
        path = self.folder / name
        path.touch(0o600)
        path.write_text(text)
        return str(path)


    def mda(self) -> str:
        """A program that puts what it gets into a file of its own in the folder that is its argument."""
        path = self.folder / "mda"
        path.write_text('#!/bin/sh\nexec cat >"$(mktemp "$1/XXXXXXXXXX")"\n')
        path.chmod(0o755)
        return str(path)


def fetchmail(reader: Reader, keep: bool) -> Sequence[str]:
    """Its list of unique-ids is the file that `--idfile` names."""
    rc = reader.written("fetchmailrc", f"""\
set invisible
poll {HOST} service {reader.port} protocol POP3 auth password uidl no dns
    user "{reader.account.user}" password "{PASSWORD}"
    ssl sslcertck sslcertfile "{reader.authority}" sslcommonname localhost
    {"keep" if keep else "no keep flush"} no rewrite pass8bits no mimedecode
    mda "{reader.mda()} {reader.folder}/new"
""")
    return ["fetchmail", "--nodetach", "--verbose", "--fetchmailrc", rc, "--idfile", str(reader.folder / "ids"),
            "--pidfile", str(reader.folder / "pid")]


def getmail(reader: Reader, keep: bool) -> Sequence[str]:
    """Its list of unique-ids is a file oldmail-..."""
    rc = reader.written("getmailrc", f"""\
[retriever]
type = SimplePOP3SSLRetriever
server = localhost
port = {reader.port}
username = {reader.account.user}
password = {PASSWORD}
ca_certs = {reader.authority}
[destination]
type = MDA_external
path = {reader.mda()}
arguments = ("{reader.folder}/new",)
allow_root_commands = true
[options]
read_all = false
delete = {"false" if keep else "true"}
delivered_to = false
received = false
message_log_syslog = false
""")
    return ["getmail", "--getmaildir", str(reader.folder), "--rcfile", rc, "--verbose"]


def mpop(reader: Reader, keep: bool) -> Sequence[str]:
    """Its list of unique-ids is the file that `uidls_file` names."""
    rc = reader.written("mpoprc", f"""\
account default
host localhost
port {reader.port}
user {reader.account.user}
password {PASSWORD}
tls on
tls_starttls off
tls_trust_file {reader.authority}
uidls_file {reader.folder}/uidls
only_new on
keep {"on" if keep else "off"}
received_header off
delivery maildir {reader.folder}
""")
    return ["mpop", f"--file={rc}", "--auth=plain"]


def made(begin: int, end: int) -> list[bytes]:
    """Some messages, with lines that are only dots, and what not; of the kinds that getmail does not write anew."""
    return [b"X-Begin: %d\r\n" % number + messages.make(7, number % 5, 1500 + 900 * number)
            for number in range(begin, end)]


def rest(sent: Sequence[bytes]) -> list[bytes]:
    """Messages without what clients change: line ends, fields in front, and long fields, which getmail folds."""
    return sorted(re.sub(rb"\n(?=[ \t])", b"", octets.replace(b"\r\n", b"\n").partition(b"X-Begin: ")[2])
                  for octets in sent)


@pytest.mark.parametrize("client", [fetchmail, getmail, mpop], ids=lambda client: client.__name__)
def test_mail_is_left_and_known_again_and_deleted(mail: Mail, tmp_path: Path, client: Callable[..., Sequence[str]]
                                                  ) -> None:
    """Also after a move to another server that kept the unique-ids: nothing is fetched twice, and nothing is lost."""
    old, new = mail.accounts(2)
    sent = made(0, 8)
    old.put("INBOX", [Message(octets) for octets in sent[:5]])
    reader = Reader(old, tmp_path / client.__name__, client)
    reader.run(keep=True)
    assert reader.fetched() == rest(sent[:5])
    assert len(old.contents("INBOX")) == 5

    reader.run(keep=True)
    assert reader.fetched() == rest(sent[:5])           # nothing came twice
    old.put("INBOX", [Message(octets) for octets in sent[5:6]])
    reader.run(keep=True)
    assert reader.fetched() == rest(sent[:6])

    _move(mail, old, new, sent[:6])
    moved = Reader(new, reader.folder, client)
    _as_if_it_were_the_old_one(reader.folder, old.user, new.user)
    new.put("INBOX", [Message(octets) for octets in sent[6:7]])
    moved.run(keep=True)
    assert moved.fetched() == rest(sent[:7])            # only what is new

    new.put("INBOX", [Message(octets) for octets in sent[7:]])
    said = moved.run(keep=False)
    assert moved.fetched() == rest(sent), said
    assert new.contents("INBOX") == {}
    assert len(old.contents("INBOX")) == 6


def _move(mail: Mail, old: Account, new: Account, sent: Sequence[bytes]) -> None:
    """Another store gets the messages, in their order and with other UIDs, and what the old one answers to UIDL."""
    with Pop3(mail.server.pop3, old.user) as before:
        uidls = before.lines("UIDL")
        sizes = dict(line.split() for line in before.lines("LIST"))
    new.put("INBOX", [Message(b"X-Begin: 99\r\n\r\n")])
    new.run("INBOX", r"STORE 1 +FLAGS (\Deleted)", "EXPUNGE")
    new.put("INBOX", [Message(octets) for octets in sent])
    listing = "+OK unique-ids\r\n" + "".join(f"{line} {sizes[line.split()[0]]}\r\n" for line in uidls) + ".\r\n"
    assert "6 messages have" in mail.server.command("uidl", "import", new.user, "-", "--numbers",
                                                    octets=listing.encode())
    with Pop3(mail.server.pop3, new.user) as after:
        assert after.lines("UIDL") == uidls


def _as_if_it_were_the_old_one(folder: Path, old: str, new: str) -> None:
    """The client's notes are by the name of the account."""
    for path in list(folder.iterdir()):
        if path.is_file() and path.name not in ("mda", "pid"):
            text = path.read_bytes()
            if old.encode() in text:
                path.write_bytes(text.replace(old.encode(), new.encode()))
            if old in path.name:
                path.rename(path.with_name(path.name.replace(old, new)))
