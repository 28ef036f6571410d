"""Python's imapclient: a copy of one account in another with UIDs compared, as imapsync does it, and a broad tour."""

import re
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path

import imapclient
import pytest
from attrs import evolve, field, frozen
from imapclient import IMAPClient, imap_utf7
from imapclient.exceptions import IMAPClientError, LoginError

from tests.support.clients import clients
from tests.support.clients.clients import HOST, Account, Mail, Message
from tests.support.servers.certificates import Authority
from tests.support.servers.server import PASSWORD

FLAGS = (r"\Seen", r"\Answered", r"\Flagged", r"\Deleted", r"\Draft", "$Forwarded", "work", "NonJunk")
TIME = 180
WEST = timezone(timedelta(hours=-3, minutes=-30))


def connected(account: Account, *, starttls: bool = False) -> IMAPClient:
    """Logged in, under TLS with a certificate that is verified."""
    mail, context = account.mail, account.mail.authority.trusted()
    if starttls:
        client = IMAPClient(HOST, mail.starttls, ssl=False, timeout=TIME)
        client.starttls(context)
    else:
        client = IMAPClient(HOST, mail.tls, ssl=True, ssl_context=context, timeout=TIME)
    client.normalise_times = False
    client.login(account.user, PASSWORD)
    return client


# Copying

@frozen
class Copied:
    """What one run of `synchronise` did."""

    folders: int = 0
    messages: int = 0
    flags: int = 0
    uids: dict[str, list[int]] = field(factory=dict)       # by folder (in modified UTF-7), what APPENDUID said


def synchronise(source: IMAPClient, target: IMAPClient) -> Copied:
    """Bring what `target` has not; a message is known by its header, its size and which of several like it it is."""
    done = Copied()
    for _, _, name in source.list_folders():
        source.select_folder(name, readonly=True)
        if not target.folder_exists(name):
            target.create_folder(name)
            target.subscribe_folder(name)
            done = evolve(done, folders=done.folders + 1)
        validity = target.select_folder(name)[b"UIDVALIDITY"]
        theirs, ours = by_identity(source), by_identity(target)
        for identity, (uid, flags) in theirs.items():
            if identity not in ours:
                found = source.fetch([uid], ["BODY.PEEK[]", "INTERNALDATE"])[uid]
                answer = target.append(name, found[b"BODY[]"], flags, found[b"INTERNALDATE"])
                told = re.search(rb"\[APPENDUID (\d+) (\d+)\]", answer)
                assert told and int(told[1]) == validity, answer
                done.uids.setdefault(imap_utf7.encode(name).decode(), []).append(int(told[2]))
                done = evolve(done, messages=done.messages + 1)
            elif ours[identity][1] != flags:
                target.set_flags([ours[identity][0]], flags)
                done = evolve(done, flags=done.flags + 1)
    return done


def by_identity(client: IMAPClient) -> dict[tuple, tuple[int, set[bytes]]]:
    """The UID and the flags of each message of the selected folder."""
    found, seen = {}, Counter()
    for uid, data in client.fetch(client.search(), ["BODY.PEEK[HEADER]", "RFC822.SIZE", "FLAGS"]).items():
        like = data[b"BODY[HEADER]"], data[b"RFC822.SIZE"]
        seen[like] += 1
        found[*like, seen[like]] = uid, set(data[b"FLAGS"]) - {rb"\Recent"}
    return found


