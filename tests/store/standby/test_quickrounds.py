"""What a round looks at, and when the standby asks for the next one."""

import os

import pytest
from attrs import evolve

from mboxlist import privatefiles
from store.errors import StoreError
from store.expiry import rulebook
from store.standby import copyformat, following, sourcepeer, standbyjournal
from store.store import Store
from tests.support.stores.standbypair import INBOX, Standby
from tests.support.stores.stores import deliver

pytestmark = [pytest.mark.long, pytest.mark.few_folders]


def test_a_folder_that_comes_where_there_was_none(store: Store, standby: Standby) -> None:
    """It is looked for only when the one in which it would be has changed."""
    standby.create()
    folder = store.root / rulebook.FOLDER
    assert not folder.exists()
    with standby.following() as follower:
        for number in range(3):
            os.utime(store.root, (1, 1))        # that was long ago
            deliver(store, b"Subject: %d\r\n\r\n" % number, str(INBOX))
            follower.round(0)
        folder.mkdir()
        privatefiles.write(folder / "example.com.rules", b"")
        deliver(store, b"Subject: last\r\n\r\n", str(INBOX))
        follower.round(0)
        assert (standby.root / folder.name / "example.com.rules").exists()
        follower.finish()


def test_who_goes_on_asks_as_soon_as_it_is_on_disk(store: Store, standby: Standby, monkeypatch: pytest.MonkeyPatch
                                                   ) -> None:
    """Before it does anything else: answers at the first machine wait for that question, and never before."""
    done = list[str]()
    append, ask, after = standbyjournal.Journal.append, following.SourcePeer.ask_next, copyformat.Quick.after
    monkeypatch.setattr(standbyjournal.Journal, "append", lambda *what: (append(*what), done.append("on disk"))[0])
    monkeypatch.setattr(following.SourcePeer, "ask_next", lambda *what, **how: (
        done.append("asks"), ask(*what, **how))[1])
    monkeypatch.setattr(copyformat.Quick, "after", lambda *what: (done.append("goes on"), after(*what))[1])
    standby.create()
    with standby.following() as follower:
        while follower.round(0):
            pass
        deliver(store, b"Subject: one\r\n\r\n", str(INBOX))
        done.clear()
        assert follower.round(0, go_on=True)
        assert done == ["asks", "on disk", "asks", "goes on"]
        follower.round(0)
        follower.finish()


@pytest.mark.parametrize("name", ["moment", "lag"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, 1e300, 10 ** 400, "1", None, True])
def test_a_time_that_is_none_is_refused(store: Store, standby: Standby, monkeypatch: pytest.MonkeyPatch, name: str,
                                        value: object) -> None:
    """On record it would stop a promotion half way."""
    standby.create()
    with standby.following() as follower:
        while follower.round(0):
            pass
        deliver(store, b"Subject: one\r\n\r\n", str(INBOX))
        read = sourcepeer.unpacked
        monkeypatch.setattr(sourcepeer, "unpacked", lambda said: (
            lambda found: evolve(found, fields={**found.fields, name: value}))(read(said)))
        with pytest.raises(StoreError):
            while follower.round(0):
                pass
