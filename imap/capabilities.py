"""What the server announces, and when: RFC 3501 §6.1.1. Only what is whole is in these lists."""

BASE = (b"IMAP4rev1", b"LITERAL+", b"SASL-IR", b"ID")

AFTER_LOGIN = (
    b"CHILDREN",            # RFC 3348
    b"CREATE-SPECIAL-USE",  # RFC 6154
    b"ENABLE",              # RFC 5161
    b"IDLE",                # RFC 2177
    b"MOVE",                # RFC 6851
    b"NAMESPACE",           # RFC 2342
    b"SPECIAL-USE",         # RFC 6154
    b"UIDPLUS",             # RFC 4315
    b"UNSELECT",            # RFC 3691
)

ENABLED_BY_ENABLE: frozenset[bytes] = frozenset()
"""Extensions that change answers only after ENABLE names them (RFC 5161 §3.1). None yet."""


def capabilities(*, logged_in: bool, can_start_tls: bool, may_log_in: bool) -> tuple[bytes, ...]:
    """What is announced on a connection in that state.

    `may_log_in`: passwords are taken on this connection as it is now (RFC 3501 §6.2.3, §11.1).
    """
    if logged_in:
        return BASE + AFTER_LOGIN
    early = [*BASE]
    if can_start_tls:
        early.append(b"STARTTLS")
    early.append(b"AUTH=PLAIN" if may_log_in else b"LOGINDISABLED")
    return tuple(early)
