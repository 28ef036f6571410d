"""How LMTP answers the store's problems (RFC 2033 §4.2, RFC 5321 §4.2.3, RFC 3463 §3)."""

from lmtp.replies import Reply
from store.errors import Problem, StoreError

REPLIES = {
    Problem.NO_MAILBOX: (450, "4.2.0"),         # it was there at RCPT: another try finds what is there then
    Problem.MAILBOX_EXISTS: (451, "4.2.0"),
    Problem.BAD_NAME: (553, "5.1.3"),
    Problem.NO_PERMISSION: (550, "5.7.1"),
    Problem.GONE: (451, "4.3.0"),
    Problem.OVER_QUOTA: (452, "4.2.2"),
    Problem.QUOTA_GRACE_ENDED: (552, "5.2.2"),
    Problem.TOO_BIG: (552, "5.3.4"),
    Problem.LIMIT: (452, "4.2.0"),
    Problem.BUSY: (451, "4.2.0"),
    Problem.NO_USER: (550, "5.1.1"),
    Problem.USER_EXISTS: (451, "4.3.0"),
    Problem.USER_INACTIVE: (450, "4.2.1"),
    Problem.USER_ON_HOLD: (450, "4.2.1"),
    Problem.ELSEWHERE: (450, "4.4.4"),
    Problem.USER_DISABLED: (550, "5.2.1"),
    Problem.BAD_LOGIN: (535, "5.7.8"),
    Problem.NOT_AUTHORIZED: (535, "5.7.8"),
    Problem.LOGIN_EXPIRED: (535, "5.7.8"),
    Problem.DISK_FULL: (452, "4.3.1"),
    Problem.READ_ONLY: (451, "4.3.0"),
    Problem.UNAVAILABLE: (451, "4.3.0"),
    Problem.CORRUPT: (451, "4.3.0"),
    Problem.STORE_IN_USE: (451, "4.3.2"),
    Problem.NO_STORE: (451, "4.3.5"),
}


def refusal(error: StoreError) -> Reply:
    """The reply to what the store refused; its `detail` stays here."""
    code, enhanced = REPLIES[error.problem]
    text = error.public
    return Reply(code, enhanced, (text[:1].upper() + text[1:],))
