"""What the server announces, and when: RFC 3501 §6.1.1. Only what is whole is in these tables, each with the number of
its RFC; docs/reference/extensions.md is made of them."""

from collections.abc import Iterable

from imap.wire.grammar import MAX_NUMBER

BASE = {b"IMAP4rev1": 3501, b"IMAP4rev2": 9051, b"LITERAL+": 7888, b"SASL-IR": 4959, b"ID": 2971}
"""LITERAL- must not stand beside LITERAL+, which allows all that it does (RFC 7888 §5, RFC 9051 §4.3)."""

AFTER_LOGIN = {
    b"ACL": 4314,
    b"BINARY": 3516,
    b"CHILDREN": 3348,
    b"CONDSTORE": 7162,
    b"CREATE-SPECIAL-USE": 6154,
    b"ENABLE": 5161,
    b"ESEARCH": 4731,
    b"ESORT": 5267,
    b"I18NLEVEL=1": 5255,
    b"IDLE": 2177,
    b"INPROGRESS": 9585,
    b"LIST-EXTENDED": 5258,
    b"LIST-MYRIGHTS": 8440,
    b"LIST-STATUS": 5819,
    b"METADATA": 5464,
    b"MOVE": 6851,
    b"MULTIAPPEND": 3502,
    b"NAMESPACE": 2342,
    b"QRESYNC": 7162,
    b"QUOTA": 9208,
    b"QUOTA=RES-MESSAGE": 9208,
    b"QUOTA=RES-STORAGE": 9208,
    b"RIGHTS=kxte": 4314,
    b"SEARCHRES": 5182,
    b"SORT": 5256,
    b"SORT=DISPLAY": 5957,
    b"SPECIAL-USE": 6154,
    b"STATUS=SIZE": 8438,
    b"THREAD=ORDEREDSUBJECT": 5256,
    b"THREAD=REFERENCES": 5256,
    b"UIDPLUS": 4315,
    b"UNAUTHENTICATE": 8437,
    b"UNSELECT": 3691,
    b"UTF8=ACCEPT": 6855,
    b"WITHIN": 5032,
}

SOMETIMES = {
    b"APPENDLIMIT": 7889, b"AUTH": 3501, b"IMAPSIEVE": 6785, b"LOGIN-REFERRALS": 2221, b"LOGINDISABLED": 3501,
    b"QUOTASET": 9208, b"STARTTLS": 3501,
}
"""What depends on the connection, the user and the configuration, without its value: see `capabilities`."""

EARLY = (b"ENABLE", b"IDLE")
"""What clients look for that do not ask again after login: Python's imaplib is one."""

ENABLED_BY_ENABLE = {
    name.upper(): name for name in (b"CONDSTORE", b"IMAP4rev2", b"QRESYNC", b"UTF8=ACCEPT")}
"""Extensions that change answers only after ENABLE names them (RFC 5161 §3.1): in upper case, and as they are written.
"""

IMPLIED = {b"QRESYNC": b"CONDSTORE"}            # RFC 7162 §3.2.3


def capabilities(*, logged_in: bool, can_start_tls: bool, may_log_in: bool, append_limit: int,
                 administrator: bool = False, refers: bool = False, sieve_url: str = "", mechanisms: Iterable[str] = ()
                 ) -> tuple[bytes, ...]:
    """What is announced on a connection in that state.

    `may_log_in`: passwords are taken on this connection as it is now (RFC 3501 §6.2.3, §11.1). `append_limit`: octets
    of a message (RFC 7889 §4). `administrator`: the user may set limits (RFC 9208 §4.1.3). `refers`: who has mail on
    another server hears where (RFC 2221 §3). `sieve_url`: where scripts are managed that run for what clients do (RFC
    6785 §2.1); "": none do. `mechanisms`: those of AUTHENTICATE.
    """
    if logged_in:
        more = [b"QUOTASET"] if administrator else []
        more += [b"LOGIN-REFERRALS"] if refers else []
        more += [b"IMAPSIEVE=" + sieve_url.encode("ascii")] if sieve_url else []
        return (*BASE, *AFTER_LOGIN, *more, b"APPENDLIMIT=%d" % min(append_limit, MAX_NUMBER))
    early = [*BASE, *EARLY]
    if can_start_tls:
        early.append(b"STARTTLS")
    if not may_log_in:
        early.append(b"LOGINDISABLED")
    if refers:
        early.append(b"LOGIN-REFERRALS")
    early += [b"AUTH=" + name.encode("ascii") for name in mechanisms]
    return tuple(early)
