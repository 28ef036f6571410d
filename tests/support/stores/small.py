"""What costs a start and a login much, and proves nothing: made small in processes of tests.

Thousands of tests make a store, or log in. Whoever opens a store makes the shared memory of its databases anew, and
Berkeley DB overwrites what is left of the newest log file.
"""

import mboxlist.engine.hotcopy
from mboxlist.engine import kv
from store import opening
from store.accounts import builtin, passwords
from store.values import Secret

FULL_COST = passwords._LOG_N


def make() -> None:
    """In this process, and in those that are forked from it."""
    passwords._LOG_N = 10               # the cheapest that `verify_password` takes
    builtin.NOBODY = passwords.hash_password(Secret(b"nobody"))         # of unknown users, who cost as much
    kv.LOG_FILE = mboxlist.engine.hotcopy.LOG_FILE = 2 << 20
    kv.LOG_BUFFER = 256 << 10
    opening.LIST_CACHE = 1 << 20
