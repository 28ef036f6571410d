"""mbsync keeps two accounts alike, and an account and a Maildir: what changes on either side reaches the other.

mbsync 1.4 knows the system flags and $Forwarded; other keywords must stay as they are.
"""

import re
from collections import Counter
from pathlib import Path

from attrs import evolve

from tests.support.clients import clients
from tests.support.clients.clients import Account, Boxes, Mail, Message
from tests.support.clients.mbsync import QUIET, Pair
from tests.support.servers.server import PASSWORD
from tests.support.stores.maildir import Maildir

FLAGS = (r"\Seen", r"\Answered", r"\Flagged", r"\Draft", "$Forwarded")
KEPT = [r"\Seen", "$Forwarded", "work"]

_TUID = re.compile(rb"^X-TUID: [!-~]{12}\r\n", re.MULTILINE)


def imap(account: Account, side: str, tls: str) -> str:
    """One side that is an account, under TLS with a certificate that is verified."""
    mail = account.mail
    return f"""\
IMAPStore {side}
Host {clients.HOST}
Port {mail.tls if tls == "IMAPS" else mail.starttls}
User {account.user}
Pass {PASSWORD}
SSLType {tls}
SystemCertificates no
CertificateFile {mail.authority.file}
AuthMechs *

"""


def plain(boxes: Boxes) -> Boxes:
    """Without the header field by which mbsync finds again what it has copied."""
    return {name: Counter({evolve(message, octets=_TUID.sub(b"", message.octets, count=1)): count
                           for message, count in found.items()}) for name, found in boxes.items()}


def counted(sent: dict[str, list[Message]]) -> Boxes:
    return {name: Counter(found) for name, found in sent.items()}


def test_two_accounts(mail: Mail, tmp_path: Path) -> None:
    far, near = mail.accounts(2)
    pair = Pair(tmp_path, imap(far, "far", "IMAPS") + imap(near, "near", "STARTTLS"))
    far.create(*clients.NAMES[::2], "empty")
    near.create(*clients.NAMES[1::2])
    sent = {"INBOX": [*clients.odd(), *clients.ordinary(200, FLAGS), clients.huge()], "empty": [],
            **{name: clients.ordinary(number, FLAGS, first=1000 * number)
               for number, name in enumerate(clients.NAMES, 1)}}
    for name, found in sent.items():
        (near if name in clients.NAMES[1::2] else far).put(name, found)

    everything = sum(map(len, sent.values()))
    commands = pair.sync()
    assert commands["APPEND"] == commands["UID FETCH BODY"] == everything
    assert commands["CREATE"] == len(clients.NAMES) + 1
    for side in (far, near):
        clients.same(plain(side.boxes()), counted(sent))
    transfers_nothing(pair, far, near)

    # UIDs go in the order in which messages were appended here, and mbsync copied them in it
    inbox = sent["INBOX"]
    far.run("INBOX", r"UID STORE 1:20 FLAGS.SILENT (\Seen $Forwarded work)",
            r"UID STORE 30:49 +FLAGS (\Deleted)", r"UID STORE 60 FLAGS (\Flagged \Draft)")
    near.run("INBOX", "UID STORE 61:62 FLAGS ()", r"UID STORE 100,102,104 +FLAGS.SILENT (\Deleted)",
             "UID EXPUNGE 100,102")
    far.put("Archive/2024", new_there := clients.ordinary(3, FLAGS, first=50_000))
    near.put("INBOX", new_here := clients.ordinary(2, FLAGS, first=60_000))
    near.run("INBOX", r'UID COPY 5 "nil"', r'UID MOVE 25 "nil"')
    near.delete("empty")
    del sent["empty"]
    for uid in range(1, 21):
        inbox[uid - 1] = evolve(inbox[uid - 1], flags=KEPT)
    inbox[59] = evolve(inbox[59], flags=[r"\Flagged", r"\Draft"])
    inbox[60:62] = [evolve(message, flags=[]) for message in inbox[60:62]]
    sent["nil"] += [evolve(inbox[4], flags=[]), inbox[24]]
    sent["Archive/2024"] += new_there
    gone = [*range(30, 50), 100, 102, 104, 25]
    sent["INBOX"] = [message for uid, message in enumerate(inbox, 1) if uid not in gone] + new_here

    commands = pair.sync()
    assert commands["APPEND"] == commands["UID FETCH BODY"] == 3 + 2 + 2
    assert commands["DELETE"] == 1 and not commands["CREATE"] and commands["UID STORE"]
    clients.same(plain(far.boxes()), counted(sent))
    without = {name: [evolve(message, flags=message.flags - {"work"}) for message in found]
               for name, found in sent.items()}
    clients.same(plain(near.boxes()), counted(without))
    transfers_nothing(pair, far, near)


def transfers_nothing(pair: Pair, *sides: Account) -> None:
    """One more run: mbsync sends nothing that changes or fetches a message, and nothing has changed."""
    before = [side.states() for side in sides]
    commands = pair.sync()
    assert set(commands) <= QUIET, commands
    assert [side.states() for side in sides] == before


def test_an_account_and_a_maildir(mail: Mail, tmp_path: Path) -> None:
    far, = mail.accounts(1)
    here = Maildir(tmp_path / "mail")
    here.create("INBOX")
    pair = Pair(tmp_path, imap(far, "far", "IMAPS") + f"""\
MaildirStore near
Path {here.root}/
Inbox {here.root}/INBOX
SubFolders Verbatim

""")
    far.create(*clients.NAMES)
    sent = {"INBOX": [*clients.odd(), *clients.ordinary(60, FLAGS), clients.huge()],
            **{name: clients.ordinary(number, FLAGS, first=1000 * number)
               for number, name in enumerate(clients.NAMES, 1)}}
    for name, found in sent.items():
        far.put(name, found)
    pair.sync()
    clients.same(plain(here.boxes()), counted(sent))
    transfers_nothing(pair, far)

    inbox = sent["INBOX"]
    paths = {_TUID.sub(b"", here.octets(path), count=1): path for path in here.files("INBOX")}
    here.mark(paths[inbox[20].octets], [r"\Flagged", r"\Answered"])
    here.mark(paths[inbox[21].octets], [r"\Deleted"])
    paths[inbox[22].octets].unlink()
    far.run("INBOX", r"UID STORE 24 FLAGS (\Draft $Forwarded work)", r"UID STORE 25 +FLAGS (\Deleted)",
            "UID EXPUNGE 25")
    here.put("Archive/2024", *(new := clients.ordinary(2, (), first=70_000)))
    here.create("made here")
    here.put("made here", *new)

    def kept(inbox: list[Message]) -> list[Message]:
        return [message for number, message in enumerate(inbox) if number not in (21, 22, 24)]

    inbox[20] = evolve(inbox[20], flags=[r"\Flagged", r"\Answered"])
    inbox[23] = evolve(inbox[23], flags=[r"\Draft", "$Forwarded"])
    sent["INBOX"] = kept(inbox)
    sent["Archive/2024"] += new
    sent["made here"] = new

    commands = pair.sync()
    assert commands["APPEND"] == 4 and commands["CREATE"] == 1 and not commands["UID FETCH BODY"]
    clients.same(plain(here.boxes()), counted(sent))
    inbox[23] = evolve(inbox[23], flags=[*inbox[23].flags, "work"])
    clients.same(plain(far.boxes()), counted({**sent, "INBOX": kept(inbox)}))
    transfers_nothing(pair, far)
