"""What an administrator can choose about the store."""

import re
from pathlib import Path

from attrs import field, frozen
from attrs.validators import in_

from mboxlist.names import INBOX, legal_path
from store.addresses import canonical_domain
from store.values import Flag, setting

LEAST_USED = "least used"
SYNC_LEVELS = ("everything", "messages", "none")
QUOTA_CHARGES = ("logical", "fair")
CONCEALED = ("clients", "all", "none")
# What a mailbox can be made for (RFC 6154 §2). \All is missing, because nothing collects all messages in a mailbox;
# a \Flagged mailbox may be filled by a client.
SPECIAL_USES = ("\\Archive", "\\Drafts", "\\Flagged", "\\Junk", "\\Sent", "\\Trash")
_PRIVATE = {"seen": Flag.SEEN, "answered": Flag.ANSWERED, "flagged": Flag.FLAGGED, "draft": Flag.DRAFT}


def _known_flags(value: str) -> None:
    unknown = [name for name in value.split() if name not in _PRIVATE]
    if unknown:
        raise ValueError(f"{unknown[0]} is none of {', '.join(_PRIVATE)}")


def _lower(value: str) -> str:
    return value.lower()


def _per_cent(value: int) -> None:
    if not 0 <= value <= 100:
        raise ValueError("must be between 0 and 100")


def schedule(text: str) -> tuple[str, int]:
    """("at", seconds after midnight), ("every", seconds) or ("never", 0), of 03:30, 6h, never. Raises ValueError."""
    text = text.strip().lower()
    if text in ("never", "off", ""):
        return "never", 0
    if match := re.fullmatch(r"([01]?[0-9]|2[0-3]):([0-5][0-9])", text):
        return "at", int(match[1]) * 3600 + int(match[2]) * 60
    if (match := re.fullmatch(r"([0-9]{1,6})([mhd])", text)) and int(match[1]):
        return "every", int(match[1]) * {"m": 60, "h": 3600, "d": 86400}[match[2]]
    raise ValueError("neither a time of day (03:30), nor a time between (30m, 6h, 1d), nor never")


def special_names(values: tuple[str, ...]) -> dict[str, str]:
    r"""Special use (RFC 6154 §2), as \Sent, and the mailbox for it, of Sent or Sent=NAME. Raises ValueError."""
    found: dict[str, str] = {}
    for text in values:
        word, _, name = (part.strip() for part in text.partition("="))
        use = next((use for use in SPECIAL_USES if word.lower() == use[1:].lower()), None)
        path = legal_path(name or word.capitalize())
        if use is None:
            raise ValueError(f"{word} is none of {', '.join(use[1:] for use in SPECIAL_USES)}")
        if use in found or path in found.values() or path == INBOX:
            raise ValueError(f"{text} names a use or a mailbox a second time")
        found[use] = path
    return found


