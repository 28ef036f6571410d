"""What IMAP answers to each problem of the store: the response codes of RFC 5530, RFC 7889 and RFC 3501 §7.1.

The table covers every Problem. What a client may see is the problem's public text; the detail goes to the log only.
"""

from store.errors import Problem, StoreError

CODES: dict[Problem, bytes] = {
    Problem.NO_MAILBOX: b"NONEXISTENT",
    Problem.MAILBOX_EXISTS: b"ALREADYEXISTS",
    Problem.BAD_NAME: b"CANNOT",
    Problem.NO_PERMISSION: b"NOPERM",
    Problem.GONE: b"EXPUNGEISSUED",
    Problem.OVER_QUOTA: b"OVERQUOTA",
    Problem.QUOTA_GRACE_ENDED: b"OVERQUOTA",
    Problem.TOO_BIG: b"TOOBIG",
    Problem.LIMIT: b"LIMIT",
    Problem.BUSY: b"INUSE",
    Problem.NO_USER: b"NONEXISTENT",
    Problem.USER_EXISTS: b"ALREADYEXISTS",
    Problem.USER_INACTIVE: b"UNAVAILABLE",
    Problem.USER_ON_HOLD: b"UNAVAILABLE",
    Problem.ELSEWHERE: b"UNAVAILABLE",
    Problem.USER_DISABLED: b"CONTACTADMIN",
    Problem.BAD_LOGIN: b"AUTHENTICATIONFAILED",
    Problem.NOT_AUTHORIZED: b"AUTHORIZATIONFAILED",
    Problem.LOGIN_EXPIRED: b"EXPIRED",
    Problem.DISK_FULL: b"UNAVAILABLE",
    Problem.READ_ONLY: b"UNAVAILABLE",
    Problem.UNAVAILABLE: b"UNAVAILABLE",
    Problem.CORRUPT: b"CORRUPTION",
    Problem.STORE_IN_USE: b"UNAVAILABLE",
    Problem.NO_STORE: b"UNAVAILABLE",
}

OUR_FAULT = frozenset({Problem.CORRUPT, Problem.DISK_FULL, Problem.UNAVAILABLE, Problem.STORE_IN_USE, Problem.NO_STORE})
"""Problems that somebody should look at: they are logged as errors."""

TRYCREATE = b"TRYCREATE"        # RFC 3501 §7.1: what APPEND, COPY and MOVE say of a target that is not there

BROKEN = (b"SERVERBUG", "Internal error, see the server's log")     # an exception that nobody expected


def code(error: StoreError, *, as_target: bool = False) -> bytes:
    """The response code of a refusal; `as_target` where the mailbox was to receive messages."""
    if as_target and error.problem is Problem.NO_MAILBOX:
        return TRYCREATE
    return CODES[error.problem]
