"""The base subject of RFC 5256 §2.1: what is left of a subject without the marks of replies, forwards and lists."""

import re

LONGEST = 8192              # characters of a subject that are looked at: each loop below copies what is left

_BLANKS = re.compile(r"[ \t\r\n]++")
_BLOB = r"\[[^\[\]]*+\] *+"
_BLOBS = re.compile(rf"((?:{_BLOB})*)((?:re|fwd?) *+(?:{_BLOB})?:)?", re.IGNORECASE | re.ASCII)
_TRAILER = re.compile(r"(?:\(fwd\)| )\Z", re.IGNORECASE | re.ASCII)


def base_subject(subject: str) -> tuple[str, bool]:
    """The base subject of a decoded subject, and whether what was removed says that it is a reply or a forward."""
    text = _BLANKS.sub(" ", subject[:LONGEST])
    is_reply = False
    while True:
        while (trailer := _TRAILER.search(text, max(0, len(text) - 5))) is not None:
            is_reply |= trailer[0] != " "
            text = text[:trailer.start()]
        text, answered = _without_leaders(text)
        is_reply |= answered
        if not (text[:5].lower() == "[fwd:" and text.endswith("]")):
            return text, is_reply
        text, is_reply = text[5:-1], True


def _without_leaders(text: str) -> tuple[str, bool]:
    """Steps 3 to 5; `text` does not end with a blank."""
    is_reply = False
    while True:
        text = text.lstrip(" ")
        found = _BLOBS.match(text)
        if found is None:                   # it matches everything
            return text, is_reply
        if found[2] is not None:
            is_reply = True
            text = text[found.end():]
            continue
        # Blobs go one by one as long as something is left: all of them, or all but the last.
        end = found.end(1)
        if end == len(text) and end:
            end = text.rindex("[")
        return text[end:], is_reply
