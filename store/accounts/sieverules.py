"""What holds for the Sieve scripts of one user, or of all users of a domain: settings of the section [sieve] with other
values, as one text: `own=no redirects=0 vacation_least=7d`.

The user's go before those of the domain, setting by setting; what neither says is as the configuration says.
"""

import re
from collections.abc import Callable, Mapping

from store.sieve.scriptlimits import DEFAULT
from store.values import boolean, duration, size

Value = bool | int

MOST_SCRIPTS = 100          # that a user may keep, whatever is set: to list them reads all
LONGEST = 1024              # characters of such a text


class BadSieveRule(ValueError):
    """The text cannot be read; it says why."""


def _seconds(text: str) -> int:
    return int(duration(text))


def _count(text: str) -> int:
    if not re.fullmatch("[0-9]{1,9}", text):
        raise ValueError("not a number")
    return int(text)


def _up_to(most: int, read: Callable[[str], int]) -> Callable[[str], int]:
    def limited(text: str) -> int:
        value = read(text)
        if value > most:
            raise ValueError(f"more than {most}")
        return value
    return limited


#: The settings that a user or a domain can have other values of, by their names in [sieve], and how each is read.
READERS: Mapping[str, Callable[[str], Value]] = {
    "enabled": boolean, "own": boolean, "scripts": _up_to(MOST_SCRIPTS, _count),
    "script_size": _up_to(DEFAULT.script, size), "redirects": _count, "hourly": _count, "creations": _count,
    "vacation": boolean, "vacation_least": _seconds}


def parse(text: str) -> dict[str, Value]:
    """The values by the names of settings; of two for one name the later. Raises BadSieveRule."""
    if len(text) > LONGEST:
        raise BadSieveRule(f"more than {LONGEST} characters")
    found: dict[str, Value] = {}
    for word in text.split():
        name, equals, value = word.partition("=")
        read = READERS.get(name.lower())
        if read is None or not equals:
            raise BadSieveRule(f"{word[:60]!r} does not begin with one of {', '.join(sorted(READERS))} and an equals "
                               "sign")
        try:
            found[name.lower()] = read(value)
        except ValueError as error:
            raise BadSieveRule(f"{word[:60]!r}: {error}") from None
    return found


def safe(text: str) -> dict[str, Value]:
    """What `parse` says; of a text that cannot be read, that scripts of users do not run: the site's do."""
    try:
        return parse(text)
    except BadSieveRule:
        return {"own": False}
