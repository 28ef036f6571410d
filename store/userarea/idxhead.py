"""What each value in the head of a `store.idx` (`idxfile.Head`) may be: the file may be damaged, or by anybody."""

from typing import Any

from mboxlist import acl, annotations
from mboxlist.names import MAX_COMPONENT


def _number(most: int, least: int = 0) -> Any:
    return lambda value: type(value) is int and least <= value < most


def _text(value: object) -> bool:
    if not isinstance(value, str):
        return False
    try:
        value.encode()              # JSON can hold half of a surrogate pair; a database and a file name cannot
    except UnicodeEncodeError:
        return False
    return True


def _line(value: object) -> bool:
    return _text(value) and "\n" not in str(value)


def _list(inside: Any) -> Any:
    return lambda value: isinstance(value, list) and all(inside(item) for item in value)


def _object(inside: Any) -> Any:
    return lambda value: isinstance(value, dict) and all(_text(key) and inside(item) for key, item in value.items())


def _short(octets: int) -> Any:
    """A text of at most so many octets that a key of a database can hold."""
    return lambda value: _line(value) and "\0" not in value and len(value.encode()) <= octets


def _map(key: Any, inside: Any, most: int) -> Any:
    return lambda value: (isinstance(value, dict) and len(value) <= most
                          and all(key(name) and inside(item) for name, item in value.items()))


def _few(value: dict[str, dict[str, str]]) -> bool:
    return sum(map(len, value.values())) <= annotations.MAX_ENTRIES


_ACL = _map(_short(acl.MAX_IDENTIFIER), _short(len(acl.RIGHTS)), acl.MAX_ENTRIES)
_VALUE = _short(-(-annotations.MAX_VALUE // 3) * 4)         # in base64
_ANNOTATIONS = _map(_short(annotations.MAX_NAME), _map(_short(MAX_COMPONENT), _VALUE, annotations.MAX_ENTRIES),
                    annotations.MAX_ENTRIES)
_U32, _U64 = _number(1 << 32), _number(1 << 63)
#: Whether a value is what it should be, by name.
FORM = {
    "id": _number(1 << 32, 1), "name": _line, "owner": _line, "partition": _text, "uidvalidity": _U32,
    "uidnext": _number(1 << 32, 1), "highestmodseq": _number(1 << 63, 1), "epoch": _U32, "recent": _U32,
    "removed": _U32, "created": _U64, "special_use": lambda value: value is None or _text(value), "quota_root": _line,
    "limits": _object(lambda value: _list(_number(1 << 63, -2))(value) and len(value) == 2), "acl": _ACL,
    "annotations": lambda value: _ANNOTATIONS(value) and _few(value),
    "keywords": lambda value: _list(_line)(value) and len(value) <= 64,
    "subscriptions": _list(_text), "readers": _list(_text), "records": _U32, "written": _U64, "store": _text,
    "account": _U32, "generation": _U64,
}
