"""Which module has which command, so that only that one is loaded. `tests/tools/cli/test_registry.py` compares the two.

Commands are listed in this order. Of those that are no group the first line of help is here, too: for the list of all.
"""

from collections.abc import Sequence

from attrs import frozen

from tools.exits import SHOWN, did_you_mean


@frozen
class Registered:
    """A command: its name behind the program's, the module in tools/commands, and its help if it is in no group.

    Run by root it acts as the owner of the store (`tools/storeowner.py`). `stays_root`: it does not, or does so by
    itself later, and why; `reads_as_root`: it still reads mail of others as root.

    `audit`: as which kind it is noted in the audit trail (`store/audit/auditline.py`), "" for what changes nothing and
    reads no mail; `audit_if`: only when one of these arguments is given; `audit_unless`: not when this one is.
    """

    name: str
    module: str
    help: str = ""
    stays_root: str = ""
    reads_as_root: bool = False
    audit: str = ""
    audit_if: tuple[str, ...] = ()
    audit_unless: str = ""

    @property
    def group(self) -> str:
        """The group that it is in; "" for none."""
        return self.name.rpartition(" ")[0]


COMMANDS = (
    Registered("init", "serve", "make an empty store, and a self-signed certificate",
               stays_root="makes the folder of the store, and gives it to workers.user"),
    Registered("serve", "serve", "serve IMAP, POP3 and LMTP until SIGTERM",
               stays_root="binds ports below 1024 first"),
    Registered("drain", "serve", "let nobody new log in, and stop the server when all have left or after "
                              "workers.drain_time", audit="session"),
    Registered("user add", "user", audit="user"),
    Registered("user list", "user_list"),
    Registered("user show", "user_show"),
    Registered("user set", "user", audit="user"),
    Registered("user scram", "user", audit="user", audit_if=("remove",)),
    Registered("user hash", "observing.passwordhash", stays_root="has nothing to do with the store"),
    Registered("user domain", "user", audit="user", audit_if=("access", "sieve")),
    Registered("user rename", "user", audit="user"),
    Registered("user remove", "user", audit="delete"),
    Registered("user purge", "user_purge", audit="delete"),
    Registered("directory flush", "directory", audit="configuration"),
    Registered("directory status", "directory"),
    Registered("directory test", "directory_test"),
    Registered("mailbox create", "mailbox", audit="mailbox"),
    *(Registered(f"mailbox {name}", "mailbox") for name in ("list", "info")),
    Registered("mailbox status", "mailboxes.mailboxstatus"),
    Registered("mailbox rename", "mailbox", audit="mailbox"),
    Registered("mailbox delete", "mailbox", audit="delete"),
    Registered("mailbox acl", "mailbox_sharing", audit="share", audit_if=("entries", "remove")),
    Registered("mailbox metadata", "mailboxes.mailboxmetadata", audit="mailbox", audit_if=("value", "remove")),
    Registered("mailbox subscribe", "mailbox_sharing", audit="mailbox", audit_if=("mailboxes",)),
    Registered("mailbox unsubscribe", "mailbox_sharing", audit="mailbox"),
    Registered("deliver", "deliver", "deliver the message on standard input; it is stored once for all users"),
    Registered("path", "deliver", "print where the file of a message is", audit="read"),
    Registered("hashdir", "deliver", "print a user's folder in the user area of its partition"),
    Registered("mailbox undelete", "undelete", audit="restore"),
    Registered("user undelete", "undelete", audit="restore"),
    Registered("undelete", "undelete",
               "bring back single messages that were expunged from a mailbox, until the purge (store.purge_delay); a "
               "whole mailbox: mailbox undelete, a user: user undelete; from a backup: restore, from a snapshot: "
               "snapshot restore", audit="restore", audit_unless="list"),
    Registered("messages search", "messages.findmessages", audit="search"),
    Registered("messages fetch", "messages.findmessages", audit="read"),
    *(Registered(f"messages {name}", "messages.changemessages", audit=kind)
      for name, kind in (("flag", "mailbox"), ("copy", "mailbox"), ("move", "mailbox"), ("expunge", "delete"),
                          ("deduplicate", "delete"))),
    Registered("messages withdraw", "messages.withdrawal", audit="delete"),
    Registered("sieve list", "sieve.keepscripts"),
    Registered("sieve check", "sieve.checkscripts"),
    Registered("sieve stats", "sieve.scriptstats"),
    Registered("sieve show", "sieve.showsieve"),
    Registered("sieve get", "sieve.keepscripts", audit="read"),
    *(Registered(f"sieve {name}", "sieve.keepscripts", audit="mailbox")
      for name in ("put", "activate", "rename", "delete")),
    Registered("sieve test", "sieve.tryscript", audit="read"),
    Registered("purge", "purge",
               "remove now what waits for the purge and is due: deleted mailboxes, and message files that "
                            "are in no mailbox any more; the server does it by itself, too. What is purged cannot be "
                            "restored. Exit status 1 if something could not be removed", audit="delete"),
    Registered("uidl import", "uidl", audit="mailbox"),
    Registered("uidl list", "uidl"),
    Registered("partition add", "partitions", audit="configuration"),
    Registered("partition list", "partitions"),
    *(Registered(f"partition {name}", "partitions", audit="configuration") for name in ("drain", "remove")),
    Registered("partition give-up", "standby.partition_giveup", audit="restore"),
    Registered("user move", "user_move", audit="user"),
    Registered("quota show", "quota"),
    *(Registered(f"quota {name}", "quota", audit="quota") for name in ("set", "remove")),
    Registered("quota check", "quota"),
    Registered("quota warn", "quota_warn"),
    Registered("quota sharing", "quota_sharing"),
    Registered("expire run", "expire", audit="delete"),
    Registered("expire rules", "expire"),
    Registered("expire set", "expire", audit="configuration"),
    Registered("expire last", "expire"),
    Registered("quota report", "quota_report"),
    Registered("check", "check", "check all that must hold in the store; exit status 1 if something does not",
               stays_root="--repair gives files to the owner of the store first", audit="repair", audit_if=("repair",)),
    Registered("scrub", "check", "read all message files; exit status 1 if one is not what it should be",
               audit="repair", audit_if=("sweep",)),
    Registered("snapshot create", "snapshot", audit="repair"),
    *(Registered(f"snapshot {name}", "snapshot") for name in ("list", "verify")),
    Registered("snapshot restore", "snapshot", audit="restore"),
    Registered("snapshot diff", "snapshot"),
    Registered("snapshot browse", "messages.snapshotmail", audit="read", audit_if=("mailbox",)),
    Registered("snapshot copy", "messages.snapshotmail", audit="restore"),
    Registered("snapshot remove", "snapshot", audit="delete"),
    Registered("standby create", "standby.createstandby"),
    Registered("standby follow", "standby.followsource"),
    Registered("standby status", "standby.standbystatus"),
    Registered("standby promote", "standby.promotestandby", audit="restore"),
    Registered("standby copy", "standby.copystandby"),
    Registered("standby serve", "standby.servestandby", stays_root="binds ports below 1024 first"),
    Registered("standby rejoin", "standby.rejoinstandby", audit="restore"),
    Registered("standby forget", "standby.forgetstandby", audit="restore"),
    Registered("recover", "recover",
               "read all databases of a store that is down, and mend what is damaged: a start does "
                                   "the same where it finds something wrong; exit status 1 if anything is missing "
                                   "then", audit="repair"),
    Registered("reconstruct", "reconstruct",
               "make whole again what is damaged: indexes, counts, quota, store.idx; and when "
                                        "databases are lost, those of a partition beside a running server, or all of "
                                        "them; exit status 1 if something is left", audit="repair"),
    Registered("relink", "relink", "make one file of message files that are equal octet for octet, also on several "
                              "partitions of one file system, and of those that differ only in the fields at their "
                              "heads; what messages show stays as it is. Exit status 1 if --check finds some",
               audit="repair"),
    Registered("spark sharing", "spark"),
    Registered("backup", "backup",
               "write a backup of the store, or a part of it, that any tar reads: onecopy backup --to "
                              "FILE; look at backups: onecopy backup verify|list ARCHIVE...; exit status 1 if "
                              "something is damaged", audit="export"),
    Registered("restore", "backup",
               "restore from a backup: everything, or what is named; can be repeated, and then adds "
                          "what is missing; what the store itself still keeps: undelete; exit status 1 if something "
                          "was damaged, or left as it is", audit="restore"),
    Registered("export", "export",
               "write a user's mailboxes as Maildirs or mbox files, with flags, keywords and dates; "
                                 "a second time only what is not there; exit status 1 if a message could not be "
                                 "written, or not octet for octet", audit="export"),
    *(Registered(f"import {name}", "importing", reads_as_root=True, audit="mailbox")
      for name in ("mbox", "maildir", "imap", "dovecot", "cyrus")),
    *(Registered(f"spark {name}", "spark", audit="search") for name in ("shell", "sql")),
    Registered("facts export", "spark", audit="export"),
    Registered("spark generate", "spark_generate"),
    Registered("config show", "config"),
    Registered("config check", "config_check", stays_root="looks at what root does at the start of the server"),
    Registered("config diff", "config"),
    Registered("config reload", "config", audit="configuration"),
    Registered("config certificate", "config_certificate"),
    Registered("connections", "connections",
               "list who is connected to the running server, or end connections; exit status "
                                        "1 if no server runs", audit="session", audit_if=("end",)),
    Registered("logins", "connections",
               "list the users, addresses and networks whose failed logins make the next ones "
                                    "wait, or forget them; exit status 1 if no server runs", audit="session",
               audit_if=("clear",)),
    Registered("status", "status",
               "show whether the server runs, which partitions can be used, which commands are under way, and what "
               "became of those that were cut off; exit status 1 if something is not as it should be"),
    Registered("stats", "stats",
               "show how the databases, the server's processes, housekeeping and the volumes are doing, "
                            "with advice; exit status 1 if there is some"),
    Registered("doctor", "observing.doctor",
               "look over a deployment, with the relay in front, and say what to change; exit status 1 if something is "
               "serious", stays_root="looks at what root does at the start of the server"),
    Registered("token create", "observing.token", audit="configuration"),
    Registered("token list", "observing.token"),
    Registered("token revoke", "observing.token", audit="configuration"),
    Registered("access list", "observing.apppasswords"),
    *(Registered(f"access {name}", "observing.apppasswords", audit="access") for name in ("create", "revoke", "reset")),
    *(Registered(f"outbox {name}", "observing.outbox") for name in ("list", "show")),
    Registered("outbox retry", "observing.outbox", audit="repair"),
    Registered("outbox discard", "observing.outbox", audit="delete"),
    Registered("log level", "observing.loglevel", audit="configuration"),
    Registered("log levels", "observing.loglevel"),
    Registered("transcript", "observing.transcript",
               "record what a user or an address says to the running server and hears from it, without passwords and "
               "mail, in files below transcripts/ in the store; without USER or ADDRESS: list what is recorded; exit "
               "status 1 if no server runs", audit="read", audit_if=("who",)),
    Registered("log show", "observing.newestlog"),
    Registered("log errors", "observing.newestlog"),
    Registered("dump", "observing.tabledump",
               "print the rows of a table of the databases, a line each, without changing or holding anything; without "
               "TABLE: list the tables", audit="read", audit_if=("table",)),
    Registered("explain message", "explain", audit="search"),
    *(Registered(f"explain {name}", "explain") for name in ("access", "quota", "login")),
    Registered("audit verify", "observing.audittrail"),
    Registered("audit show", "observing.audittrail"),
    Registered("audit head", "observing.audittrail"),
    Registered("audit remove", "observing.audittrail"),
    Registered("batch", "several.commandfile",
               "carry out the commands in a file, one a line, quoted as a shell does; nothing is done if one of them "
               "is none; exit status 1 if one failed"),
    Registered("man", "man", "show a man page, or write all of them into a folder",
               stays_root="has nothing to do with the store"),
    Registered("completion", "completion", "print the script that has a shell complete our commands, or words that it "
                                           "asks for", stays_root="has nothing to do with the store"),
)

