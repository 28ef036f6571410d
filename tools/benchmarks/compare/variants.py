"""The servers that can be compared, and which are like which."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

from attrs import frozen

from tools.benchmarks.compare import cyruspeer, dovecotpeer
from tools.benchmarks.compare.dovecotpeer import Style
from tools.benchmarks.compare.ourselves import Ourselves, onecopy
from tools.benchmarks.load.target import Target


@frozen
class Variant:
    """A server as it is set up: the heading of its column, how it is started, the packages that it lacks."""

    title: str
    serve: Callable[[Path, int], AbstractContextManager[Target]]
    missing: Callable[[], list[str]] = list


@frozen
class Comparison:
    """onecopy beside the peers that promise as much."""

    title: str
    promise: str
    ours: str
    peers: Sequence[str]


def _dovecot(name: str, fsync: str, fast: bool, owner: int) -> Callable[[Path, int], AbstractContextManager[Target]]:
    return partial(dovecotpeer.dovecot, style=Style(name, fsync, fast, owner))


VARIANTS = {
    "onecopy-everything": Variant("onecopy", partial(onecopy, style=Ourselves("onecopy-everything", "everything"))),
    "onecopy-messages": Variant("onecopy", partial(onecopy, style=Ourselves("onecopy-messages", "messages"))),
    "dovecot": Variant("Dovecot", _dovecot("dovecot", "optimized", False, 64_001), dovecotpeer.missing),
    "dovecot-fast": Variant("Dovecot, high-performance", _dovecot("dovecot-fast", "optimized", True, 64_002),
                            dovecotpeer.missing),
    "dovecot-fsync": Variant("Dovecot, fsync always", _dovecot("dovecot-fsync", "always", False, 64_003),
                             dovecotpeer.missing),
    "cyrus": Variant("Cyrus", cyruspeer.cyrus, cyruspeer.missing),
}
COMPARISONS = (
    Comparison("Every change is on disk before it is answered",
               "onecopy with `store.sync = everything`, Dovecot with `mail_fsync = always`, and Cyrus.",
               "onecopy-everything", ("dovecot-fsync", "cyrus")),
    Comparison("Messages are on disk before they are answered, flags soon after",
               "onecopy with `store.sync = messages`, and Dovecot with its defaults: as it is installed, and in its "
               "high-performance mode, in which who idles is parked in one process after a second.",
               "onecopy-messages", ("dovecot", "dovecot-fast")),
)
