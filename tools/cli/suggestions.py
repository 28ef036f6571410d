"""Did you mean: what is near a word that nobody knows, for the end of a complaint."""

from collections.abc import Iterable

from tools.cli.later import Later

_close = Later("difflib:get_close_matches")     # only those who mistyped need it

SHOWN = 3


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Such as "; did you mean X?"; "" if nothing is near. Case and - in the place of _ or a full stop do not count."""
    plain = {_plain(each): each for each in known}
    near: list[str] = _close(_plain(word), list(plain), SHOWN, 0.7)
    return f"; did you mean {' or '.join(plain[each] for each in near)}?" if near else ""


def _plain(word: str) -> str:
    return word.lower().replace("_", "-").replace(".", "-").lstrip("-")
