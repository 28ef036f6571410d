"""A generated store, backed up and restored to an empty root: everything is compared.

BACKUP_MESSAGES=100000 is the large one; it prints how long each step took, and how much of a processor.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from store.check.wholecheck import check
from store.opening import open_store
from store.settings import Settings
from store.store import Store
from store.userarea.writing import view
from tests.support.processes.program import Program
from tools.spark.generate.generator import Shape, generate

MESSAGES = int(os.environ.get("BACKUP_MESSAGES", "300"))
COLUMNS = ["uid", "flags", "keywords", "modseq", "received", "zone", "saved", "size", "mid", "skip"]


def test_a_large_store_comes_back(bare: Program, tmp_path: Path) -> None:
    generate(bare.root, Shape(MESSAGES, max(10, MESSAGES // 100), 10, 1, True))
    path, other = str(tmp_path / "all.tar.zst"), Program(tmp_path / "other", bare._capture, bare._monkeypatch)
    figures: list[str] = []
    with figure("backup", figures):
        made: Any = bare.json("backup", "--to", path)
    with figure("verify", figures):
        found: Any = bare.json("backup", "verify", path)
    with figure("restore", figures):
        done: Any = other.json("restore", path)
    figures.append(f"{Path(path).stat().st_size >> 20} MiB of {made['octets'] >> 20}")
    assert made["findings"] == found["findings"] == done["findings"] == []
    assert made["messages"] == found["messages"] == done["files"] == MESSAGES
    assert made["records"] == done["messages"] == 10 * MESSAGES
    old, new = (open_store(root, Settings(disk_reserve=0)) for root in (bare.root, other.root))
    try:
        compare(old, new)
        if MESSAGES < 1000:
            assert check(new) == []
    finally:
        new.close()
        old.close()
    print("; ".join(figures))


def compare(old: Store, new: Store) -> None:
    entries = list(old.mailboxes.all())
    assert [(entry.name, entry.uidvalidity, entry.acl, entry.special_use, entry.created) for entry in entries] == [
        (entry.name, entry.uidvalidity, entry.acl, entry.special_use, entry.created) for entry in new.mailboxes.all()]
    for entry in entries:
        there = new.entry(entry.name)
        one, two = (view(store, store.partition_of(each), each.id)[1]            # type: ignore[index]
                    for store, each in ((old, entry), (new, there)))
        assert all((one.rows[name] == two.rows[name]).all() for name in COLUMNS)
        assert one.head.keywords == two.head.keywords and one.head.annotations == two.head.annotations
        assert one.head.readers == two.head.readers and np.array_equal(one.own, two.own)
        assert [one.private_headers.get(number) for number in one.rows["head"].tolist()] == [
            two.private_headers.get(number) for number in two.rows["head"].tolist()]
    assert quotas(old) == quotas(new)
    users = [account.user for account in old.directory.all()]                       # type: ignore[attr-defined]
    assert [(user, old.directory.user(user), old.subscriptions(user)) for user in users] == [   # type: ignore[attr-defined]
        (user, new.directory.user(user), new.subscriptions(user)) for user in users]            # type: ignore[attr-defined]
    assert names(old) == names(new)


def quotas(store: Store) -> list[Any]:
    """Use and limits of each root; one that uses nothing and has no limits need not be there."""
    return [(root, use.octets, use.messages, use.octet_limit, use.message_limit)
            for partition in store.partitions.values() for root, use in [*partition.quotas.all(),
                                                                         *partition.quotas.domains()]
            if use.messages or (use.octet_limit, use.message_limit) != (-2, -2)]


def names(store: Store) -> set[str]:
    return {path.name for partition in store.partitions.values() for path in partition.files.folder.glob("?/??/*")}


@contextmanager
def figure(what: str, figures: list[str]) -> Iterator[None]:
    begun, cpu = time.monotonic(), time.process_time()
    yield
    seconds, used = time.monotonic() - begun, time.process_time() - cpu
    figures.append(f"{what}: {seconds:.1f} s, {used:.1f} CPU s, {MESSAGES / seconds:.0f} message files/s, "
                   f"{MESSAGES / used:.0f} per CPU s")
