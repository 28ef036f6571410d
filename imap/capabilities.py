"""What the server announces, and when: RFC 3501 §6.1.1. Only what is whole is in these lists."""

from collections.abc import Iterable

from imap.wire.grammar import MAX_NUMBER

BASE = (b"IMAP4rev1", b"IMAP4rev2", b"LITERAL+", b"SASL-IR", b"ID")
"""LITERAL- must not stand beside LITERAL+, which allows all that it does (RFC 7888 §5, RFC 9051 §4.3)."""

AFTER_LOGIN = (
    b"ACL",                 # RFC 4314
    b"BINARY",              # RFC 3516
    b"CHILDREN",            # RFC 3348
    b"CONDSTORE",           # RFC 7162
    b"CREATE-SPECIAL-USE",  # RFC 6154
    b"ENABLE",              # RFC 5161
    b"ESEARCH",             # RFC 4731
    b"ESORT",               # RFC 5267
    b"I18NLEVEL=1",         # RFC 5255
    b"IDLE",                # RFC 2177
    b"INPROGRESS",          # RFC 9585
    b"LIST-EXTENDED",       # RFC 5258
    b"LIST-MYRIGHTS",       # RFC 8440
    b"LIST-STATUS",         # RFC 5819
    b"MOVE",                # RFC 6851
    b"MULTIAPPEND",         # RFC 3502
    b"NAMESPACE",           # RFC 2342
    b"QRESYNC",             # RFC 7162
    b"QUOTA",               # RFC 9208
    b"QUOTA=RES-MESSAGE",
    b"QUOTA=RES-STORAGE",
    b"RIGHTS=kxte",         # RFC 4314
    b"SEARCHRES",           # RFC 5182
    b"SORT",                # RFC 5256
    b"SORT=DISPLAY",        # RFC 5957
    b"SPECIAL-USE",         # RFC 6154
    b"STATUS=SIZE",         # RFC 8438
    b"THREAD=ORDEREDSUBJECT",
    b"THREAD=REFERENCES",   # RFC 5256
    b"UIDPLUS",             # RFC 4315
    b"UNAUTHENTICATE",      # RFC 8437
    b"UNSELECT",            # RFC 3691
    b"UTF8=ACCEPT",         # RFC 6855
    b"WITHIN",              # RFC 5032
)

EARLY = (b"ENABLE", b"IDLE")
"""What clients look for that do not ask again after login: Python's imaplib is one."""

ENABLED_BY_ENABLE = {
    name.upper(): name for name in (b"CONDSTORE", b"IMAP4rev2", b"QRESYNC", b"UTF8=ACCEPT")}
"""Extensions that change answers only after ENABLE names them (RFC 5161 §3.1): in upper case, and as they are written.
"""

IMPLIED = {b"QRESYNC": b"CONDSTORE"}            # RFC 7162 §3.2.3


def capabilities(*, logged_in: bool, can_start_tls: bool, may_log_in: bool, append_limit: int,
                 administrator: bool = False, refers: bool = False, mechanisms: Iterable[str] = ()
                 ) -> tuple[bytes, ...]:
    """What is announced on a connection in that state.

    `may_log_in`: passwords are taken on this connection as it is now (RFC 3501 §6.2.3, §11.1). `append_limit`: octets
    of a message (RFC 7889 §4). `administrator`: the user may set limits (RFC 9208 §4.1.3). `refers`: who has mail on
    another server hears where (RFC 2221 §3). `mechanisms`: those of AUTHENTICATE.
    """
    if logged_in:
        more = [b"QUOTASET"] if administrator else []
        more += [b"LOGIN-REFERRALS"] if refers else []
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
