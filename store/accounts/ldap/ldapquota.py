"""Limits as Sun's directories have them (mailQuota, mailMsgQuota), in the store's terms. Pure.

-1 is no limit; -2, or no value, the store's default; 0 lets nothing in. K, M and G are units of octets. A value such as
`50M;#voice%5M;Archive%200M` has limits of mailboxes, too; those of types of messages are passed over.
"""

import re
from urllib.parse import unquote

from attrs import frozen

from mboxlist.names import NameProblem, legal_path
from store.tables.quotatable import DEFAULT, UNLIMITED

MOST = 4096 << 30           # octets: Sun's largest quota; beyond that it is a slip of the pen
MOST_MESSAGES = (1 << 31) - 1
MOST_PARTS = 100            # limits of mailboxes in one value

_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_NUMBER = re.compile(r"([0-9]{1,18})([kmgKMG]?)")


class BadQuota(ValueError):
    """The text is no quota; it says why."""


@frozen
class QuotaWish:
    """The limits that a directory wants: DEFAULT, UNLIMITED or a number; None leaves the limit as it is, because the
    directory does not speak of it, or not so that it can be read.

    `parts` are those of mailboxes with a quota root of their own: path, octets, messages. `said`: whether the directory
    has any limit at all; then the user's roots are those of `parts` and no others.
    """

    octets: int | None = DEFAULT
    messages: int | None = DEFAULT
    parts: tuple[tuple[str, int | None, int | None], ...] = ()
    said: bool = False


def parse_limit(text: str, *, messages: bool = False) -> int:
    """One limit. Raises BadQuota."""
    word = text.strip()
    if word in ("-1", "-2"):
        return UNLIMITED if word == "-1" else DEFAULT
    match = _NUMBER.fullmatch(word)
    if match is None or (messages and match[2]):
        raise BadQuota(f"{_shown(text)} is not a number" + ("" if messages else ", with K, M or G behind it"))
    amount = int(match[1]) * _UNITS[match[2].lower()]
    if amount > (MOST_MESSAGES if messages else MOST):
        raise BadQuota(f"{_shown(text)} is more than {f'{MOST_MESSAGES}' if messages else '4096G'}")
    return amount


def parse_composite(text: str, *, messages: bool = False) -> tuple[int, dict[str, int], list[str]]:
    """The user's limit, those of mailboxes by their path, and the names of types that were passed over.

    Raises BadQuota.
    """
    first, *rest = text.split(";")
    if len(rest) > MOST_PARTS:
        raise BadQuota(f"there are more than {MOST_PARTS} limits")
    own, parts, types = parse_limit(first, messages=messages), {}, []
    for part in rest:
        name, percent, limit = part.strip().rpartition("%")
        if not percent or not name:
            raise BadQuota(f"{_shown(part)} is not of the form MAILBOX%LIMIT")
        amount = parse_limit(limit, messages=messages)
        if name.startswith("#"):
            types.append(name)
            continue
        try:
            path = legal_path(unquote(name, errors="strict"))
        except (NameProblem, UnicodeDecodeError) as error:
            raise BadQuota(f"{_shown(name)} is not a mailbox: {error}") from None
        if path in parts:
            raise BadQuota(f"{_shown(name)} has two limits")
        parts[path] = UNLIMITED if amount == DEFAULT else amount        # the default is for users
    return own, parts, types


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
