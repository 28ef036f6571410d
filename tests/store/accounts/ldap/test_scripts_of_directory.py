"""Scripts in a real slapd (mailSieveRuleSource): they sort the first message of a user, and change as it does.
"""

from base64 import b64encode
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from twisted.internet.task import Clock as Reactor

from lmtp.protocol import factory
from lmtp.settings import Settings as LmtpSettings
from mboxlist.names import MailboxName
from store.accounts.ldap.ldapdirectory import LdapDirectory
from store.accounts.ldap.ldappool import Servers
from store.accounts.ldap.ldapprofiles import MapSettings
from store.check.wholecheck import check
from store.errors import Problem, StoreError
from store.filtering import userscripts
from store.filtering.externallists import ExternalLists
from store.filtering.filters import Filters
from store.filtering.sievesettings import Settings
from store.mailboxes import namespace
from store.store import Store
from store.users.provisioning import take_over_account
from tests.store.accounts.ldap.ldap_support import open_with_ldap, settings_for
from tests.support import ROOT
from tests.support.conversations.wire import Wire
from tests.support.faults.planted import Faults
from tests.support.servers.slapd import BASE, SCHEMAS, Slapd, person

pytestmark = [pytest.mark.long, pytest.mark.few_folders]

MAP = MapSettings("openldap", base=f"ou=people,{BASE}", group_base=f"ou=groups,{BASE}")
GROUPS = f"""\
dn: ou=groups,{BASE}
objectClass: organizationalUnit
ou: groups

dn: cn=Sales Team,ou=groups,{BASE}
objectClass: groupOfNames
objectClass: extensibleObject
cn: Sales Team
mail: sales@example.org
member: uid=alice,ou=people,{BASE}
member: uid=bob,ou=people,{BASE}

dn: cn=board,ou=groups,{BASE}
objectClass: groupOfNames
objectClass: extensibleObject
cn: board
mail: board@example.org
member: uid=bob,ou=people,{BASE}

"""
JUNK = 'require "fileinto";\nif header :contains "subject" "junk" { fileinto "Junk"; }\n'


@pytest.fixture(scope="module")
def slapd() -> Iterator[Slapd]:
    with TemporaryDirectory(prefix="onecopy-") as folder, Slapd(
            Path(folder) / "slapd", schemas=[SCHEMAS / "misc.schema", ROOT / "docs/ldap/onecopy.schema"]) as running:
        ours = "objectClass: mailStoreUser"
        running.add("".join([person("alice", "secret", ours), person(
            "bob", "secret", ours, "mailSieveRuleSource: keep", "mailSieveSettings: redirects=1")]))
        running.change(written("alice", "add", JUNK))
        running.add(GROUPS)
        yield running


def written(user: str, how: str, *scripts: str) -> str:
    values = "".join(f"mailSieveRuleSource:: {b64encode(script.encode()).decode()}\n" for script in scripts)
    return f"dn: uid={user},ou=people,{BASE}\nchangetype: modify\n{how}: mailSieveRuleSource\n{values}-\n"


@pytest.fixture
def store(slapd: Slapd, tmp_path: Path) -> Iterator[Store]:
    opened, directory = open_with_ldap(tmp_path / "store", settings_for(tmp_path, slapd), map_settings=MAP)
    directory.on_found = partial(take_over_account, opened)
    yield opened
    assert check(opened) == []
    opened.close()


def send(store: Store, user: str, subject: str, sender: str = "a@example.net") -> None:
    clock = Reactor()
    wire = Wire(factory(store, LmtpSettings(), clock, None), clock)
    wire.send(b"LHLO mx\r\nMAIL FROM:<%b>\r\nRCPT TO:<%b@example.org>\r\nDATA\r\n" % (
        sender.encode(), user.encode()))
    wire.received()
    wire.send(b"Subject: %b\r\n\r\n.\r\n" % subject.encode())
    assert wire.received().startswith(b"250 2.0.0 ")


def count(store: Store, user: str, path: str) -> int:
    entry = store.mailboxes.find(MailboxName(user, path))
    return 0 if entry is None else store.open_mailbox(entry).state.messages


