"""`onecopy path` of a message that has header fields of its own beside its file."""

from pathlib import Path

from store.opening import open_store
from tests.support.processes.program import Program
from tests.support.stores.stores import SMALL, deliver

MESSAGE = b"Subject: x\r\n\r\nx\r\n"


def test_path_tells_what_is_not_in_the_file(onecopy: Program) -> None:
    store = open_store(onecopy.root, SMALL)
    deliver(store, MESSAGE, "user/alice/INBOX", header="Delivered-To: jörg@example.org\r\n".encode())
    store.close()
    facts = onecopy.json("path", "alice", "INBOX", "1")
    assert facts["header"] == "Delivered-To: jörg@example.org\r\n"
    content = facts["header"].encode() + Path(facts["path"]).read_bytes()[facts["skip"]:]
    assert (len(content), content) == (facts["size"], facts["header"].encode() + MESSAGE)
