"""Scripts that cannot run: of users, of the directory, of the site. Mail is kept where they would run."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import frozen

from mboxlist import privatefiles
from store.filtering import userscripts
from store.filtering.userscripts import ScriptRefused
from store.sieve.scriptproblems import ScriptProblem

if TYPE_CHECKING:                   # who only asks opens no store
    from store.quota.overview import Overview


@frozen
class WrongScript:
    """Which script it is, for a person, and what is wrong with it, with line and column; whether it would run now."""

    script: str
    problem: str
    runs: bool = True


def of_users(store: "Overview", users: Iterable[str]) -> Iterator[WrongScript]:
    """Those of these users, the directory's for them included."""
    for user in users:
        there = userscripts.of_directory(store.mailboxes, user)
        for script in [*userscripts.of_user(store.mailboxes, user), *([] if there is None else [there])]:
            try:
                userscripts.compiled(script)
            except (ScriptProblem, ScriptRefused) as problem:
                yield WrongScript(script.of(user), str(problem), script.active)


def of_site(folder: Path | None) -> Iterator[WrongScript]:
    """Those in the site's folder (`sitescripts`)."""
    if folder is None:
        return
    for path in sorted((*folder.glob("*.sieve"), *folder.glob("*/*.sieve"))):
        try:
            userscripts.check(privatefiles.read_named(path))
        except (ScriptProblem, ScriptRefused) as problem:
            yield WrongScript(str(path), str(problem))
        except OSError as error:
            yield WrongScript(str(path), f"it cannot be read: {error.strerror}")
