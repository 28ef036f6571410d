"""What POP3 answers to each problem of the store: the response codes of RFC 2449 §8.1.1 and RFC 3206.

The table covers every Problem. What a client may see is the problem's public text; the detail goes to the log only.
"""

from pop3.replies import refused
from store.errors import Problem, StoreError

# AUTH: what the user sent or may do is wrong, so that asking for the password makes sense. SYS/TEMP: try again later.
# SYS/PERM: someone has to look at it. None: a matter of this command alone.
CODES: dict[Problem, str | None] = {
    Problem.NO_MAILBOX: "SYS/PERM",
    Problem.MAILBOX_EXISTS: "SYS/PERM",
    Problem.BAD_NAME: "SYS/PERM",
    Problem.NO_PERMISSION: "SYS/PERM",
    Problem.GONE: None,
    Problem.OVER_QUOTA: "SYS/PERM",
    Problem.QUOTA_GRACE_ENDED: "SYS/PERM",
    Problem.TOO_BIG: "SYS/PERM",
    Problem.LIMIT: "SYS/TEMP",
    Problem.BUSY: "IN-USE",
    Problem.NO_USER: "AUTH",
    Problem.USER_EXISTS: "SYS/PERM",
    Problem.USER_INACTIVE: "AUTH",
    Problem.USER_ON_HOLD: "AUTH",
    Problem.ELSEWHERE: "SYS/TEMP",
    Problem.USER_DISABLED: "AUTH",
    Problem.BAD_LOGIN: "AUTH",
    Problem.NOT_AUTHORIZED: "AUTH",             # RFC 3206 §4: the credentials violate a policy
    Problem.LOGIN_EXPIRED: "AUTH",
    Problem.DISK_FULL: "SYS/TEMP",
    Problem.READ_ONLY: "SYS/TEMP",
    Problem.UNAVAILABLE: "SYS/TEMP",
    Problem.CORRUPT: "SYS/PERM",
    Problem.STORE_IN_USE: "SYS/TEMP",
    Problem.NO_STORE: "SYS/TEMP",
}

# Nothing in the answer tells an unknown user from a wrong password.
_SAID = {Problem.NO_USER: Problem.BAD_LOGIN.value}


def refusal(error: StoreError) -> bytes:
    """The reply to a command that the store refuses."""
    return refused(_SAID.get(error.problem, error.public), CODES[error.problem])
