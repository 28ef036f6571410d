"""The tables that the store is read as: their columns, with what each means and its unit (see also docs/spark.md).

Rules for all of them: octets are 64-bit integers; times are UTC, to the microsecond, and null where there is none;
names of mailboxes are canonical ("user/alice/Archive", "public/news"); `owner` is a user id, "" for public mailboxes;
`domain` is the part of the owner behind "@", "" for the default domain; digests are 64 hexadecimal digits in lower
case; `store` is the folder of the store as it was given, `partition` the name of the partition's folder.

Within a version columns are only added, at the end.
"""

from collections.abc import Sequence

import pyarrow as pa
from attrs import frozen

VERSION = 1
FORMAT = "onecopy"              # what Spark calls the data source of these tables

TEXT = pa.string()
NUMBER = pa.int64()
SMALL = pa.int32()
TRUTH = pa.bool_()
TIME = pa.timestamp("us", tz="UTC")
TEXTS = pa.list_(pa.field("element", pa.string()))

SYSTEM_FLAGS = ("\\Seen", "\\Answered", "\\Flagged", "\\Deleted", "\\Draft")     # by their bits in a record


@frozen
class Column:
    """A column of a table: its name, its Arrow type, and what it means."""

    name: str
    type: pa.DataType
    text: str


_PLACE = (
    Column("store", TEXT, "folder of the store, as it was given"),
    Column("partition", TEXT, "name of the partition"),
)
_MAILBOX = (
    Column("mailbox", NUMBER, "id of the mailbox; null when the head of its file is lost"),
    Column("name", TEXT, "canonical name of the mailbox; where the head is lost, the one that its place says, or null"),
    Column("owner", TEXT, "user id of the owner, \"\" for a public mailbox; null when there is no telling"),
)
_DOMAIN = Column("domain", TEXT, "domain of the owner, \"\" for the default domain and for public mailboxes")

MESSAGES = (
    *_PLACE,
    Column("digest", TEXT, "digest that names the file; of a staged file the likeliest one; null when it has none"),
    Column("folder", TEXT, "hash folder below messages/, such as 3/fa; of a staged file that where it will be"),
    Column("octets", NUMBER, "octets of the file, trace header included; null when it cannot be looked at"),
    Column("modified", TIME, "when the file was written"),
    Column("staged", TRUTH, "the file is in staging/, and has no name in messages/ yet"),
    Column("path", TEXT, "where the file is below the partition's folder"),
    Column("damage", TEXT, "what is wrong with the file's name or kind, \"\" when nothing is (contents are not read)"),
)

MAILBOXES = (
    *_PLACE,
    Column("id", NUMBER, "id of the mailbox; null when the head of its file is lost"),
    Column("name", TEXT, _MAILBOX[1].text),
    Column("owner", TEXT, _MAILBOX[2].text),
    _DOMAIN,
    Column("uidvalidity", NUMBER, "UIDVALIDITY (RFC 3501 §2.3.1.1)"),
    Column("uidnext", NUMBER, "UIDNEXT when the file was written"),
    Column("highestmodseq", NUMBER, "HIGHESTMODSEQ when the file was written (RFC 7162 §3.1.2.1)"),
    Column("epoch", NUMBER, "epoch of these figures: how many unclean ends there had been"),
    Column("created", TIME, "when the mailbox was made"),
    Column("removed", TIME, "when the mailbox was deleted, and waits for the purge; null for one that is there"),
    Column("special_use", TEXT, "special use (RFC 6154), or null"),
    Column("quota_root", TEXT, "quota root that it is charged to"),
    Column("keywords", TEXTS, "names of its keywords, by their bits in the records"),
    Column("subscriptions", TEXTS, "in an INBOX what its owner has subscribed to"),
    Column("records", NUMBER, "number of records that the file should have"),
    Column("written", TIME, "when the file was written"),
    Column("path", TEXT, "where the file is below the partition's folder"),
    Column("damage", TEXT, "what of the file is lost, \"\" when it is whole"),
    Column("identity", TEXT, "identity of the list of mailboxes that gave the id"),
    Column("octets", NUMBER, "octets of the file itself"),
    Column("last_login", TIME, "in an INBOX the day on which its owner was last logged in, null without a record"),
    Column("last_read", TIME, "the day on which its owner last read a message"),
)

