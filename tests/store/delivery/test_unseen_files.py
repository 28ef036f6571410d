"""A message comes whose content is in a file that nobody has looked at since databases were rebuilt."""

import errno
import os

import pytest
from attrs import evolve

from mboxlist.engine.transact import transact
from mboxlist.names import INBOX, MailboxName
from store.delivery.batch import usable
from store.errors import Problem, StoreError
from store.partition import filecontent
from store.tables.references import UNSEEN_TRACE
from tests.support.stores.stores import deliver

pytestmark = pytest.mark.few_folders
TRACE = b"Return-Path: <first@example.org>\nReceived: from a\n\tby b with LMTP\n"
OTHER = TRACE.replace(b"first", b"other")
BODY = b"Subject: hello\r\n\r\nHello.\r\n"


@pytest.fixture
def refs(store):
    """alice has the message, and only its file tells where its trace header ends."""
    deliver(store, BODY, "user/alice/INBOX", trace=TRACE)
    partition = store.partitions["primary"]
    (digest, record), = partition.refs.all(raw=True)
    transact(partition.env, lambda txn: partition.refs.write(digest, evolve(record, trace=UNSEEN_TRACE), txn))
    return partition.refs


def texts(store, user):
    entry = store.entry(MailboxName(user, INBOX))
    found = []
    for row in store.open_mailbox(entry).rows:
        with store.open_message(entry, row) as file:
            found.append(file.read(0, file.size))
    return found


@pytest.fixture
def unreadable(monkeypatch):
    """Has so many attempts to open a message file fail; what is left of them can be taken away."""
    whole = filecontent.privatefiles.open_regular

    def fail(times):
        left = [errno.EMFILE] * times

        def opened(path):
            if left:
                raise OSError(left.pop(), os.strerror(errno.EMFILE))
            return whole(path)

        monkeypatch.setattr(filecontent.privatefiles, "open_regular", opened)
        return left

    return fail


def test_who_copies_records_to_it_is_refused_while_it_cannot_be_read(store, refs, unreadable):
    partition = store.partitions["primary"]
    (digest, _), = refs.all(raw=True)
    left = unreadable(1000)
    with pytest.raises(StoreError) as refused:
        usable(partition, digest)
    assert refused.value.problem is Problem.UNAVAILABLE
    left.clear()
    assert usable(partition, digest).trace == len(TRACE)


@pytest.mark.parametrize("failures", [1, 1000])
def test_while_the_file_cannot_be_read_nobody_gets_the_trace_header_of_another(store, refs, unreadable, failures):
    left = unreadable(failures)
    outcome, = deliver(store, BODY, "user/bob/INBOX", trace=OTHER)
    left.clear()
    refused = isinstance(outcome, StoreError)
    assert refused == (failures > 1) and (not refused or outcome.problem is Problem.UNAVAILABLE)
    assert texts(store, "alice") == [TRACE + BODY] and texts(store, "bob") == [OTHER + BODY] * (not refused)
    (_, record), = refs.all(raw=True)
    assert record.trace == (UNSEEN_TRACE if refused else len(TRACE))
