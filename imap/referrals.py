"""Where a client finds what another back end keeps: its own mail (RFC 2221), or a mailbox of another user's (RFC 2193).

The capability MAILBOX-REFERRALS is not announced: RLIST would have to list what only the other back end knows. Nor is
it known here with whom a mailbox there is shared: so the second kind tells every user who there is elsewhere, and is
given only where `imap.mailbox_referrals` says so.
"""

from urllib.parse import quote

from imap.refusals import TRYCREATE
from mboxlist.names import MailboxName
from store import hosting
from store.accounts.base import Account
from store.errors import StoreError
from store.store import Store

NOT_HERE = (b"NONEXISTENT", TRYCREATE)      # the codes in whose place a referral may come


def to_home(account: Account) -> bytes:
    """The response code that names the back end with the account's own mail (RFC 2221 §3)."""
    return b"REFERRAL " + _url(account.user, account.host, "")


async def to_mailbox(store: Store, reader: str, name: MailboxName) -> bytes:
    """The response code that names the back end with a mailbox of another user's (RFC 2193 §3); nothing if that is not
    on another one. Whether there is such a mailbox, and who may see it, only that one knows."""
    if name.owner in ("", reader):
        return b""
    try:
        owner = await hosting.find(store, name.owner)
    except StoreError:
        return b""
    if owner is None or not owner.status.may_log_in or hosting.is_here(store, owner):
        return b""
    return b"REFERRAL " + _url(reader, owner.host, name.to_client(reader))


def _url(user: str, host: str, mailbox: str) -> bytes:
    """An IMAP URL (RFC 5092 §11): AUTH=* keeps a client from logging in as anonymous."""
    return f"imap://{quote(user, safe='')};AUTH=*@{quote(host, safe='')}/{quote(mailbox, safe='/')}".encode("ascii")
