"""What can go wrong in the store, as the three servers and the command line hear of it."""

import errno
import os
from enum import Enum

from mboxlist.engine.disk import is_disk_full


class Problem(Enum):
    """The kinds of refusal. Each server has one table that turns these into its own replies."""

    NO_MAILBOX = "no such mailbox"
    MAILBOX_EXISTS = "a mailbox of that name exists"
    BAD_NAME = "not a legal mailbox name"
    NO_PERMISSION = "not allowed"
    GONE = "the message has been expunged"
    OVER_QUOTA = "over quota"
    QUOTA_GRACE_ENDED = "over quota for too long"
    TOO_BIG = "the message is too big"
    LIMIT = "a limit has been reached"
    BUSY = "in use, try again"
    NO_USER = "no such user"
    USER_EXISTS = "a user of that name exists"
    USER_INACTIVE = "the account is not in use at present"
    USER_ON_HOLD = "mail for this account is on hold for now"
    USER_DISABLED = "the account is disabled"
    ELSEWHERE = "mail for this account is kept on another host"
    BAD_LOGIN = "user name or password is wrong"
    NOT_AUTHORIZED = "you may not log in that way"
    LOGIN_EXPIRED = "the password has been changed"
    DISK_FULL = "no space is left"
    READ_ONLY = "nothing can be changed at present, only read"
    UNAVAILABLE = "the store cannot be reached now"
    CORRUPT = "stored data is damaged"
    STORE_IN_USE = "another server owns this store"
    NO_STORE = "there is no store here"


class StoreError(Exception):
    """The store refuses, or cannot do, what it was asked to do.

    `public` may be shown to a client; `detail` goes to the log only.
    """

    def __init__(self, problem: Problem, public: str = "", detail: str = "") -> None:
        self.problem = problem
        self.public = public or problem.value
        self.detail = detail
        super().__init__(f"{self.public} ({detail})" if detail else self.public)


class NotAtOnce(StoreError):
    """In an event loop something would have to wait, for a lock or the end of a write freeze, or would take long.
    Nothing has been done: `offload.change` has it done in a thread."""

    def __init__(self) -> None:
        super().__init__(Problem.BUSY, "The store is busy for a moment, try again")


def disk_problem(error: OSError) -> StoreError:
    """The refusal for a failure of the file system."""
    problem = Problem.READ_ONLY if error.errno == errno.EROFS else Problem.UNAVAILABLE
    return StoreError(Problem.DISK_FULL if is_disk_full(error) else problem, detail=in_words(error))


def in_words(error: OSError) -> str:
    """What went wrong, without a number."""
    what = error.strerror or str(error)
    return f"{os.fsdecode(error.filename)}: {what}" if isinstance(error.filename, str | bytes | os.PathLike) else what
