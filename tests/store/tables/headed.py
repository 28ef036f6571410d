"""Messages with header fields of each recipient's own, for tests."""



from mboxlist.names import MailboxName
from store.tables.index import chunk_key, encode

BODY = b"From: a@example.org\r\nSubject: x\r\n\r\nhello\r\n"
TRACE = b"Return-Path: <a@example.org>\r\nReceived: from relay\r\n"
TO = b"Delivered-To: {}\r\n"
ALICE, BOB = "user/alice/INBOX", "user/bob/INBOX"


def to(name: str) -> bytes:
    return TO.replace(b"{}", name.encode())


def box(store, name=ALICE):
    return store.open_mailbox(store.entry(MailboxName.parse(name)))


def texts(store, name=ALICE):
    """The messages of a mailbox, whose sizes are what they have."""
    mailbox, found = box(store, name), []
    for row in mailbox.rows:
        with store.open_message(mailbox.entry, row) as file:
            found.append(file.read(0, file.size + 9))
    assert [len(each) for each in found] == mailbox.rows["size"].tolist()
    assert mailbox.state.octets == sum(map(len, found))
    return found


def files(store):
    return [path.read_bytes() for partition in store.partitions.values()
            for path in partition.files.folder.glob("?/??/*")]


def change(store, **fields):
    """Change fields of the first record of alice's INBOX."""
    partition, entry = store.partitions["primary"], box(store).entry
    key = chunk_key(entry.id, 0)
    rows = box(store).rows.copy()
    for name, value in fields.items():
        rows[name][0] = value
    partition.transact(lambda txn: partition.index.put(key, encode(rows), txn.handle))
    partition.views.forget()


def spoil(store, **fields):
    """The same, and the chunk does not agree with its checksum."""
    change(store, **fields)
    partition, key = store.partitions["primary"], chunk_key(box(store).entry.id, 0)
    value = partition.index.get(key)
    partition.transact(lambda txn: partition.index.put(key, value[:-1] + bytes((value[-1] ^ 1,)), txn.handle))
    partition.views.forget()
