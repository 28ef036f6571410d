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
from store.accounts.ldap.ldapprofiles import MapSettings
from store.check.wholecheck import check
from store.filtering import userscripts
from store.filtering.filters import Filters
from store.mailboxes import namespace
from store.store import Store
from store.users.provisioning import take_over_account
from tests.store.accounts.ldap.ldap_support import open_with_ldap, settings_for
from tests.support import ROOT
from tests.support.conversations.wire import Wire
from tests.support.servers.slapd import BASE, SCHEMAS, Slapd, person

pytestmark = pytest.mark.long

MAP = MapSettings("openldap", base=f"ou=people,{BASE}", group_filter="none")
JUNK = 'require "fileinto";\nif header :contains "subject" "junk" { fileinto "Junk"; }\n'


@pytest.fixture(scope="module")
def slapd() -> Iterator[Slapd]:
    with TemporaryDirectory(prefix="onecopy-") as folder, Slapd(
            Path(folder) / "slapd", schemas=[SCHEMAS / "misc.schema", ROOT / "docs/ldap/onecopy.schema"]) as running:
        ours = "objectClass: mailStoreUser"
        running.add("".join([person("alice", "secret", ours), person(
            "bob", "secret", ours, "mailSieveRuleSource: keep", "mailSieveSettings: redirects=1")]))
        running.change(written("alice", "add", JUNK))
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


def send(store: Store, user: str, subject: str) -> None:
    clock = Reactor()
    wire = Wire(factory(store, LmtpSettings(), clock, None), clock)
    wire.send(b"LHLO mx\r\nMAIL FROM:<a@example.net>\r\nRCPT TO:<%b@example.org>\r\nDATA\r\n" % user.encode())
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