def test_the_first_message_and_those_after_a_change(store: Store, slapd: Slapd) -> None:
    directory = store.directory
    assert isinstance(directory, LdapDirectory)
    send(store, "alice", "junk")
    assert (count(store, "alice", "INBOX"), count(store, "alice", "Junk")) == (1, 0)        # there is no Junk yet
    namespace.create_mailbox(store, MailboxName("alice", "Junk"))
    send(store, "alice", "junk again")
    assert count(store, "alice", "Junk") == 1
    slapd.change(written("alice", "replace", "discard;", "stop;"))
    send(store, "alice", "junk to the third")               # what the directory said is still believed
    assert count(store, "alice", "Junk") == 2
    directory.flush()
    send(store, "alice", "gone")
    assert (count(store, "alice", "INBOX"), count(store, "alice", "Junk")) == (1, 2)
    userscripts.put(store, directory.find("alice"), "mine", b"keep;")
    userscripts.activate(store, "alice", "mine")            # the user's own word comes last, and counts
    send(store, "alice", "kept")
    assert count(store, "alice", "INBOX") == 2
    slapd.change(written("alice", "replace"))
    directory.flush()
    userscripts.activate(store, "alice", "")
    send(store, "alice", "kept, too")
    assert count(store, "alice", "INBOX") == 3 and Filters.of(store).trees("alice") == ()
    slapd.change(written("alice", "add", JUNK))


def test_one_that_is_none_keeps_mail(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    send(store, "bob", "hello")
    assert count(store, "bob", "INBOX") == 1
    assert "the directory's script of bob cannot be run, mail is kept: line 1, column 5" in caplog.text
    assert Filters.of(store).settings_of("bob").redirects == 1


@pytest.mark.parametrize("name, expected", [
    (f"ldap:///cn=Sales%20Team,ou=groups,{BASE}", True), (f"cn=sales  team , ou=Groups,{BASE}", True),
    (f"ldap:///cn=Sales%20Team,ou=groups,{BASE}?member", True), ("mailto:Sales@Example.org", True),
    ("sales@example.org", True), ("tag:example.org,2026:sales%20team", True),
    # of these alice is none: they look as what is not there
    (f"cn=board,ou=groups,{BASE}", False), ("mailto:board@example.org", False), ("tag:example.org,2026:board", False),
    (f"cn=none,ou=groups,{BASE}", False), ("none@example.org", False), ("alice@example.org", False),
    (f"cn=Sales Team,ou=people,{BASE}", False), (f"ldap://127.0.0.1/cn=Sales%20Team,ou=groups,{BASE}", False),
    ("cn=*", False), ("*@example.org", False)])
def test_names_of_lists(store: Store, name: str, expected: bool) -> None:
    assert store.directory.fetch("alice") is not None
    found = ExternalLists(store, Settings(), "alice", may_wait=True)
    assert found.has(name) is expected and found.holds(name, "bob@example.org") is expected
    assert not found.holds(name, "stranger@example.net")


def test_mail_from_a_member_of_a_list(store: Store, faults: Faults) -> None:
    """The first message has the directory asked, in a thread that may wait for it; the next ones find what it said."""
    directory = store.directory
    send(store, "alice", "makes the mailbox")
    namespace.create_mailbox(store, MailboxName("alice", "Team"))
    userscripts.put(store, directory.find("alice"), "list", b'require ["extlists", "envelope", "fileinto"];'
                    b'if envelope :list "from" "mailto:sales@example.org" { fileinto "Team"; }')
    userscripts.activate(store, "alice", "list")
    asked, paces = [], []
    faults.before(Servers, "search", lambda servers, base, filter, *_, **__: asked.append(filter))
    faults.before(Filters, "_decide", lambda *given: paces.append(given[-1].may_wait))
    send(store, "alice", "one", "bob@example.org")
    assert count(store, "alice", "Team") == 1 and paces == [False, True]
    assert any("(mail=sales@example.org)" in one for one in asked) and any("bob" in one for one in asked)
    asked.clear(), paces.clear()
    send(store, "alice", "two", "bob@example.org")
    assert count(store, "alice", "Team") == 2 and paces == [False] and asked == []
    send(store, "alice", "three", "stranger@example.net")
    assert count(store, "alice", "Team") == 2


def test_a_directory_that_does_not_answer_keeps_mail(store: Store, faults: Faults,
                                                     caplog: pytest.LogCaptureFixture) -> None:
    send(store, "alice", "makes the mailbox")
    userscripts.put(store, store.directory.find("alice"), "list", b'require ["extlists", "envelope"];'
                    b'if envelope :list "from" "group:sales team" { discard; }')
    userscripts.activate(store, "alice", "list")
    def fail(*_: object, **__: object) -> None:
        raise StoreError(Problem.UNAVAILABLE)
    faults.around(Servers, "search", lambda real, *_, **__: fail())
    send(store, "alice", "one", "bob@example.org")
    assert count(store, "alice", "INBOX") == 3              # one before, this one, and a note to its owner
    assert "the directory does not answer, which has the lists that the script asks about" in caplog.text
