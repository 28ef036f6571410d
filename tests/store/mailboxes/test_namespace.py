"""Names that mailboxes may be given (RFC 5198 §2, RFC 8264 §9.12 to §9.14), and those that have got others before."""

import pytest

from mboxlist.names import MailboxName
from store.errors import Problem, StoreError
from store.mailboxes import namespace

DECEIVING = ["a\u202eb", "a\u2066b", "a\u200bb", "a\ufeffb", "a\u200fb", "\U000e0041", "a\xadb", "Arch\u2060ive/x"]


@pytest.fixture
def alice(store):
    namespace.create_mailbox(store, MailboxName("alice", "Plain"))
    return store


@pytest.mark.parametrize("path", DECEIVING)
def test_no_new_mailbox_has_a_name_that_deceives(alice, path):
    name = MailboxName("alice", path)
    for work in (lambda: namespace.create_mailbox(alice, name),
                 lambda: namespace.rename_mailbox(alice, MailboxName("alice", "Plain"), name)):
        with pytest.raises(StoreError, match="not seen") as refused:
            work()
        assert refused.value.problem is Problem.BAD_NAME
    assert [entry.name.path for entry in alice.names("alice")] == ["INBOX", "Plain"]


@pytest.mark.parametrize("path", DECEIVING)
def test_one_that_is_there_is_used_and_renamed(alice, path):
    name = MailboxName("alice", path)
    namespace.insert_mailbox(alice, name, "primary", None)      # as an earlier version made it
    assert alice.entry(name).name == name
    namespace.rename_mailbox(alice, name, MailboxName("alice", "Now"))
    assert alice.entry(MailboxName("alice", "Now"))


@pytest.mark.parametrize("path", ["می\u200cخواهم", "👩\u200d👧", "עברית", "a\u3000b", "\uf8ff"])
def test_scripts_keep_what_they_need(alice, path):
    assert namespace.create_mailbox(alice, MailboxName("alice", path)).name.path == path
