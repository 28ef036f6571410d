"""The character classes of RFC 3501 §9 as compiled patterns, and the one error of everything that parses.

Every pattern here is linear: what can repeat is possessive, so nothing is tried twice.
"""

import re

MAX_NUMBER = 0xFFFFFFFF         # RFC 3501 §9 number: unsigned 32 bits
MAX_NUMBER64 = (1 << 63) - 1    # RFC 9051 §9 number64: the sizes of literals

_ATOM_CHARS = rb"!#$&'+,\-./0-9:;<=>?@A-Z\[^_`a-z|}~"      # "[" is one, "]" is not
ATOM = re.compile(rb"[" + _ATOM_CHARS + rb"]++")
ASTRING_ATOM = re.compile(rb"[" + _ATOM_CHARS + rb"\]]++")
ASTRING_READ = re.compile(rb"[" + _ATOM_CHARS + rb"\]%*]++")       # list-mailbox; others' astrings have wildcards, too
TAG = re.compile(rb"[" + _ATOM_CHARS.replace(b"+", b"") + rb"\]]++")
# Octets above 127 are UTF-8 in RFC 9051 §9 and RFC 6855 §3. RFC 3501 §9 has none, but clients put texts of a SEARCH
# with CHARSET, and passwords, there: whoever uses the string knows its charset.
QUOTED = re.compile(rb'"([^"\\\x00\r\n]*+(?:\\["\\][^"\\\x00\r\n]*+)*)"')
ESCAPE = re.compile(rb'\\(["\\])')
NUMBER = re.compile(rb"[0-9]++")
LITERAL = re.compile(rb"\{([0-9]++)(\+?)\}\Z")


class SyntaxProblem(ValueError):
    """The client's octets are not a legal command; `public` says why and is safe to send.

    `status` is BAD, or NO where that is the right answer; `code` is a response code without its brackets, or nothing.
    """

    def __init__(self, public: str, *, code: bytes = b"", status: bytes = b"BAD") -> None:
        self.public = public
        self.code = code
        self.status = status
        super().__init__(public)