#: The first line of help of each group.
GROUPS = {
    "user": "add, list, show, change, rename, move, remove and restore users, and what holds for a domain",
    "directory": "try an outside directory, and see or forget what is known of it",
    "mailbox": "make, list, rename, delete and restore mailboxes, and say who may do what with them",
    "messages": "search, read, mark, copy, move and remove messages of any users; take one out of every mailbox",
    "sieve": "see, write, check and try the Sieve scripts of users",
    "uidl": "show the unique-ids of POP3, and take over those of another server",
    "partition": "add, list, drain and remove partitions, and give up one that is lost",
    "quota": "show, set and report limits and use, and send the warnings that are due",
    "expire": "have old messages go by rules; see and set the rules",
    "snapshot": "make, verify, compare, remove and go back to snapshots of the databases",
    "standby": "have a second machine follow this one, and take its place",
    "import": "bring mail from mbox files, Maildirs, Dovecot, Cyrus and any IMAP server",
    "spark": "ask questions of the whole store with Spark; make a store to try",
    "facts": "write what the databases say as files, for reports over many back ends",
    "access": "app passwords of users, and the second factor that they show to the console",
    "outbox": "see what waits for receivers of events, and what they refused; send that again, or forget it",
    "config": "show, check and compare the configuration, and have a running server take it over",
    "log": "the server's log: its newest lines, and from which levels on it tells what happens",
    "token": "make, list and revoke tokens of the API over HTTP",
    "audit": "who did what: show the audit trail, and find out whether somebody has changed it",
    "explain": "why: was this message refused, may this user see that, is that user full or shut out",
}

