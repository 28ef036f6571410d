"""Names and passwords as USER and PASS bring them: UTF-8, prepared with SASLprep (RFC 6856 §2.2, RFC 4013)."""

from store.accounts.sasl.saslprep import saslprep


def prepared(octets: bytes) -> str:
    """The text, as a query string (RFC 3454 §7). Raises ValueError for what is no UTF-8, prohibited, or nothing."""
    text = octets.decode("utf-8")
    made = text if text.isascii() else saslprep(text)       # control characters have been refused before
    if not made:
        raise ValueError("nothing is left of it")
    return made
