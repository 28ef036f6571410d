"""The site's own scripts: files in a folder (setting `sieve.folder`), looked at again when they have changed."""

import logging
import time
from collections.abc import Callable
from pathlib import Path

from attrs import define, field

from mboxlist import privatefiles
from store.sieve.compiling import compile_script
from store.sieve.language import SIEVE
from store.sieve.scriptlimits import DEFAULT
from store.sieve.scriptproblems import ScriptProblem
from store.sieve.scriptrun import Tree

log = logging.getLogger(__name__)

LOOK = 2.0                      # seconds between two looks at a file
BEFORE, AFTER, INSTEAD = "before", "after", "default"

_Stamp = tuple[int, int, int]


@define(eq=False)
class SiteScripts:
    """The scripts of a folder, or with None none at all. A file that is no script is named in the log, and what it was
    before holds."""

    folder: Path | None
    clock: Callable[[], float] = time.monotonic
    _looked: dict[str, float] = field(factory=dict)
    _stamps: dict[str, _Stamp] = field(factory=dict)
    _trees: dict[str, Tree] = field(factory=dict)

    def around(self, which: str, domain: str) -> list[Tree]:
        """The scripts before or after each user's: the site's, then the domain's; after it the other way round."""
        if self.folder is None:
            return []
        found = [tree for place in ("", domain) if (tree := self._tree(place, which)) is not None]
        return found if which == BEFORE else found[::-1]

    def default(self, domain: str) -> Tree | None:
        """The script of users who have none: the domain's, else the site's."""
        if self.folder is None:
            return None
        return self._tree(domain, INSTEAD) or self._tree("", INSTEAD)

    def names(self, which: str, domain: str) -> list[str]:
        """The files whose scripts run, as `around` and `default` have them."""
        places = {BEFORE: ("", domain), AFTER: (domain, ""), INSTEAD: (domain, "")}[which]
        found = [f"{place}/{which}.sieve" if place else f"{which}.sieve" for place in places
                 if self.folder is not None and self._tree(place, which) is not None]
        return found[:1] if which == INSTEAD else found

    def on_events(self, name: str) -> Tree | None:
        """The script of that name for events of IMAP."""
        return self._tree("imap", name) if self.folder is not None else None

    def included(self, name: str) -> Tree | None:
        """A script for `include :global`."""
        return self._tree("include", name) if self.folder is not None else None

    def _tree(self, place: str, name: str) -> Tree | None:
        if "/" in place or "/" in name or place.startswith(".") or name.startswith(".") or "\0" in place + name:
            return None
        path, now = f"{place}/{name}.sieve" if place else f"{name}.sieve", self.clock()
        if now - self._looked.get(path, now - 2 * LOOK) >= LOOK:
            if len(self._looked) > 10_000:          # names that scripts of users have made up
                self._looked.clear()
            self._looked[path] = now
            self._look(path)
        return self._trees.get(path)

    def _look(self, path: str) -> None:
        assert self.folder is not None
        try:
            status = (self.folder / path).stat()
            stamp = status.st_mtime_ns, status.st_size, status.st_ino
            if self._stamps.get(path) == stamp:
                return
            octets = privatefiles.read_named(self.folder / path)
        except FileNotFoundError:
            self._stamps.pop(path, None)
            self._trees.pop(path, None)
            return
        except OSError as error:
            log.error("the Sieve script %s of the site cannot be read: %s", path, error)
            return
        self._stamps[path] = stamp
        try:
            self._trees[path] = compile_script(octets.decode(), SIEVE, DEFAULT)
        except (ScriptProblem, UnicodeDecodeError) as problem:
            log.error("%s is no Sieve script, what it was before holds: %s", path, problem)
