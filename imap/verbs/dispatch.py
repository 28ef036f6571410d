"""The table from a command's value to the function that carries it out, and which of these write to the audit trail."""

from collections.abc import Mapping
from typing import Any

from imap.session import Verb
from imap.verbs import (
    accesscontrol,
    append,
    audited,
    connection,
    copying,
    fetch,
    flags,
    listing,
    login,
    mailboxes,
    metadata,
    quotaroots,
    readonly,
    search,
    selecting,
    sorting,
)
from imap.wire.accesscontrol import DeleteAcl, GetAcl, ListRights, MyRights, SetAcl
from imap.wire.append import Append
from imap.wire.connection import Capability, Enable, Id, Idle, Logout, Noop, StartTls, Unauthenticate
from imap.wire.copying import Copy
from imap.wire.fetch import Fetch
from imap.wire.flags import StoreFlags
from imap.wire.listing import List, Lsub, Status
from imap.wire.login import Authenticate, Login
from imap.wire.mailboxes import Create, Delete, Namespace, Rename, Subscribe, Unsubscribe
from imap.wire.metadata import GetMetadata, SetMetadata
from imap.wire.quotaroots import GetQuota, GetQuotaRoot, SetQuota
from imap.wire.search import Search
from imap.wire.selecting import Check, Close, Expunge, Select, Unselect
from imap.wire.sorting import Sort, Thread

_VERBS: Mapping[type[Any], Verb] = {
    Capability: connection.capability,
    Noop: connection.noop,
    Logout: connection.logout,
    StartTls: connection.starttls,
    Id: connection.identify,
    Enable: connection.enable,
    Idle: connection.idle,
    Unauthenticate: connection.unauthenticate,
    Login: login.login,
    Authenticate: login.authenticate,
    Create: mailboxes.create,
    Delete: mailboxes.delete,
    Rename: mailboxes.rename,
    Subscribe: mailboxes.subscribe,
    Unsubscribe: mailboxes.unsubscribe,
    Namespace: mailboxes.namespace,
    List: listing.list_mailboxes,
    Lsub: listing.list_subscriptions,
    Status: listing.status,
    SetAcl: accesscontrol.set_acl,
    DeleteAcl: accesscontrol.delete_acl,
    GetAcl: accesscontrol.get_acl,
    ListRights: accesscontrol.list_rights,
    MyRights: accesscontrol.my_rights,
    GetQuota: quotaroots.get_quota,
    GetQuotaRoot: quotaroots.get_quota_root,
    SetQuota: quotaroots.set_quota,
    GetMetadata: metadata.get_metadata,
    SetMetadata: metadata.set_metadata,
    Select: selecting.select,
    Check: selecting.check,
    Close: selecting.close,
    Unselect: selecting.unselect,
    Expunge: selecting.expunge,
    Search: search.search,
    Sort: sorting.sort,
    Thread: sorting.thread,
    Fetch: fetch.fetch,
    StoreFlags: flags.store_flags,
    Copy: copying.copy,
    Append: append.append,
}

VERBS = audited.audited(_VERBS)
WATCHED = audited.watched(VERBS)       # for an administrator who acts as a user
READING = readonly.reading(VERBS)      # for a client that may change nothing
