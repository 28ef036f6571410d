"""What an administrator can choose about the store."""

from attrs import field, frozen


@frozen
class Settings:
    """Settings of the store; sizes in octets, times in seconds."""

    default_domain: str = field(default="example.org", metadata={"help": "users of this domain are named without it"})
    message_limit: int = field(default=128 << 20, metadata={"help": "octets of the largest message", "type": "size"})
    default_quota: int = field(default=0, metadata={"help": "octets a user may keep; 0: no limit", "type": "size"})
    default_message_quota: int = field(default=0, metadata={"help": "messages a user may keep; 0: no limit"})
    mailbox_limit: int = field(default=10_000, metadata={"help": "mailboxes a user may have"})
    purge_delay: int = field(default=7 * 86400, metadata={
        "help": "how long a message that is in no mailbox any more is kept", "type": "duration"})
    disk_reserve: int = field(default=32 << 20, metadata={
        "help": "octets that must stay free on a partition; below, new mail is refused for now", "type": "size"})
    cache: int = field(default=64 << 20, metadata={
        "help": "octets of memory for each partition's database cache", "type": "size"})
    database_locks: int = field(default=200_000, metadata={
        "help": "pages of a partition's database that can be locked at once; bounds how many messages one COPY takes"})
    checkpoint_interval: int = field(default=60, metadata={
        "help": "time between log checkpoints", "type": "duration"})
