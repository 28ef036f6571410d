"""The tables of an export of facts: those that the store's files are read as (`source.schema`), with what only the
databases know, and further ones. Its rules hold here, too; `store` is the name of the back end.

Within a version columns are only added, at the end of a table.
"""

from collections.abc import Sequence

import pyarrow as pa

from tools.spark.source.schema import NUMBER, TABLES, TEXT, TEXTS, TIME, Column, arrow_schema

VERSION = 2

_PLACE = TABLES["messages"][:2]

USERS = (
    _PLACE[0],
    Column("user", TEXT, "user id"),
    Column("domain", TEXT, "domain, \"\" for the default domain"),
    Column("partition", TEXT, "partition of new mailboxes"),
    Column("status", TEXT, "status of the account, such as active"),
    Column("host", TEXT, "back end that keeps the mail, \"\" when there is one only"),
    Column("groups", TEXTS, "groups of the account"),
    Column("aliases", NUMBER, "number of further addresses"),
    Column("removed", TIME, "when the user was removed, null for one who is there"),
    Column("last_login", TIME, "the day on which the user was last logged in, null when there is no record"),
    Column("last_read", TIME, "the day on which the user last read a message"),
)

EXPUNGED = (
    *_PLACE,
    Column("mailbox", NUMBER, "id of the mailbox that it was in"),
    Column("expunged", TIME, "when; until store.purge_delay later it can be brought back"),
    Column("digest", TEXT, "digest that names the message file"),
    Column("octets", NUMBER, "RFC822.SIZE"),
)

VOLUMES = (
    *_PLACE,
    Column("octets", NUMBER, "octets of the file system on which the partition is"),
    Column("free", NUMBER, "octets that can still be written there"),
    Column("seen", TIME, "when that was so"),
)

FACTS: dict[str, tuple[Column, ...]] = {
    **TABLES,
    "messages": (*TABLES["messages"],
                 Column("sender", TEXT, "address of the first author (RFC 5322 §3.6.2), in lower case, or null"),
                 Column("unused", TIME, "when the last reference went; null when there is one")),
    "quotas": (*TABLES["quotas"],
               Column("used_octets", NUMBER, "octets that are charged to the root on this partition"),
               Column("used_messages", NUMBER, "messages that are charged to it")),
    "users": USERS, "expunged": EXPUNGED, "volumes": VOLUMES,
}


def fact_schema(table: str, columns: Sequence[str] = ()) -> pa.Schema:
    """The Arrow schema of a table of facts, or of these columns of it."""
    return arrow_schema(FACTS[table], columns)
