"""curl: IMAP URLs (RFC 5092) and commands of one's own, with STARTTLS and with TLS from the start."""

from pathlib import Path

import pytest

from tests.support.clients import clients
from tests.support.clients.clients import HOST, Account, Mail, Message
from tests.support.servers.server import PASSWORD
from tests.support.stores import messages

LETTERS = [Message(b"Subject: first\r\nFrom: a@example.org\r\n\r\nshort\r\n", [r"\Flagged"]),
           Message(messages.make(5, 4, 3000)), Message(b"\r\nno header\r\n", ["work"]), clients.huge(1 << 20)]


class Curl:
    """curl for one account; it must verify the certificate."""

    def __init__(self, account: Account, folder: Path, *, starttls: bool) -> None:
        mail = account.mail
        self.account, self.folder = account, folder
        self._base = f"imap://{HOST}:{mail.starttls}/" if starttls else f"imaps://{HOST}:{mail.tls}/"
        self._options = ["--silent", "--show-error", "--max-time", str(clients.LIMIT), "--ssl-reqd",
                         "--cacert", str(mail.authority.file), "--user", f"{account.user}:{PASSWORD}"]

    def __call__(self, path: str, *options: str, request: str = "", status: int = 0) -> bytes:
        """What it writes for one URL."""
        out = self.folder / "out"
        out.write_bytes(b"")
        clients.run(["curl", *self._options, *options, *(["--request", request] if request else []), "--output", out,
                     self._base + path], self.folder, status=status)
        return out.read_bytes()


@pytest.fixture(scope="module")
def account(mail: Mail) -> Account:
    account, = mail.accounts(1)
    account.create("Gr&APwA3w-e", "back\\slash", "A &- B/below")
    account.put("INBOX", LETTERS)
    return account


@pytest.fixture(params=["starttls", "tls"])
def curl(account: Account, tmp_path: Path, request: pytest.FixtureRequest) -> Curl:
    return Curl(account, tmp_path, starttls=request.param == "starttls")


def test_listing(curl: Curl) -> None:
    assert curl("").splitlines() == [
        rb'* LIST (\HasNoChildren) "/" INBOX', rb'* LIST (\Noselect \HasChildren) "/" "A &- B"',
        rb'* LIST (\HasNoChildren) "/" "A &- B/below"', rb'* LIST (\HasNoChildren) "/" Gr&APwA3w-e',
        rb'* LIST (\HasNoChildren) "/" "back\\slash"']
    assert curl("", request='LSUB "" *') == b""


def test_fetching(curl: Curl) -> None:
    for uid, message in enumerate(LETTERS, 1):
        assert curl(f"INBOX;UID={uid}") == message.octets
    head, _, text = LETTERS[1].octets.partition(b"\r\n\r\n")
    assert curl("INBOX;UID=2;SECTION=TEXT") == text
    assert curl("INBOX;UID=2;SECTION=HEADER") == head + b"\r\n\r\n"
    # RFC 3501 §6.4.5: partial, also beyond the end
    assert curl("INBOX;UID=2;SECTION=TEXT;PARTIAL=10.20") == text[10:30]
    assert curl(f"INBOX;UID=4;PARTIAL={len(LETTERS[3].octets) - 5}.100") == LETTERS[3].octets[-5:]
    assert curl("INBOX;MAILINDEX=3") == LETTERS[2].octets
    assert curl("INBOX;UID=99", status=78) == b""
    validity = curl("", request="STATUS INBOX (UIDVALIDITY)").split()[-1].rstrip(b")").decode()
    assert curl(f"INBOX;UIDVALIDITY={validity}/;UID=1") == LETTERS[0].octets
    assert curl(f"INBOX;UIDVALIDITY={int(validity) + 1}/;UID=1", status=78) == b""
    assert curl.account.contents("INBOX")[1].flags >= {r"\Seen", r"\Flagged"}


def test_searching(curl: Curl) -> None:
    assert curl("INBOX?SUBJECT%20first") == b"* SEARCH 1\r\n"
    assert curl("INBOX?KEYWORD%20work") == b"* SEARCH 3\r\n"
    assert curl("INBOX", request="UID SEARCH LARGER 100000") == b"* SEARCH 4\r\n"
    assert curl("INBOX", request="SEARCH SUBJECT nothing") == b"* SEARCH\r\n"


def test_appending(curl: Curl) -> None:
    new = messages.make(6, 3, 20_000)
    before = curl.account.contents("Gr&APwA3w-e")
    (curl.folder / "letter").write_bytes(new)
    curl("Gr%26APwA3w-e", "--upload-file", "letter")
    (curl.folder / "letter").write_bytes(clients.huge().octets)
    curl("Gr%26APwA3w-e", "--upload-file", "letter")
    found = curl.account.contents("Gr&APwA3w-e")
    assert [message.octets for uid, message in found.items() if uid not in before] == [new, clients.huge().octets]
    assert curl("nowhere", "--upload-file", "letter", status=25) == b""


def test_commands(curl: Curl) -> None:
    curl("", request="CREATE made")
    curl("INBOX", request="UID COPY 1,3 made")
    assert curl("made", request="STORE 1 +Flags \\Deleted").startswith(b"* 1 FETCH (FLAGS (")
    assert curl("made", request="FETCH 2 (UID RFC822.SIZE)") == b"* 2 FETCH (UID 2 RFC822.SIZE 13)\r\n"
    assert curl("made", request="EXPUNGE") == b"* 1 EXPUNGE\r\n"
    assert curl("back%5cslash", request="NOOP") == b""
    assert curl("", request="STATUS made (MESSAGES UIDNEXT)") == b"* STATUS made (MESSAGES 1 UIDNEXT 3)\r\n"
    curl("", request="DELETE made")
    assert curl("", request="NOSUCH", status=21) == b""