REFERENCES = (
    *_PLACE,
    *_MAILBOX,
    _DOMAIN,
    Column("uid", NUMBER, "UID (RFC 3501 §2.3.1.1)"),
    Column("modseq", NUMBER, "MODSEQ (RFC 7162 §3.1.1)"),
    Column("digest", TEXT, "digest that names the message file"),
    Column("octets", NUMBER, "RFC822.SIZE of the message in this mailbox"),
    Column("skip", NUMBER, "octets at the head of the message file that are not part of this message"),
    Column("head", NUMBER, "number of the header fields that it has in this mailbox alone, 0 for none"),
    Column("internal_date", TIME, "internal date (RFC 3501 §2.3.3)"),
    Column("zone", SMALL, "zone of the internal date, minutes east of UTC"),
    Column("saved", TIME, "when the message came into this mailbox (RFC 8514), or null"),
    Column("flags", TEXTS, "system flags that all see (in a shared mailbox a reader may have own ones beside these)"),
    Column("keywords", TEXTS, "keywords"),
    Column("seen", TRUTH, "\\Seen is among the flags"),
    Column("answered", TRUTH, "\\Answered is among the flags"),
    Column("flagged", TRUTH, "\\Flagged is among the flags"),
    Column("deleted", TRUTH, "\\Deleted is among the flags"),
    Column("draft", TRUTH, "\\Draft is among the flags"),
    Column("removed", TRUTH, "the mailbox was deleted, and waits for the purge"),
    Column("serial", NUMBER, "arrival serial of the message file on its partition"),
    Column("special_use", TEXT, "special use of the mailbox (RFC 6154), or null"),
)

QUOTAS = (
    *_PLACE,
    Column("root", TEXT, "quota root: alice, alice/Archive, public/news, @example.com (@ for the default domain)"),
    Column("kind", TEXT, "user, mailbox (public ones, too), or domain"),
    Column("limit_octets", NUMBER, "limit of octets; null for none, and for the default"),
    Column("limit_messages", NUMBER, "limit of messages; null for none, and for the default"),
    Column("default_octets", TRUTH, "the limit of octets is the store's default (store.default_quota)"),
    Column("default_messages", TRUTH, "the limit of messages is the default (store.default_message_quota)"),
    Column("mailbox", NUMBER, "id of the mailbox whose file tells it"),
    Column("written", TIME, "when that file was written: where several tell of one root, the newest counts"),
)

RIGHTS = (
    *_PLACE,
    *_MAILBOX,
    Column("identifier", TEXT, "whom the entry of the ACL is for (RFC 4314 §2), without the minus sign"),
    Column("rights", TEXT, "rights, each a letter (RFC 4314 §2.1)"),
    Column("negative", TRUTH, "the rights are taken away from the identifier"),
)

TABLES: dict[str, tuple[Column, ...]] = {
    "messages": MESSAGES, "mailboxes": MAILBOXES, "references": REFERENCES, "quotas": QUOTAS, "rights": RIGHTS,
}


def arrow_schema(columns: Sequence[Column], names: Sequence[str] = ()) -> pa.Schema:
    """The Arrow schema of these columns, or of those of them that have these names, in their order."""
    known = {column.name: column.type for column in columns}
    return pa.schema([pa.field(name, known[name]) for name in names or known])


def schema(table: str, columns: Sequence[str] = ()) -> pa.Schema:
    """The Arrow schema of a table, or of these columns of it. Raises ValueError for a name that there is not."""
    if table not in TABLES:
        raise ValueError(f"there is no table {table}: only {', '.join(TABLES)}")
    known = {column.name for column in TABLES[table]}
    unknown = [name for name in columns if name not in known]
    if unknown:
        raise ValueError(f"table {table} has no column {unknown[0]}")
    return arrow_schema(TABLES[table], columns)
