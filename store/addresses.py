"""Addresses as keys: each has one form, however it is written (RFC 6531 §3.3, RFC 6532 §3.1, RFC 5890 §2.3.2.1)."""

import unicodedata
from functools import lru_cache

LONGEST = 600           # characters: more than any server takes; to compose a long run of marks takes its square


def canonical(address: str) -> str:
    """The address, with a domain or without, as the directory knows it. Raises ValueError for what cannot be one.

    Lower case and no case folding: that makes "ss" of "ß", and one user of two.
    """
    if len(address) > LONGEST:
        raise ValueError("The address is too long")
    if address.isascii():           # nearly all of them
        return address.lower()
    address.encode()                # no lone surrogates, which the command line may have
    local, at, domain = address.rpartition("@") if "@" in address else (address, "", "")
    # In this order: "J̌" is two characters, and "ǰ" is one.
    return unicodedata.normalize("NFC", local.lower()) + at + canonical_domain(domain)


def canonical_domain(domain: str) -> str:
    """The domain in A-labels and lower case. Raises ValueError for one that has no such form (RFC 5891 §4)."""
    return domain.lower() if domain.isascii() else _a_labels(domain)


@lru_cache(maxsize=1000)
def _a_labels(domain: str) -> str:
    import idna  # here: nearly all addresses do without
    return idna.encode(domain, uts46=True).decode("ascii")