#: Names that commands had in earlier versions: they go on working, and nothing lists them.
FORMER: dict[tuple[str, ...], tuple[str, ...]] = {("user", "restore"): ("user", "undelete")}

BY_NAME = {command.name: command for command in COMMANDS}


def modules(words: Sequence[str]) -> list[str]:
    """Those that have the command that these words begin with, or the group that the first one names; none for others.
    """
    for name in (" ".join(words[:2]), *words[:1]):
        if name in BY_NAME:
            return [BY_NAME[name].module]
    return list(dict.fromkeys(command.module for command in COMMANDS if command.group and command.group in words[:1]))


def near(word: str) -> str:
    """What may have been meant by a word that is no command: "; did you mean ...?", or ""."""
    tops = [*GROUPS, *(command.name for command in COMMANDS if not command.group)]
    ends = [command.name for command in COMMANDS if command.group and command.name.split()[1] == word]
    return f"; did you mean {' or '.join(ends[:SHOWN])}?" if ends else did_you_mean(word, tops)


def members(group: str) -> tuple[str, ...]:
    """The names of commands within a group."""
    return tuple(command.name.split()[1] for command in COMMANDS if group and command.group == group)


def every_module() -> list[str]:
    """Those of all commands."""
    return list(dict.fromkeys(command.module for command in COMMANDS))
