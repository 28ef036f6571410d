"""offlineimap keeps an account and a Maildir alike, and two accounts: new messages, flags, keywords and removals.

Always with TLS from the start: now and then its library loses the first answer after STARTTLS (its reader is at work
while the handshake goes on, and then waits for octets that TLS has already). It carries keywords to a Maildir and not
back.
"""
import re
from collections import Counter
from pathlib import Path

from attrs import evolve

from tests.support.clients import clients
from tests.support.clients.clients import Account, Boxes, Mail, Message
from tests.support.servers.server import PASSWORD
from tests.support.stores import messages
from tests.support.stores.maildir import Maildir

QUIET = {"OfflineIMAP", "Licensed", "imaplib2", "***", "Establishing", "Syncing", "Skipping", "Account"}
NAMES = [name for name in clients.NAMES if not set(name) & set('"\\')]       # it quotes those wrongly
KEYWORDS = {"a": "work", "b": "$Forwarded", "c": "NonJunk"}
SYSTEM = (r"\Seen", r"\Answered", r"\Flagged", r"\Draft")
FLAGS = (*SYSTEM, *KEYWORDS.values())

_COMPLAINT = re.compile("^.*(?:ERROR|WARNING|Traceback).*$", re.MULTILINE)


def remote(account: Account, side: str) -> str:
    """An account, under TLS with a certificate that is verified."""
    mail = account.mail
    return f"""\
[Repository {side}]
type = IMAP
remotehost = {clients.HOST}
remoteport = {mail.tls}
remoteuser = {account.user}
remotepass = {PASSWORD}
ssl = yes
starttls = no
sslcacertfile = {mail.authority.file}
maxconnections = 2
"""


def configured(folder: Path, near: str, far: str) -> Path:
    config = folder / "offlineimaprc"
    config.write_text(f"""\
[general]
metadata = {folder}/metadata
accounts = both
ui = basic
socktimeout = 300

[Account both]
localrepository = near
remoterepository = far

{near}
{far}
""")
    return config


def sync(config: Path) -> list[str]:
    """Once; what it says that it did."""
    said = clients.run(["offlineimap", "-o", "-c", config], config.parent)
    complaints = _COMPLAINT.findall(said)
    assert not complaints
    return [line.strip() for line in said.splitlines() if line and line.split()[0] not in QUIET]


def copies(done: list[str]) -> int:
    """How many messages it copied."""
    return sum(line.startswith("Copy message ") for line in done)


def undated(boxes: Boxes) -> Boxes:
    """A Maildir of offlineimap has no INTERNALDATE."""
    return {name: Counter({evolve(message, date=clients.DATE): count for message, count in found.items()})
            for name, found in boxes.items()}


def counted(sent: dict[str, list[Message]]) -> Boxes:
    return undated({name: Counter(found) for name, found in sent.items()})


def letters(count: int, first: int, flags: tuple[str, ...]) -> list[Message]:
    """offlineimap parses what it copies, and writes multiparts that are broken or have no last line otherwise."""
    return [message for message in clients.ordinary(count, flags, first=first)
            if messages.number_of(message.octets)[1] % len(messages.KINDS) < 5]


def prepared(flags: tuple[str, ...]) -> dict[str, list[Message]]:
    """What is in the mailboxes at first."""
    return {"INBOX": [*clients.odd()[:9], *letters(60, 0, flags), clients.huge()],
            **{name: letters(2 * number, 1000 * number, flags) for number, name in enumerate(NAMES, 1)}}


def transfers_nothing(config: Path, *accounts: Account) -> None:
    """One more run: offlineimap says that it looked and did nothing, and nothing has changed."""
    before = [account.states() for account in accounts]
    assert sync(config) == []
    assert [account.states() for account in accounts] == before


def test_a_maildir(mail: Mail, tmp_path: Path) -> None:
    far, = mail.accounts(1)
    config = configured(tmp_path, f"""\
[Repository near]
type = Maildir
localfolders = {tmp_path}/mail
sep = /
""" + "".join(f"customflag_{letter} = {keyword}\n" for letter, keyword in KEYWORDS.items()), remote(far, "far"))
    far.create(*NAMES)
    sent = prepared(FLAGS)
    for name, found in sent.items():
        far.put(name, found)
    here = Maildir(tmp_path / "mail", KEYWORDS)
    assert copies(sync(config)) == sum(map(len, sent.values()))
    clients.same(undated(here.boxes()), counted(sent))
    transfers_nothing(config, far)

    inbox = sent["INBOX"]
    paths = {here.octets(path): path for path in here.files("INBOX")}
    one, other = (inbox[number].flags & set(KEYWORDS.values()) for number in (20, 21))
    here.mark(paths[inbox[20].octets], one | {r"\Flagged", r"\Answered"})
    here.mark(paths[inbox[21].octets], other)
    paths[inbox[22].octets].unlink()
    far.run("INBOX", r"UID STORE 24 FLAGS (\Draft NonJunk)", "UID STORE 25 FLAGS ()",
            r"UID STORE 26 +FLAGS (\Deleted)", "UID EXPUNGE 26")
    far.put("nil", came := letters(8, 60_000, FLAGS))
    here.put("Archive/2024", *(new := letters(6, 70_000, SYSTEM)))
    here.create("made here")
    here.put("made here", *new)
    sent["INBOX"] = [
        *inbox[:20], evolve(inbox[20], flags=one | {r"\Flagged", r"\Answered"}), evolve(inbox[21], flags=other),
        evolve(inbox[23], flags=[r"\Draft", "NonJunk"]), evolve(inbox[24], flags=[]), *inbox[26:]]
    sent["Archive/2024"] += new
    sent["nil"] += came
    sent["made here"] = new

    assert copies(sync(config)) == 2 * len(new) + len(came)
    clients.same(undated(here.boxes()), counted(sent))
    clients.same(undated(far.boxes()), counted(sent))
    transfers_nothing(config, far)


def test_two_accounts(mail: Mail, tmp_path: Path) -> None:
    near, far = mail.accounts(2)
    config = configured(tmp_path, remote(near, "near"), remote(far, "far"))
    far.create(*NAMES[::2])
    near.create(*NAMES[1::2])
    sent = prepared(SYSTEM)
    for name, found in sent.items():
        (near if name in NAMES[1::2] else far).put(name, found)
    assert copies(sync(config)) == sum(map(len, sent.values()))
    clients.same(undated(near.boxes()), counted(sent))
    clients.same(undated(far.boxes()), counted(sent))
    transfers_nothing(config, near, far)

    far.run("INBOX", r"UID STORE 5:9 FLAGS (\Flagged)", r"UID STORE 10:12 +FLAGS (\Deleted)", "UID EXPUNGE 10:12")
    near.put("INBOX", came := letters(6, 60_000, SYSTEM))
    near.run("nil", "UID STORE 1:* FLAGS ()")
    inbox = sent["INBOX"]
    sent["INBOX"] = [*inbox[:4], *(evolve(message, flags=[r"\Flagged"]) for message in inbox[4:9]), *inbox[12:], *came]
    sent["nil"] = [evolve(message, flags=[]) for message in sent["nil"]]
    assert copies(sync(config)) == len(came)
    clients.same(undated(near.boxes()), counted(sent))
    clients.same(undated(far.boxes()), counted(sent))
    transfers_nothing(config, near, far)