def test_a_copy_of_an_account(mail: Mail) -> None:
    source, target = mail.accounts(2)
    source.create(*clients.NAMES)
    twins = [Message(b"Subject: twin\r\n\r\nsame\r\n", [flag], datetime(1999, 12, 31, 23, 59, 59, tzinfo=WEST))
             for flag in (r"\Seen", "work")]
    sent = {"INBOX": [*clients.ordinary(60, FLAGS), *clients.odd(), *twins, clients.huge()],
            **{name: clients.ordinary(number, FLAGS, first=1000 * number)
               for number, name in enumerate(clients.NAMES, 1)}}
    for name, found in sent.items():
        source.put(name, found)
    target.put("INBOX", sent["INBOX"][:10])            # a copy that was broken off
    target.run("INBOX", r"UID STORE 3 +FLAGS (\Deleted)", "UID EXPUNGE 3", "UID STORE 5 FLAGS (other)")
    with connected(source) as far, connected(target, starttls=True) as near:
        done = synchronise(far, near)
        assert (done.folders, done.messages) == (len(sent) - 1, sum(map(len, sent.values())) - 9)
        assert done.flags == 1
        assert {name: sorted(target.contents(name))[-len(uids):] for name, uids in done.uids.items()} == done.uids
        # RFC 3501 §2.3.1.1: UIDs ascend, and 3 does not come again
        assert done.uids["INBOX"] == list(range(11, len(sent["INBOX"]) + 2))
        clients.same(target.boxes(), source.boxes())
        clients.same(target.boxes(), {name: Counter(found) for name, found in sent.items()})
        before = source.states(), target.states()
        assert synchronise(far, near) == Copied()
        assert (source.states(), target.states()) == before
        source.run("INBOX", "UID STORE 4 +FLAGS.SILENT (later)", r"UID STORE 6 -FLAGS.SILENT (\Seen)")
        source.put("nil", new := clients.ordinary(1, FLAGS, first=90_000))
        done = synchronise(far, near)
        assert (done.folders, done.messages, done.flags) == (0, 1, 1 + (r"\Seen" in sent["INBOX"][5].flags))
        assert done.uids == {"nil": [len(sent["nil"]) + len(new)]}
        clients.same(target.boxes(), source.boxes())


# A tour

LETTERS = [
    b"Date: Fri, 1 Mar 2024 10:00:00 +0100\r\nFrom: =?utf-8?Q?=C3=84nne?= <anne@example.org>\r\n"
    b"To: alice@example.org\r\nSubject: =?utf-8?Q?Gr=C3=BC=C3=9Fe?=\r\nMessage-ID: <1@example.org>\r\n\r\nhello\r\n",
    b"Date: Fri, 1 Mar 2024 12:00:00 +0100\r\nFrom: bob@example.org\r\nSubject: Re: =?iso-8859-1?Q?Gr=FC=DFe?=\r\n"
    b"Message-ID: <2@example.org>\r\nIn-Reply-To: <1@example.org>\r\n"
    b"Content-Type: text/plain; charset=iso-8859-1\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n"
    b"Stra=DFe " + b"x" * 300 + b"\r\n",
    b"Date: Thu, 29 Feb 2024 08:00:00 +0000\r\nFrom: \"Carol, C.\" <carol@example.org>\r\nSubject: abacus\r\n"
    b"Message-ID: <3@example.org>\r\nMIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=edge\r\n\r\n"
    b"--edge\r\nContent-Type: text/plain\r\n\r\nfirst\r\n--edge\r\nContent-Type: image/png; name=p.png\r\n"
    b"Content-Transfer-Encoding: base64\r\n\r\niVBORw0KGgo=\r\n--edge--\r\n"]


@pytest.fixture(scope="module")
def account(mail: Mail) -> Account:
    return mail.accounts(1)[0]


@pytest.fixture
def client(account: Account, request: pytest.FixtureRequest) -> Iterator[IMAPClient]:
    """With a folder of the test's name selected, in which the letters are."""
    name = request.node.name
    account.create(name)
    account.put(name, [Message(octets) for octets in LETTERS])
    with connected(account) as client:
        client.select_folder(name)
        yield client


def test_before_login(mail: Mail, account: Account) -> None:
    with IMAPClient(HOST, mail.starttls, ssl=False, timeout=TIME) as client:
        assert client.welcome.startswith(b"* OK")
        assert client.has_capability("STARTTLS") and client.has_capability("IMAP4rev2")
        assert not client.has_capability("MOVE")
        client.starttls(mail.authority.trusted())
        assert not client.has_capability("STARTTLS") and client.has_capability("AUTH=PLAIN")
        with pytest.raises(LoginError):
            client.login(account.user, "not it")
        client.plain_login(account.user, PASSWORD)
        client.select_folder("INBOX")


