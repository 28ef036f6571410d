"""Conversations about snapshots."""

import time

from attrs import evolve

from store.mailboxes import deletion
from store.mailboxes.expunge import remove
from store.snapshots import taking
from tests.support.conversations.scripts import Player
from tests.support.stores.purging import purge

FIRST, SECOND = "20260101T030000Z", "20260102T030000Z"
T1, T2 = "#snapshots/2026-01-01T03:00:00Z", "#snapshots/2026-01-02T03:00:00Z"


def snapshot(store, name):
    """One that looks as if it had been made at that time."""
    made = taking.create(store)
    path = made.path.with_name(name)
    made.path.rename(path)
    manifest = evolve(made.manifest, time=int(taking.snapshot_time(name)))
    (path / taking.MANIFEST).write_bytes(manifest.to_bytes())
    return path


def everything_goes(store):
    """All that anybody has is expunged; and the purge comes when everything is due."""
    for entry in list(store.mailboxes.all()):
        remove(store, entry, store.open_mailbox(entry).uids)
    for partition in store.partitions.values():
        purge(partition, time.time() + 10 * store.settings.purge_delay)


class Traveller(Player):
    """Knows snapshots, too. $one and $two in a script are the levels of the two."""

    def play(self, script):
        super().play(script.replace("$one", T1).replace("$two", T2))
        for wire in self.wires.values():
            wire.hang_up()

    def on_snapshot(self, text, _):
        snapshot(self.place.store, text)

    def on_forget(self, text, _):
        found, = [each for each in taking.listed(self.place.store.root / "snapshots") if each.name == text]
        taking.remove(found)

    def on_everything(self, _, __):
        everything_goes(self.place.store)

    def on_groups(self, text, _):
        self.place.store.directory.change("alice", groups=text.split())

    def on_delete(self, text, _):
        deletion.delete_mailbox(self.place.store, self.place.name(text))


def play(place, script):
    Traveller(place).play(script)


def files(store):
    """The names of all message files."""
    return {path.name for path in (store.root / "partitions" / "primary" / "messages").glob("?/??/*")}


BEFORE = """
with: time_travel=alice
have: INBOX one(\\Seen) two($Label \\Flagged) three; Archive/2025 old
snapshot: 20260101T030000Z
"""
