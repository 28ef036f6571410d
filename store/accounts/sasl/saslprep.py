"""SASLprep: one form of a user name or a password, however it was typed (RFC 4013, RFC 3454)."""

import stringprep
import unicodedata
from collections.abc import Callable

# RFC 4013 §2.3
_PROHIBITED: tuple[Callable[[str], bool], ...] = (
    stringprep.in_table_c12, stringprep.in_table_c21_c22, stringprep.in_table_c3, stringprep.in_table_c4,
    stringprep.in_table_c5, stringprep.in_table_c6, stringprep.in_table_c7, stringprep.in_table_c8,
    stringprep.in_table_c9)


def saslprep(text: str, *, stored: bool = False) -> str:
    """The prepared form. `stored`: it is to be kept, and so must have no character that Unicode 3.2 does not know.

    Raises ValueError for what has none.
    """
    if text.isascii() and text.isprintable():           # nearly all of them
        return text
    mapped = "".join(" " if stringprep.in_table_c12(each) else each
                     for each in text if not stringprep.in_table_b1(each))              # §2.1
    prepared = unicodedata.ucd_3_2_0.normalize("NFKC", mapped)                          # §2.2
    if any(is_prohibited(each) for each in prepared for is_prohibited in _PROHIBITED):
        raise ValueError("A character is not allowed there")
    if stored and any(map(stringprep.in_table_a1, prepared)):                           # §2.5
        raise ValueError("A character is not known")
    if any(map(stringprep.in_table_d1, prepared)) and (                                 # §2.4, RFC 3454 §6
            any(map(stringprep.in_table_d2, prepared))
            or not (stringprep.in_table_d1(prepared[0]) and stringprep.in_table_d1(prepared[-1]))):
        raise ValueError("Text from right to left is mixed with other text")
    return prepared