@frozen
class Settings:
    """Settings of the store; sizes in octets, times in seconds."""

    default_domain: str = field(default="example.org", converter=canonical_domain, metadata={
        "help": "users of this domain are named without it"})
    host: str = field(default="", converter=_lower, metadata={
        "help": "the name of this back end, as the directory says which one keeps a user's mail (mailHost); empty: "
                "there is only this one"})
    message_limit: int = setting(128 << 20, "octets of the largest message", type="size")
    default_quota: int = setting(0, "octets a user may keep; 0: no limit", type="size")
    default_message_quota: int = setting(0, "messages a user may keep; 0: no limit")
    quota_enforce: bool = setting(True, "whether limits hold; what is used is counted either way")
    conceal_sharing: str = setting("clients", "whose messages are written and synced also if the store has the same "
                                   "content, so that the time of the answer tells nobody: clients (APPEND), all (LMTP "
                                   "and commands too), none", validator=in_(CONCEALED))
    quota_charge: str = setting("logical", "what the administrator's accounts charge: logical (the octets of a user's "
                                "messages), fair (of a message file that several users hold each is charged its part); "
                                "limits, and what users see, are logical with either", validator=in_(QUOTA_CHARGES))
    quota_fair_interval: int = setting(3600, "time between two reckonings of what sharing takes off in the accounts, "
                                       "with quota_charge = fair", type="duration")
    quota_grace: int = setting(5 * 86400, "how long mail to a user over quota is refused for now; after that, for good",
                               type="duration")
    quota_warn: int = setting(90, "per cent of a limit from which users are warned; 0: never", check=_per_cent)
    quota_notice: str = setting("off", "whether warned users get a message too: off, on, or the file that it is made "
                                "from")
    quota_notice_interval: int = setting(7 * 86400, "time between two such messages to a user", type="duration")
    special_mailboxes: tuple[str, ...] = setting(("Drafts", "Sent", "Junk", "Trash", "Archive"),
        "special uses for which a new user gets a mailbox at the first login or delivery, subscribed: Sent, or with "
        "another name Sent=Gesendet; empty: none", check=special_names)
    mailbox_limit: int = setting(10_000, "mailboxes a user may have")
    sync: str = setting("everything", "what is on disk before it is acknowledged: everything; messages (flags, copies "
                        "and expunges follow within a second); none (for imports and tests)",
                        validator=in_(SYNC_LEVELS))
    purge_delay: int = setting(7 * 86400, "how long a message that is in no mailbox any more is kept", type="duration")
    expire_rules: Path | None = setting(None, "file with rules for the whole store that say which messages go by "
                                        "themselves")
    expire_exclude: Path | None = setting(None, "file with user ids, one in a line, in whose mailboxes nothing goes by "
                                          "itself")
    expire_schedule: str = setting("03:30", "when messages go by rules: a time of day (03:30), a time between two "
                                   "rounds (6h), or never", check=schedule)
    expire_trash: int = setting(30 * 86400, r"how long messages stay in a mailbox with special use \Trash; 0: for ever",
                                type="duration")
    expire_junk: int = setting(30 * 86400, r"the same for \Junk", type="duration")
    private_flags: str = setting("seen", "flags that each reader of a shared mailbox has of its own: seen, answered, "
                                 "flagged, draft", check=_known_flags)
    lost_mailbox: str = setting("public/Lost", "where onecopy reconstruct puts message files to which nothing refers, "
                                "in a mailbox below it for each partition; or user/postmaster/Lost; empty: they stay "
                                "where they are, and are reported")
    disk_reserve: int = setting(32 << 20, "octets that must stay free on a partition; below, new mail is refused for "
                                "now", type="size")
    disk_threshold: int = setting(99, "per cent of a partition's volume in use from which on new mail is refused for "
                                  "now; 0: never", check=_per_cent)
    public_user: str = setting("public", "mail to public+news goes to the public mailbox news, from senders who may "
                               "post there; if there is a user of that name the mail is that user's; \"\": there is no "
                               "such address")
    default_partition: str = setting("primary",
        f"partition of new users; {LEAST_USED}: the one with the most free space")
    asynchronous_partitions: tuple[str, ...] = setting((), "partitions whose changes wait for no standby, also where "
                                                       "exchange.synchronous names one, with commas between them: for "
                                                       "those that it does not protect")
    user_delay: int = setting(7 * 86400, "how long the mail of a removed user is kept, so that the user can be "
                              "restored", type="duration")
    mailbox_waiters: int = setting(8, "messages that may wait for a mailbox that is locked; more are refused for now")
    mailbox_wait: int = setting(20, "how long they wait before they are refused for now", type="duration")
    cache: int = setting(64 << 20, "octets of memory for each partition's database cache", type="size")
    database_locks: int = setting(200_000, "pages of a partition's database that can be locked at once; bounds how "
                                  "many messages one COPY takes")
    verify_reads: bool = setting(True, "whether a message of up to 64 KiB is compared with its digest, or with a hash "
                                 "of what agreed with it before, when a client reads its body; one that the disk gives "
                                 "back wrong is refused, and logged")
    scrub_rate: int = setting(50 << 20, "octets a second that onecopy scrub reads; 0: as many as it can", type="size")
    checkpoint_interval: int = setting(60, "time between log checkpoints", type="duration")
    log_archive: Path | None = setting(None, "folder to which database logs go that are no longer needed; default: "
                                       "they are removed")
    snapshot_folder: Path | None = setting(None, "folder for snapshots, on another volume if possible; default: "
                                           "snapshots, in the store")
    snapshot_interval: int = setting(86400, "time between two snapshots", type="duration")
    snapshots_kept: int = setting(3, "how many snapshots are kept; 0: none are made by themselves")
    snapshot_logs: int = setting(4 << 30, "octets of database logs of a partition that are kept since the newest "
                                 "snapshot, so that it can be followed by all that came after; with more, a new "
                                 "snapshot is made early", type="size")
    freeze_time: int = setting(60, "how long onecopy snapshot create --freeze may hold the store still; then its "
                               "command is ended and the store goes on", type="duration")
    index_rate: int = setting(32 << 20, "octets of store.idx written in a second; more only where a mailbox would be a "
                              "minute behind; 0: no limit", type="size")
    journal_size: int = setting(64 << 20, "octets that each process may keep in journal/ of what became of which "
                                "message, for `onecopy explain message`; 0: nothing is noted", type="size")
    journal_time: int = setting(14 * 86400, "how long that is kept", type="duration")
    housekeeping_rate: int = setting(2000, "messages or mailboxes a second that each long task of housekeeping works "
                                     "on at most; 0: no limit")

    @property
    def special_names(self) -> dict[str, str]:
        """The mailboxes of `special_mailboxes` by their uses."""
        return special_names(self.special_mailboxes)

    @property
    def private_bits(self) -> int:
        """`private_flags` as bits of a record."""
        return sum(_PRIVATE[name].value for name in set(self.private_flags.split()))