def test_what_is_announced(client: IMAPClient) -> None:
    for name in ("IDLE", "MOVE", "SORT", "THREAD=REFERENCES", "QUOTA", "ACL", "CONDSTORE", "QRESYNC", "UIDPLUS",
                 "NAMESPACE", "ID", "SPECIAL-USE", "LIST-STATUS", "MULTIAPPEND", "ESEARCH", "UNSELECT"):
        assert client.has_capability(name), name
    personal, others, shared = client.namespace()
    assert (personal, others, shared) == ((("", "/"),), (("user/", "/"),), (("public/", "/"),))
    identity = client.id_({"name": "imapclient", "version": imapclient.__version__})
    assert identity is not None
    client.unselect_folder()
    assert client.enable("CONDSTORE", "NONSENSE") == [b"CONDSTORE"]


def test_folders(client: IMAPClient, account: Account) -> None:
    top = "test_folders/Ω & ünïcödé 🜁"
    client.create_folder(top)
    client.create_folder(top + "/below")
    client.subscribe_folder(top)
    names = {name: flags for flags, separator, name in client.list_folders("", "test_folders*")}
    assert rb"\HasChildren" in names[top] and rb"\HasNoChildren" in names[top + "/below"]
    assert [name for _, _, name in client.list_sub_folders("", "test_folders/*")] == [top]
    client.rename_folder(top, "test_folders/Ψ")
    assert client.folder_exists("test_folders/Ψ/below") and not client.folder_exists(top)
    # U+03A8 in modified base64: 0000 0011 1010 1000 and two bits of nothing
    assert "test_folders/&A6g-" in account.names()
    with pytest.raises(IMAPClientError, match="ALREADYEXISTS"):
        client.create_folder("test_folders/Ψ")
    client.delete_folder("test_folders/Ψ/below")
    client.unsubscribe_folder(top)
    assert client.list_sub_folders("", "test_folders/*") == []
    with account.login() as imap:
        imap.ok(r"CREATE test_folders/Papierkorb (USE (\Trash))")
    assert client.find_special_folder(rb"\Trash") == "test_folders/Papierkorb"
    assert client.folder_status("test_folders", ["MESSAGES", "UIDNEXT", "UNSEEN", "SIZE"]) == {
        b"MESSAGES": 3, b"UIDNEXT": 4, b"UNSEEN": 3, b"SIZE": sum(map(len, LETTERS))}


def test_fetching(client: IMAPClient) -> None:
    found = client.fetch([1, 2, 3], ["ENVELOPE", "BODYSTRUCTURE", "RFC822.SIZE", "INTERNALDATE", "FLAGS"])
    assert [found[uid][b"RFC822.SIZE"] for uid in (1, 2, 3)] == [len(octets) for octets in LETTERS]
    envelope = found[1][b"ENVELOPE"]
    assert (envelope.subject, envelope.message_id) == (b"=?utf-8?Q?Gr=C3=BC=C3=9Fe?=", b"<1@example.org>")
    assert (envelope.from_[0].mailbox, envelope.from_[0].host) == (b"anne", b"example.org")
    assert envelope.reply_to == envelope.sender == envelope.from_ and envelope.cc is None       # RFC 3501 §7.4.2
    assert found[2][b"ENVELOPE"].in_reply_to == b"<1@example.org>"
    assert str(found[3][b"ENVELOPE"].from_[0]) == '"Carol, C." <carol@example.org>'
    assert found[3][b"BODYSTRUCTURE"].is_multipart
    parts = found[3][b"BODYSTRUCTURE"][0]
    assert [b"/".join(part[:2]).lower() for part in parts] == [b"text/plain", b"image/png"]
    assert found[1][b"INTERNALDATE"] == clients.DATE
    assert client.fetch([3], ["BODY[2.MIME]", "BODY.PEEK[1]", "BODY[2]<2.4>"])[3] == {
        b"SEQ": 3, b"BODY[2.MIME]": b"Content-Type: image/png; name=p.png\r\nContent-Transfer-Encoding: base64\r\n\r\n",
        b"BODY[1]": b"first", b"BODY[2]<2>": b"BORw", b"FLAGS": (rb"\Recent", rb"\Seen")} | seen(client)
    assert client.fetch([1], ["BODY.PEEK[HEADER.FIELDS (Subject TO)]"])[1][b"BODY[HEADER.FIELDS (SUBJECT TO)]"] == \
        b"To: alice@example.org\r\nSubject: =?utf-8?Q?Gr=C3=BC=C3=9Fe?=\r\n\r\n"
    assert client.search("UNSEEN") == [1, 2]


