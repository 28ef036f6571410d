"""How the program ends when it cannot do what it was asked to do, and what it proposes then."""

from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path

from store.errors import Problem, StoreError
from store.partition.marks import STANDBY

NO_ROOM = 75            # of a command that the server does again: it is to be tried again (EX_TEMPFAIL of sysexits.h)
SHOWN = 3               # words that are proposed


# What to do about a refusal of the store that names something which is not there.
_ADVICE = {Problem.NO_USER: "onecopy user list shows who there is",
           Problem.NO_MAILBOX: "onecopy mailbox list shows what there is"}


class Failure(Exception):
    """Ends the program with one line and an exit status: 1 for something wrong that was found, 2 for wrong use."""

    def __init__(self, text: str, status: int = 2) -> None:
        super().__init__(text)
        self.status = status


def no_server(root: Path) -> Failure:
    """Of a command that needs a running server."""
    if (root / STANDBY).exists():
        return Failure(f"{root} is a standby: no server runs there, and what follows reads the configuration when it "
                       "begins: systemctl restart onecopy-standby", 1)
    return Failure(f"no server runs on {root}: onecopy serve, or systemctl start onecopy, starts it", 1)


def status(error: StoreError) -> int:
    """The exit status for a refusal of the store."""
    return 2 if error.problem in (Problem.NO_STORE, Problem.STORE_IN_USE) else 1


def add_advice(error: StoreError) -> None:
    """Have it say what to do, where it only says that something is not there."""
    bare = error.public == error.problem.value or error.public.startswith("There is no ")
    if error.problem in _ADVICE and bare and not any(getattr(error, "__notes__", ())):
        error.add_note(_ADVICE[error.problem])


def in_full(error: StoreError) -> str:
    """What is refused, and what to do."""
    add_advice(error)
    notes = " ".join(note for note in getattr(error, "__notes__", ()) if note)
    return error.public + (f" ({notes})" if notes else "")


def advised(error: StoreError, advice: str) -> StoreError:
    """With what to do about it, in the place of what is said of all problems of that kind."""
    error.add_note(advice)
    return error


def no_partition(name: str, known: Iterable[str]) -> Failure:
    """Of a command that is for one partition."""
    return Failure(f"there is no partition {name}: there are {', '.join(sorted(known))}")


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Such as "; did you mean X?"; "" if nothing is near. Case and - in the place of _ or a full stop do not count."""
    plain = {_plain(each): each for each in known}
    near = get_close_matches(_plain(word), list(plain), SHOWN, 0.7)
    return f"; did you mean {' or '.join(plain[each] for each in near)}?" if near else ""


def _plain(word: str) -> str:
    return word.lower().replace("_", "-").replace(".", "-").lstrip("-")
