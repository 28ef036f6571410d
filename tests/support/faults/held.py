"""A store that somebody else holds still, and threads that wait for its end only when the test says so."""

import contextlib

from twisted.internet.defer import Deferred, succeed

from mboxlist.engine.freezegate import WriteFreeze
from store.offload import Threads


class Later(Threads):
    """Does everything at once, in the thread that must not wait, but what waits for the gate; that when told."""

    def __init__(self):
        self.waiting = []

    def start(self, kind, work):
        """Have it done; nobody waits for it."""
        if kind != "held":
            super().start(kind, work)
        else:
            self.waiting.append((work, Deferred()))

    def run(self, kind, work, then=None, user=""):
        """The result of `work`."""
        if kind != "held":
            return super().run(kind, work, then, user)
        done = Deferred()
        self.waiting.append((work, done))
        return done


class Held:
    """See the module's text."""

    def __init__(self, store, monkeypatch):
        self.threads = Later()
        store.owned.put(Threads, self.threads)
        store.write_freeze.never_waits()
        self._gate = WriteFreeze(store.root / "run" / "gate")
        self._shut = contextlib.ExitStack()

    def begin(self):
        """From here on nothing is changed."""
        self._shut.enter_context(self._gate.keep_shut(600))

    def end(self):
        """The store goes on, and so does who has waited."""
        self._shut.close()
        while self.threads.waiting:
            work, done = self.threads.waiting.pop(0)
            succeed(None).addCallback(lambda _, work=work: work()).chainDeferred(done)

    def close(self, store):
        """As it was before."""
        self.end()
        self._gate.close()
        store.write_freeze.never_waits(never=False)


@contextlib.contextmanager
def holding(store, monkeypatch):
    """For a fixture."""
    held = Held(store, monkeypatch)
    try:
        yield held
    finally:
        held.close(store)
