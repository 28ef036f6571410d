"""Every file of a store on disk. What kind of thing each path is to be, and that nothing else is there, the check knows
(`store/check/layout.py`); what it is for stands here. Words in angle brackets stand for what differs."""

import re
from collections.abc import Iterator

from tools.reference.markdown import cell, code, page, table

_WRITTEN = "Written by `onecopy man --markdown docs/reference` from the table in `tools/reference/filepage.py`."
_WHERE = ("Paths begin in the folder of the store (`root`). All of it belongs to the user of the server, files with "
          "mode 0600, folders with 0700: nobody else can read any of it, and `onecopy check` finds what is otherwise. "
          "Nothing here is to be deleted by hand but `set-aside`, and what is called `damaged` or `older`, once nobody "
          "needs it; while no process has the store open, `run` may go, too. `messages/` and `users/` of a partition "
          "are what must not be lost: the rest is rebuilt from them ([recovery.md](../recovery.md)), or no mail needs "
          "it.")
_ENVIRONMENT = (
    ("log.<number>", "the log of the databases: each change is here, and on disk, before it is answered"),
    ("kept/log.<number>", "of a standby that others follow: a file of the log that these alone still need"),
    ("__db.<number>", "shared memory of the processes that have the databases open; it is worth nothing after a start"),
    ("DB_CONFIG", "what Berkeley DB reads whenever it opens the databases"),
    ("tables", "which tables there are, each with its identity, so that one that is missing, or another's, is found"),
    ("newest", "the newest log file, and how much of it is on disk at least"),
    ("opening", "there while the first process opens the databases"),
    ("suspect", "what Berkeley DB has found wrong: the next start reads everything before it believes anything"),
    ("clean", "sizes and times of the files after a clean end"),
    ("clean.before", "the same, while a start is under way"),
    ("unclean", "the next start counts an unclean end: a promotion, or a snapshot that was put back, leaves it"),
    ("unlogged", "there are tables that were made without the log"),
    ("memory", "how the shared memory was made"),
    ("kept-log", "the first log file that the newest snapshot needs"),
)
_LIST = (
    ("mailboxes.db", "name of a mailbox: its id, partition, UIDVALIDITY, ACL, special use"),
    ("names.db", "id of a mailbox: its name"),
    ("rights.db", "user or group: the shared mailboxes that it may look up"),
    ("deleted.db", "deleted mailboxes that can be brought back"),
    ("pending.db", "mailboxes on which something has begun, such as a rename"),
    ("former.db", "UIDVALIDITYs that names have had"),
    ("forgotten.db", "removed users who can be brought back"),
    ("annotations.db", "notes on mailboxes: rules of expiry, the day of the last login"),
    ("subscriptions.db", "the mailboxes that each user has subscribed"),
    ("users.db", "the built-in directory, or what LDAP has last said"),
    ("aliases.db", "further addresses of users"),
    ("moves.db", "users on their way to another back end"),
    ("outbox.db", "events of accounts and mailboxes that wait to be sent"),
)
_PARTITION = (
    ("index.db", "the records of messages in mailboxes: UID, flags, date, size, digest; 64 in a row"),
    ("state.db", "mailbox: UIDNEXT, HIGHESTMODSEQ, counts, octets, quota root"),
    ("quota.db", "quota root: what is used, and the limits"),
    ("messages.db", "digest of a message file: how many records refer to it, its size, the trace header"),
    ("cache.db", "ENVELOPE, BODYSTRUCTURE and header fields of each message file"),
    ("seen.db", "flags that each reader of a shared mailbox has alone"),
    ("vanished.db", "UIDs that were expunged, for QRESYNC"),
    ("removed.db", "records that were expunged and can be brought back"),
    ("purge.db", "message files to which nothing refers, by the time from which on they may go"),
    ("heads.db", "header fields that a message has in some mailboxes alone: Delivered-To, a later Return-Path"),
    ("uidls.db", "POP3 unique-ids that messages had on an earlier server"),
    ("arrivals.db", "deliveries of the last hours, to recognise one that comes again"),
    ("outbox.db", "events of messages that wait to be sent"),
    ("behind", "there while files `store.idx` of the partition may be older than the databases"),
    ("uncached", "there while rows of `cache.db` may be missing after a rebuild"),
    ("portable.lock", "lock of who writes files `store.idx`"),
)
_RUN = (
    ("run/server.pid", "the number of the server's process"),
    ("run/inside/<pid>", "a process that has the store open; locked as long as it lives"),
    ("run/door.lock", "lock of who joins or leaves them"),
    ("run/gate", "whether changes are held up for a moment (write freeze)"),
    ("run/partitions", "the partitions that the server has open"),
    ("run/partitions.lock", "lock of who adds or removes one"),
    ("run/news/<pid>", "socket: what other processes have changed"),
    ("run/second/<name>", "socket: who waits for a standby, and the process that has the connection to it"),
    ("run/second.lock", "locked as long as that process lives"),
    ("run/control/<process>", "socket: where a process of the server answers commands such as `onecopy connections`"),
    ("run/receivers.lock", "lock of who writes `receivers`"),
    ("run/moving.lock", "lock of who moves mailboxes between partitions"),
    ("run/limits.lock", "lock of who changes the limits of a user"),
    ("run/pop3.lock", "locks of the maildrops that POP3 sessions have"),
    ("run/pop3.logins", "when users have logged in by POP3, where they may do so only so often"),
    ("run/read-only", "partitions whose volumes take no writes, and where the copies of their databases are"),
    ("run/standbys", "the standbys of this machine, as they were seen last"),
    ("run/succession.lock", "lock of who changes `succession.json`"),
    ("run/standby", "what a standby has seen last of the machine that it follows"),
    ("run/standby.lock", "lock of the process that follows"),
    ("run/standby.pid", "its number"),
    ("run/standby-tables.lock", "lock of who changes the tables of a standby, or has them stay as they are"),
    ("run/standby-unknown/<name>", "message files of a partition that the tables of a standby do not know: they go"),
    ("run/further-standbys", "who follows this standby, as they were seen last"),
    ("run/reading.lock", "lock of the process that serves copies of a standby for reading"),
    ("run/reading.pid", "its number"),
    ("run/reading-copies", "where there are copies for reading: no message file goes that they may know"),
    ("run/reading-copies.lock", "lock of who writes that"),
    ("run/copy-<id>.lock", "lock of who makes a copy for reading in a folder"),
    ("run/expire.json", "what the last round of expiry did"),
    ("run/former-logins", "digests of who has logged in from where: guesses from elsewhere are slowed first"),
    ("run/operations/<id>", "what became of an operation of the API that was answered 202"),
    ("run/sessions/<id>.<digest>", "a session of the console"),
    ("run/sessions/<id>.<digest>.challenge", "a login there with a security key that has begun"),
)
_STORE = (
    ("tls/certificate.pem", "the certificate that the first start made, if `tls.certificate` names no other"),
    ("tls/key.pem", "its key"),
    ("tls/exchange/certificate.pem", "the certificate that `onecopy config certificate` has made for other back ends"),
    ("tls/exchange/key.pem", "its key"),
    ("snapshots/<time>/manifest.json", "a snapshot: what it has, and how large; copies of the databases lie beside it"),
    ("snapshots/lock", "lock of who makes or removes one"),
    ("snapshots/failed", "why the last one could not be made"),
    ("journal/<process>.<number>", "the delivery log: what was decided about mail and refused logins"),
    ("audit/<serial>-<month>.jsonl", "the audit trail: who did what, each line with the digest of the one before"),
    ("audit/head", "where the trail ends"),
    ("audit/lock", "lock of who writes it"),
    ("audited", "when the first line of the trail was written: so it is noticed when all of it is removed"),
    ("access/<digest>", "app passwords and second factor of a user"),
    ("access/lock", "lock of who changes them"),
    ("transcripts/<time>-<session>.txt", "what a user or an address said and heard (`onecopy transcript`)"),
    ("outgoing/<id>", "a large message that a script sends on, until the relay has it"),
    ("operations/<id>", "a command of several steps; the server finishes or undoes one that was cut off"),
    ("operations/ended/<id>", "what became of one that was cut off"),
    ("recovered/<time>.json", "what a start had to mend (`onecopy recover --list`)"),
    ("expire/<domain>.rules", "rules of expiry for a domain's users"),
    ("receivers", "which programs hear of which events"),
    ("clock", "the time that the store believes: a clock that is far ahead removes nothing"),
    ("history", "figures of the last day and month, for the console"),
    ("as-of", "of a copy for reading: the time of which it is"),
    ("mending", "there while a start rebuilds databases"),
    ("last-check", "what the last `onecopy check` found"),
    ("http-tokens", "digests of the tokens of the API"),
    ("http-tokens.lock", "lock of who changes them"),
    ("front-secret", "what nginx must know to ask who logs in"),
    ("generations/<name>", "which state of each folder of databases was the last, so that an older copy is recognised"),
    ("restoring.json", "a snapshot is being put back"),
    ("reconstruct/<path>", "databases that are being made anew, beside those that they replace"),
    ("reconstruct/in-place.json", "all databases are being rebuilt"),
    ("read-only", "it is a copy of the store that is named in it, for reading"),
    ("without-files", "it is a copy of databases alone"),
    ("set-aside/<number>/<path>", "what stood where something else belongs: nothing is thrown away"),
    ("mboxlist.damaged-<stamp>/<path>", "the list when it was damaged, as it was: another was made in its place"),
    ("mboxlist.older-<stamp>/<path>", "one that somebody had put back from an earlier time, likewise"),
)
_FILES = (
    ("messages/<x>/<xx>/<digest>", "a message, octet for octet, under the trace header of its first delivery; "
                                   "the folders are the first digits of the digest"),
    ("staging/<serial>", "a message that is being received, or is committed and gets its place"),
    ("staging/journal-<serial>", "the file journal of a process: messages whose files are not synced yet"),
    ("users/<xx>/<xx>/<user>/store.idx", "the portable copy of the INBOX's index: what databases are rebuilt from"),
    ("users/<xx>/<xx>/<user>/<path>/store.idx", "that of each other mailbox of the user"),
    ("users/deleted/<id>/store.idx", "that of a deleted mailbox that can be brought back"),
    ("users/public/<path>/store.idx", "that of a public mailbox"),
    ("users/directory", "what no mailbox tells: users without an INBOX, rules of domains, who was removed"),
    ("users/epoch", "how many unclean ends the partition had"),
    ("users/incomplete", "records of some message files were lost: what nothing refers to is kept"),
    ("users/generation", "which state of the partition's databases was the last"),
    ("users/generation.list", "and of the list's"),
    ("expire.rules", "rules of expiry for the partition's mailboxes"),
    ("set-aside/<number>/<path>", "what stood where something else belongs: nothing is thrown away"),
    ("index.damaged-<stamp>/<path>", "databases that were damaged, as they were: others were made in their place"),
    ("index.older-<stamp>/<path>", "databases that somebody had put back from an earlier time, likewise"),
    ("absent", "the partition is only on the machine that is named in it: see `onecopy standby create --partition`"),
    ("coming/<path>", "what has come of such a partition, until it is whole"),
)
_STANDBY = (
    ("succession.json", "which of several machines may serve the store; without it two could, and mail be lost"),
    ("standby.json", "whose standby it is, how much of each log it has on disk, and what is being done to it"),
    ("standby.journal.<number>", "what has come and is not in its place yet"),
    ("standby-followers.json", "who follows this standby"),
    ("standby-copies/<id>/<path>", "the databases that a further standby begins with"),
    ("promoted/<path>", "tables as they were at the promotion: what the earlier machine has besides is told by them"),
    ("mboxlist.copy/<name>", "a new copy of the list, until all that belongs to it has come"),
    ("partitions/<name>/index.copy/<name>", "that of a partition's databases"),
    ("mboxlist.old/<name>", "the earlier state of the list, while the new one takes its place"),
    ("partitions/<name>/index.old/<name>", "that of a partition's databases"),
    ("partitions/<name>/messages.copy/<path>", "its message files that are here in another form"),
    ("reading/<number>/<path>", "a copy of the standby for reading; its message files are links to the standby's"),
)
TITLED = (
    ("The store", _STORE),
    ("The list of mailboxes", tuple((f"mboxlist/{name}", what) for name, what in (*_LIST, *_ENVIRONMENT))),
    ("A partition", tuple((f"partitions/<name>/{name}", what) for name, what in _FILES)),
    ("Databases of a partition", tuple((f"partitions/<name>/index/{name}", what)
                                       for name, what in (*_PARTITION, *_ENVIRONMENT))),
    ("A standby, and who has one", _STANDBY),
    ("While processes run", _RUN),
)
_PATTERNS = {"path": ".+", "name": "[^/]+", "time": r"\d{8}T\d{6}Z[^/]*"}


def lines() -> Iterator[str]:
    """The page."""
    yield from page("Every file of a store", _WRITTEN, _WHERE)
    for title, files in TITLED:
        yield from ("", f"## {title}", "")
        yield from table(("path", "what"), ((code(path), cell(what)) for path, what in files))


def described(path: str) -> str | None:
    """What the file at that path of a store is for; None: nothing says it."""
    for _, files in TITLED:
        for pattern, what in files:
            expression = re.sub(r"<(\w+)>", lambda word: _PATTERNS.get(word[1], "[^/]+"), re.escape(pattern))
            if re.fullmatch(expression, path):
                return what
    return None