def seen(client: IMAPClient) -> dict[bytes, tuple[bytes, ...]]:
    """The flags of message 3 in the order in which they are told."""
    flags = client.get_flags([3])[3]
    assert set(flags) - {rb"\Recent"} == {rb"\Seen"}
    return {b"FLAGS": flags}


def test_searching(client: IMAPClient) -> None:
    client.add_flags([2], [r"\Flagged", "work"])
    for criteria, wanted in [
            (["SUBJECT", "GRÜSSE"], []), (["SUBJECT", "GRÜßE"], [1, 2]), (["FROM", "änne"], [1]),
            (["BODY", "straße"], [2]), (["TEXT", "Straße", "NOT", ["KEYWORD", "work"]], []),
            (["OR", ["FROM", "carol"], ["HEADER", "In-Reply-To", "<1@"]], [2, 3]),
            (["SENTSINCE", date(2024, 3, 1)], [1, 2]), (["SENTBEFORE", date(2024, 3, 1)], [3]),
            (["ON", date(2024, 3, 5)], [1, 2, 3]), (["LARGER", len(LETTERS[0]), "UNFLAGGED"], [3]),
            (["UID", "2:*", "KEYWORD", "WORK"], [2]), (["NOT", "KEYWORD", "work"], [1, 3])]:
        assert client.search(criteria, "UTF-8") == wanted, criteria
    with pytest.raises(IMAPClientError, match="BADCHARSET"):
        client.search([b"SUBJECT", b"x"], "X-UNKNOWN")


def test_sorting_and_threading(client: IMAPClient) -> None:
    assert client.sort("DATE") == [3, 1, 2]
    assert client.sort(["REVERSE SIZE"]) == sorted([1, 2, 3], key=lambda uid: -len(LETTERS[uid - 1]))
    assert client.sort(["SUBJECT", "REVERSE DATE"]) == [3, 2, 1]
    assert client.sort("FROM", ["SUBJECT", "Grüße"]) == [1, 2]
    assert client.thread() == ((3,), (1, 2))
    assert client.thread("ORDEREDSUBJECT", ["SUBJECT", "Grüße"]) == ((1, 2),)


def test_changes(client: IMAPClient, account: Account) -> None:
    assert set(client.set_flags([1], [r"\Seen", "$Label1"])[1]) - {rb"\Recent"} == {rb"\Seen", b"$Label1"}
    client.remove_flags([1], [r"\Seen"], silent=True)
    client.create_folder("elsewhere")
    client.copy([1, 3], "elsewhere")
    client.move([2], "elsewhere")
    assert account.contents("elsewhere") == {
        1: Message(LETTERS[0], ["$Label1"]), 2: Message(LETTERS[2]), 3: Message(LETTERS[1])}
    client.delete_messages([1, 3])
    client.expunge([3])
    assert client.search() == [1]
    assert client.expunge()[1] == [(1, b"EXPUNGE")]
    with pytest.raises(IMAPClientError, match="TRYCREATE"):
        client.append("nowhere", b"Subject: x\r\n\r\n")
    _, (answer,) = client.multiappend("elsewhere", [LETTERS[0], {"msg": LETTERS[1], "flags": [rb"\Draft"]}])
    assert re.match(rb"\[APPENDUID \d+ 4:5\]", answer), answer
    assert account.contents("elsewhere")[5].flags == {r"\Draft"}
    when = datetime(2010, 10, 10, 10, 10, 10, tzinfo=WEST)
    client.append("elsewhere", LETTERS[2], ["work"], when)
    assert account.contents("elsewhere")[6] == Message(LETTERS[2], ["work"], when.astimezone(UTC))
    client.unselect_folder()


