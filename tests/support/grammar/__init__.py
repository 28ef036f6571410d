r"""Reads what an IMAP server says, as strictly as the formal syntax does: RFC 3501 §9, RFC 9051 §9, and what the
extensions add to it (RFC 2971, 3516, 4314, 4315, 4731, 5161, 5182, 5256, 5258, 5530, 6154, 7162, 7889, 8438, 8440,
9208, 9585). Written from these only.

    response, end = response_at(octets, at)      Incomplete when more octets must come; Ungrammatical when it is wrong

A response is a tuple that begins with its kind: ("+",), ("tagged", tag, status, code), ("OK", code) and NO, BAD, BYE,
("EXISTS", n), ("EXPUNGE", n), ("FETCH", n, items) and so on; a code is None or a tuple that begins with its name.
"""

from tests.support.grammar.elements import Incomplete, Ungrammatical, numbers_of
from tests.support.grammar.responses import TAG, response_at, responses

__all__ = ["TAG", "Incomplete", "Ungrammatical", "numbers_of", "response_at", "responses"]
