"""From where the store is used: from this process, or from several others at the same time."""

import multiprocessing
import shutil
import tempfile
import traceback
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from tests.conftest import MEMORY
from tests.store.model.acts import ENVIRONMENTS, OUTSIDE, Seat
from tests.store.model.expected import USERS
from tests.support.stores.folders import remove_empty_folders
from tests.support.stores.stores import make_store

_context = multiprocessing.get_context("fork")


class Folder:
    """A fresh store with the users, closed."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="onecopy-", dir=MEMORY if MEMORY.exists() else None))
        self.root = self.folder / "store"
        make_store(self.root, USERS).close()

    def gone(self) -> None:
        """It is not needed any more."""
        remove_empty_folders(self.folder)
        shutil.rmtree(self.folder)

    def put_back(self, image: Path, *names: str) -> None:
        """These folders are as they were when the image was made."""
        for name in names:
            shutil.rmtree(self.root / name)
            (image / name).rename(self.root / name)
        shutil.rmtree(image)


class OneProcess:
    """This process. `count` is how many there are to choose from."""

    count = 1

    def __init__(self) -> None:
        self._seat = Seat()

    def begin(self, now: int) -> None:
        """A new store."""
        self._place = Folder()
        self._stand = self._seat.sit()
        self._seat.do(now, "open", (self._place.root,))

    def end(self, now: int) -> None:
        """The store is not needed any more."""
        try:
            self._seat.do(now, "close", ())
        finally:
            self._stand()
            self._place.gone()

    def do(self, at: int, now: int, act: str, *arguments: Any) -> Any:
        """The outcome of an act."""
        return self._seat.do(now, act, arguments)

    def reopen(self, now: int) -> None:
        """All leave, and come back."""
        self._seat.do(now, "close", ())
        self._seat.do(now, "open", (self._place.root,))

    def crash(self, now: int) -> None:
        """All are killed now, and come back."""
        self._go_back(now, *ENVIRONMENTS, *OUTSIDE)

    def kill(self, now: int) -> None:
        """One is killed."""
        self.crash(now)

    def older(self, now: int) -> None:
        """All leave, somebody puts back databases that are a little older, and all come back."""
        self._go_back(now, *ENVIRONMENTS)

    def _go_back(self, now: int, *names: str) -> None:
        image = self._place.folder / "image"
        self._seat.do(now, "image", (image,))
        self._seat.do(now, "close", ())
        self._place.put_back(image, *names)
        self._seat.do(now, "open", (self._place.root,))


def _serve(pipe: Connection) -> None:
    seat = Seat()
    seat.sit()
    while True:
        now, act, arguments = pipe.recv()
        try:
            pipe.send((seat.do(now, act, arguments), None))
        except BaseException:
            pipe.send((None, traceback.format_exc()))


class Worker:
    """Another process."""

    def __init__(self) -> None:
        self._pipe, other = _context.Pipe()
        self._process: BaseProcess = _context.Process(target=_serve, args=(other,), daemon=True)
        self._process.start()
        other.close()

    def do(self, now: int, act: str, arguments: tuple[Any, ...]) -> Any:
        """The outcome of an act there."""
        self._pipe.send((now, act, arguments))
        outcome, failure = self._pipe.recv()
        assert failure is None, failure
        return outcome

    def kill(self) -> None:
        """It ends at once."""
        self._process.kill()
        self._process.join()
        self._pipe.close()


class ThreeProcesses:
    """Three others, which stay from store to store. Only they have it open."""

    count = 3

    def __init__(self) -> None:
        self._workers: list[Worker] = []

    def begin(self, now: int) -> None:
        """A new store."""
        self._place = Folder()
        self._workers += [Worker() for _ in range(self.count - len(self._workers))]
        self._all(now, "open", self._place.root)

    def end(self, now: int) -> None:
        """The store is not needed any more."""
        try:
            self._all(now, "close")
        except BaseException:
            self.stop()
            raise
        finally:
            self._place.gone()

    def stop(self) -> None:
        """The processes end."""
        for worker in self._workers:
            worker.kill()
        self._workers.clear()

    def do(self, at: int, now: int, act: str, *arguments: Any) -> Any:
        """The outcome of an act in one of the processes."""
        return self._workers[at].do(now, act, arguments)

    def reopen(self, now: int) -> None:
        """All leave, and come back."""
        self._all(now, "close")
        self._all(now, "open", self._place.root)

    def crash(self, now: int) -> None:
        """All are killed now, and others come."""
        self.stop()
        self._workers += [Worker() for _ in range(self.count)]
        self._all(now, "open", self._place.root)

    def older(self, now: int) -> None:
        """All leave, somebody puts back databases that are a little older, and all come back."""
        image = self._place.folder / "image"
        self.do(0, now, "image", image)
        self._all(now, "close")
        self._place.put_back(image, *ENVIRONMENTS)
        self._all(now, "open", self._place.root)

    def kill(self, now: int) -> None:
        """One is killed; the others must leave, and the first to come back recovers the store."""
        self._workers.pop(0).kill()
        self._all(now, "close")
        self._workers.append(Worker())
        self._all(now, "open", self._place.root)

    def _all(self, now: int, act: str, *arguments: Any) -> None:
        for worker in self._workers:
            worker.do(now, act, arguments)