def test_idling(client: IMAPClient, account: Account) -> None:
    client.idle()
    account.put("test_idling", [Message(b"Subject: new\r\n\r\n")])
    heard = heard_until(client, (4, b"EXISTS"))
    account.run("test_idling", r"STORE 2 +FLAGS (\Deleted)", "EXPUNGE")
    heard += heard_until(client, (2, b"EXPUNGE"))
    assert (2, b"FETCH", (b"FLAGS", (rb"\Deleted",))) in [(*each[:2], *(without_recent(part) for part in each[2:]))
                                                         for each in heard]
    client.idle_done()
    assert client.search() == [1, 3, 4]


def heard_until(client: IMAPClient, wanted: tuple) -> list[tuple]:
    """What comes during IDLE, up to and with what is wanted."""
    heard = []
    while wanted not in heard:
        news = client.idle_check(TIME)
        assert news, f"nothing but {heard} in {TIME} s"
        heard += news
    return heard


def without_recent(part: object) -> object:
    """A list of flags without \\Recent."""
    if not isinstance(part, tuple):
        return part
    return tuple(tuple(flag for flag in each if flag != rb"\Recent") if isinstance(each, tuple) else each
                 for each in part)


def test_changes_since(client: IMAPClient, account: Account) -> None:
    highest = client.select_folder("test_changes_since")[b"HIGHESTMODSEQ"]
    modseqs = {uid: data[b"MODSEQ"][0] for uid, data in client.fetch([1, 2, 3], ["MODSEQ"]).items()}
    assert max(modseqs.values()) == highest
    account.run("test_changes_since", r"UID STORE 2 +FLAGS (\Flagged)")
    changed = client.fetch([1, 2, 3], ["FLAGS"], [f"CHANGEDSINCE {highest}"])
    assert list(changed) == [2] and rb"\Flagged" in changed[2][b"FLAGS"] and changed[2][b"MODSEQ"][0] > highest
    assert client.search(["MODSEQ", str(highest + 1)]) == [2]
    assert client.search(["MODSEQ", str(highest)]) == [uid for uid in (1, 2, 3) if uid == 2 or modseqs[uid] == highest]


def test_quota_and_rights(client: IMAPClient, mail: Mail, account: Account) -> None:
    other, = mail.accounts(1)
    mail.server.command("quota", "set", account.user, "--octets", "100M", "--messages", "5000")
    roots, quotas = client.get_quota_root("INBOX")
    assert roots.mailbox == "INBOX" and roots.quota_roots == [account.user]
    kinds = {quota.resource: quota.limit for quota in quotas}
    assert kinds == {"STORAGE": 100 * 1024, "MESSAGE": 5000}
    assert quotas == client.get_quota("INBOX")
    folder = "test_quota_and_rights"
    client.setacl(folder, other.user, "lrsw")
    assert {who.decode(): set(rights.decode()) for who, rights in client.getacl(folder)} == {
        account.user: set("lrswipkxteacd"), other.user: set("lrsw")}
    with connected(other, starttls=True) as guest:
        theirs = f"user/{account.user}/{folder}"
        assert theirs in [name for _, _, name in guest.list_folders()]
        assert guest.select_folder(theirs)[b"EXISTS"] == 3
        guest.add_flags([1], [r"\Seen"])
        with pytest.raises(IMAPClientError, match="NOPERM"):
            guest.append(theirs, b"Subject: not allowed\r\n\r\n")
    client.setacl(folder, other.user, '""')
    with connected(other) as guest, pytest.raises(IMAPClientError, match="NONEXISTENT"):
        guest.select_folder(theirs)


def test_the_certificate_is_looked_at(mail: Mail, tmp_path: Path) -> None:
    """Or the tests with TLS would prove little."""
    with pytest.raises(Exception, match="(?i)certificate verify failed"):
        IMAPClient(HOST, mail.tls, ssl=True, ssl_context=Authority(tmp_path, "other").trusted(), timeout=TIME)
