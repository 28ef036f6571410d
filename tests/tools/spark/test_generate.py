"""A generated store is whole, has what it says it has, and is the same for the same seed."""

import hashlib

import numpy as np
import pytest

from mboxlist.names import MailboxName
from store.check.wholecheck import check
from store.errors import Problem, StoreError
from store.mailboxes import deletion, namespace, subscribing
from store.opening import open_store
from tests.support.stores.stores import SMALL
from tools.spark.generate.generator import Shape, generate
from tools.spark.generate.samplemail import message

SHAPE = Shape(messages=400, users=13, references=6, seed=3, small=True)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    root = tmp_path_factory.mktemp("generated") / "store"
    assert generate(root, SHAPE) == 2400
    return root


def view(root):
    """Message files, and all records by mailbox."""
    store = open_store(root, SMALL)
    partition = store.partitions["primary"]
    files = {path.name: path.read_bytes() for path in (root / "partitions/primary/messages").glob("?/??/*")}
    boxes = {str(entry.name): (entry, partition.state(entry.id).uidnext, store.open_mailbox(entry).rows.tobytes())
             for entry in store.mailboxes.all()}
    store.close()
    return files, boxes


def test_what_is_in_it(made):
    store = open_store(made, SMALL)
    assert check(store) == []
    partition = store.partitions["primary"]
    entries = list(store.mailboxes.all())
    rows = np.concatenate([store.open_mailbox(entry).rows for entry in entries])
    records = dict(partition.refs.all())
    assert len(records) == 400 and all(record.references for record in records.values())
    assert len(rows) == 2400 == sum(record.references for record in records.values())
    assert len(list(store.directory.all())) == 13
    assert rows["head"].any() and rows["header_length"].any() and rows["keywords"].any() and (rows["zone"] < 0).any()
    for flag in (1, 2, 4, 8, 16):
        assert 0 < np.count_nonzero(rows["flags"] & flag) < len(rows)
    assert any(entry.acl for entry in entries) and any(entry.special_use == "\\Sent" for entry in entries)
    assert any(list(partition.readers.all(entry.id)) for entry in entries)
    assert any(state.uidnext - 1 > state.messages > 0 for _, state in partition.all_states())      # gaps
    assert store.mailboxes.find(MailboxName.parse("public/news")) is not None
    assert {name.partition("@")[2] for name in (entry.name.owner for entry in entries)} == {
        "", "example.com", "example.net"}
    assert any(use.octet_limit > 0 for _, use in partition.quotas.all()) and subscribing.subscriptions(store,
                                                                                                       "user00001")
    assert partition.quotas.has("user00005/Archive")
    new = namespace.create_mailbox(store, MailboxName.parse("user/user00000/new"))
    assert new.id == max(entry.id for entry in entries) + 1
    assert new.uidvalidity > max(entry.uidvalidity for entry in entries)
    assert partition.serials.next_serial() > max(record.serial for record in records.values())
    deletion.delete_mailbox(store, new.name)
    store.close()


def test_files_are_named_by_the_digests_of_their_contents(made):
    for number in range(0, SHAPE.messages, 37):
        mail = message(SHAPE.seed, number, small=True)
        name = hashlib.blake2b(mail.content, digest_size=32).hexdigest()
        assert (made / f"partitions/primary/messages/{name[0]}/{name[1:3]}/{name}").read_bytes() == \
            mail.trace + mail.content


def test_the_same_seed_makes_the_same_store(tmp_path):
    """However many processes make the messages."""
    for name, processes in (("a", 1), ("b", 2)):
        generate(tmp_path / name, Shape(2100, 3, 1, seed=5, small=True), processes=processes)
    generate(tmp_path / "c", Shape(2100, 3, 1, seed=6, small=True))
    (files, boxes), (others, same) = view(tmp_path / "a"), view(tmp_path / "b")
    assert files == others and boxes == same
    assert not set(files) & set(view(tmp_path / "c")[0])


@pytest.mark.parametrize("shape", [Shape(1, 1, 1), Shape(1, 1, 30), Shape(30, 1, 2, small=True), Shape(2, 40, 1)])
def test_the_smallest_ones(tmp_path, shape):
    assert generate(tmp_path / "store", shape) == shape.messages * shape.references
    store = open_store(tmp_path / "store", SMALL)
    assert check(store) == []
    store.close()


def test_sizes_are_as_they_are_asked_for():
    for small, low, high in ((True, 600, 2000), (False, 5_000, 14_000)):
        sizes = [len(message(1, number, small=small).content) for number in range(400)]
        assert low < sorted(sizes)[200] < high
        assert max(sizes) < (4096 if small else 3 << 20)


def test_a_store_that_is_there_stays(made):
    with pytest.raises(StoreError) as refusal:
        generate(made, SHAPE)
    assert refusal.value.problem is Problem.STORE_IN_USE
