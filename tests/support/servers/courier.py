"""A Courier of the test's own, on loopback, as a hosting provider has one: there is a login for each user, and no more.

It needs root: it changes to the user that owns the mail.
"""

import imaplib
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from attrs import frozen

from tests.support.clients.clients import Account, Message, quoted
from tests.support.processes.ports import free_port
from tests.support.servers.oldservers import OWNER, QUOTA_KIB, QUOTA_MESSAGES, OldServer
from tests.support.servers.overlaid import Overlaid
from tests.support.servers.server import PASSWORD

PERSONAL = "INBOX."         # begins the names of all mailboxes but INBOX (RFC 2342)

# Below /run and /etc it has files of its own: both are there in its mount namespace alone.
_BEGIN = """\
set -e
folder=$1 imap=$2 pop3=$3
mount -t tmpfs tmpfs /run
mkdir -p /run/courier/authdaemon
cp -a /etc/courier "$folder/courier"
mount --bind "$folder/courier" /etc/courier
cp "$folder/userdb" /etc/courier/userdb
chmod 600 /etc/courier/userdb
makeuserdb
sed -i 's/^authmodulelist=.*/authmodulelist="authuserdb"/' /etc/courier/authdaemonrc
set -a
. /etc/courier/imapd
. /etc/courier/pop3d
IMAP_CAPABILITY="$IMAP_CAPABILITY ACL ACL2=UNION"
IMAP_USELOCKS=0             # each command would wait for a program that tells of changes of files, as a login does
set +a
/usr/lib/courier/courier-authlib/authdaemond &
programs=/usr/lib/courier/courier
listen="couriertcpd -address=127.0.0.1 -maxperip=40 -nodnslookup -noidentlookup"
$listen "$pop3" $programs/courierpop3login $programs/courierpop3d Maildir &
exec $listen "$imap" $programs/imaplogin /usr/bin/imapd Maildir
"""


@frozen
class CourierAccount(Account):
    """Mailboxes by their names here: there `Archive/2024` is `INBOX.Archive.2024`."""

    def typed(self, name: str) -> str:
        """The name of a mailbox there."""
        return name if name == "INBOX" else PERSONAL + name.replace("/", ".")

    def put(self, name: str, found: Sequence[Message]) -> None:
        """One by one: it has neither MULTIAPPEND nor LITERAL+."""
        imap = imaplib.IMAP4("127.0.0.1", self.mail.server.imap)
        imap.login(self.user, PASSWORD)
        for message in found:
            answer = imap.append(quoted(self.typed(name)).decode(), f"({' '.join(message.flags)})", message.date,
                                 message.octets)
            assert answer[0] == "OK", answer
        imap.logout()

    def contents(self, name: str) -> dict[int, Message]:
        """One mailbox, by UID."""
        return super().contents(self.typed(name))


class Courier(OldServer):
    """`users` have an INBOX each."""

    name = "courier"

    def __init__(self, users: Sequence[str]) -> None:
        super().__init__()
        self.pop3 = free_port()
        self._overlaid = Overlaid("courier", self.folder / "own")
        (self.folder / "userdb").write_text("".join(
            f"{user}\tuid={OWNER}|gid={OWNER}|home={self.home(user)}|imappw={_hashed()}|pop3pw={_hashed()}\n"
            for user in users))
        for user in users:
            self.home(user).mkdir()
            for words in ([], ["-q", f"{QUOTA_KIB * 1024}S,{QUOTA_MESSAGES}C"]):
                subprocess.run(self._overlaid.words("maildirmake.courier", *words, str(self.home(user) / "Maildir")),
                               check=True)
            subprocess.run(["chown", "-R", f"{OWNER}:{OWNER}", self.home(user)], check=True)

    def home(self, user: str) -> Path:
        """Where a user's mail is."""
        return self.folder / user

    def command(self) -> Sequence[str | Path]:
        return self._overlaid.words("/bin/sh", "-c", _BEGIN, "sh", str(self.folder), str(self.imap), str(self.pop3))

    def account(self, user: str) -> CourierAccount:
        server: Any = SimpleNamespace(server=SimpleNamespace(imap=self.imap))
        return CourierAccount(server, user)


def _hashed() -> str:
    """The password, as crypt(3) has it."""
    done = subprocess.run(["openssl", "passwd", "-6", PASSWORD], check=True, capture_output=True, text=True)
    return done.stdout.strip()
