"""onecopy import mbox|maildir|imap|dovecot|cyrus"""

import argparse
import contextlib
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from mboxlist import privatefiles
from mboxlist.names import PUBLIC
from pop3 import uniqueids
from store.errors import StoreError
from store.filtering.sievesettings import Settings as SieveSettings
from store.store import Store
from store.values import Secret, duration
from tools.cli.invocation import Invocation, Parsers, number, typed
from tools.cli.lookup import account, owner
from tools.cli.output import print_json, print_table
from tools.cli.progressbar import changing_bar
from tools.commands.mailbox import OWNER_HELP
from tools.exits import Failure
from tools.transfer import importjobs, maildir, mbox
from tools.transfer.importjobs import Job, OldUser
from tools.transfer.importmail import Choices
from tools.transfer.mailofothers import reading
from tools.transfer.servers import cyrus, dovecot, imapconnection, scriptserver
from tools.transfer.servers.imapconnection import PORTS, Connection
from tools.transfer.servers.imapsource import ImapServer
from tools.transfer.sourcevalues import OldScript, Unreadable, UserTime, Warn

COLUMNS = ("mailbox", "there", "here", "brought", "octets", "flags_changed", "removed", "only_here", "missing",
           "differing", "uids")
Scripts = Callable[[UserTime], Sequence[OldScript]]       # within so much time
USER_TIME = 86_400.0        # seconds that one user's mail may take, unless something else is said


def add(parser: Parsers) -> None:
    """Make the parsers."""
    made = parser("import mbox", import_mbox, "bring messages of an mbox file, or of a folder of them; a second time "
                  "only what is missing; exit status 1 if something could not be taken")
    _user(made)
    made.add_argument("path", type=Path, metavar="PATH", help="a file, or a folder with a file for each mailbox")
    made.add_argument("--mailbox", default="", metavar="NAME",
                      help="where the file goes (INBOX), or below which those of a folder go")
    made.add_argument("--quoting", choices=mbox.QUOTINGS, default="auto",
                      help="how lines that begin with From are told apart; auto: mboxcl2 where every message has a "
                           "right Content-Length, else mboxrd")
    _common(made)
    made = parser("import maildir", import_maildir, "bring mail of a Maildir and of those below it, with flags, "
                  "keywords, dates, and UIDs where Dovecot's or Courier's lists have them")
    _user(made)
    made.add_argument("path", type=Path, metavar="FOLDER", help="the folder that has cur and new of INBOX")
    made.add_argument("--mailbox", default="", metavar="NAME", help="where its INBOX goes, the others below it")
    made.add_argument("--layout", choices=maildir.LAYOUTS, default="auto",
                      help="mailboxes in folders .A.B (maildir++) or A/B (fs)")
    _common(made)
    made = parser("import imap", import_imap, "bring mail from another IMAP server, which is only read; a second time "
                  "what is new there, and changed flags")
    _user(made, several=True)
    _server(made)
    _common(made)
    made = parser("import dovecot", import_dovecot, "bring mail of a Dovecot on this machine through doveadm, whatever "
                  "format it keeps it in (sdbox, mdbox, Maildir, mbox)")
    _user(made, several=True)
    made.add_argument("--there", metavar="NAME", help="the user's name there; default: the same")
    made.add_argument("--doveadm", default="doveadm", metavar="PROGRAM", help="default: doveadm")
    made.add_argument("--dovecot-config", type=Path, metavar="FILE", help="Dovecot's configuration")
    _choice(made)
    _common(made)
    made = parser("import cyrus", import_cyrus, "bring mail of a Cyrus spool on this machine, read by Cyrus's own "
                  "tools (mbexamine, ctl_mboxlist), while its server is stopped or running")
    _user(made, several=True)
    made.add_argument("--there", metavar="NAME", help="the user's name there; default: the same")
    made.add_argument("--imapd-conf", type=Path, default=Path("/etc/imapd.conf"), metavar="FILE",
                      help="the configuration of Cyrus; default: /etc/imapd.conf")
    made.add_argument("--bin", type=Path, default=Path("/usr/lib/cyrus/bin"), metavar="FOLDER",
                      help="where Cyrus's programs are")
    _choice(made)
    _common(made)


def _user(made: argparse.ArgumentParser, *, several: bool = False) -> None:
    if several:
        made.add_argument("user", nargs="?", metavar="USER", help=OWNER_HELP)
        made.add_argument("--users", type=Path, metavar="FILE",
                          help="a CSV file with a line for each user: name here, name there, password there; what is "
                               "missing is as without it")
    else:
        made.add_argument("user", metavar="USER", help=OWNER_HELP)


def _choice(made: argparse.ArgumentParser) -> None:
    made.add_argument("--mailbox", dest="mailboxes", action="append", default=[], metavar="PATTERN",
                      help="only mailboxes with such names (* and ?); can be repeated")
    made.add_argument("--rename", action="append", default=[], metavar="OLD=NEW", type=_pair,
                      help="a mailbox, and those below it, under another name; can be repeated")
    made.add_argument("--into", default="", metavar="NAME", help="a mailbox below which all go")


def _server(made: argparse.ArgumentParser) -> None:
    made.add_argument("--host", metavar="NAME")
    made.add_argument("--port", type=typed(_port), metavar="N", help="default: 993 with tls, else 143")
    made.add_argument("--tls", choices=tuple(PORTS), default="tls", help="default: tls")
    made.add_argument("--ca", type=Path, metavar="FILE", help="certificates that vouch for the server's")
    made.add_argument("--no-verify", action="store_true", help="take any certificate")
    made.add_argument("--there", metavar="NAME", help="the user's name there; default: the same")
    made.add_argument("--password-file", type=Path, metavar="FILE",
                      help="its first line is the password of the user, or of --admin-user")
    made.add_argument("--admin-user", default="", metavar="NAME",
                      help="who logs in there for the user (SASL PLAIN with an authorization identity)")
    made.add_argument("--sieve-port", type=typed(_port), metavar="N",
                      help="where the server gives Sieve scripts (ManageSieve: 4190); default: they do not come")
    made.add_argument("--tunnel", metavar="COMMAND", help="a program that speaks IMAP on its standard input and "
                      "output, logged in as {user}, in the place of --host")
    _choice(made)


def _common(made: argparse.ArgumentParser) -> None:
    made.add_argument("--keep-flags", action="store_true", help="messages that are here already keep their flags")
    made.add_argument("--no-acl", action="store_true", help="leave out who else may do what")
    made.add_argument("--no-subscriptions", action="store_true", help="leave out what the user has subscribed to")
    made.add_argument("--no-metadata", action="store_true", help="leave out annotations of mailboxes")
    made.add_argument("--no-sieve", action="store_true", help="leave out Sieve scripts")
    made.add_argument("--limits", action="store_true", help="the user's limits of quota are to hold here, too")
    made.add_argument("--uidl-format", type=_uidl_format, metavar="TEMPLATE",
                      help="what POP3 clients know the messages of INBOX by there, as in pop3.uidl_format "
                           "(%%08Xu%%08Xv: Dovecot); it is kept with the messages")
    made.add_argument("--user-time", type=typed(duration), default=USER_TIME, metavar="TIME",
                      help="how long one user's mail may take, such as 12h; then the next user has a turn, and another "
                           "run goes on; 0: for ever; default: 1d")
    made.add_argument("--dry-run", action="store_true", help="only say what would come")
    made.add_argument("--bytes", action="store_true")
    made.add_argument("--json", action="store_true")


def _port(text: str) -> int:
    found = number(text)
    if not 0 < found < 1 << 16:
        raise ValueError("not the number of a port")
    return found


def _pair(text: str) -> tuple[str, str]:
    old, equals, new = text.partition("=")
    if not (old and equals and new):
        raise argparse.ArgumentTypeError(f"{text!r} is not OLD=NEW")
    return old, new


def _uidl_format(text: str) -> str:
    try:
        uniqueids.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def import_mbox(invocation: Invocation) -> int:
    """onecopy import mbox"""
    arguments = invocation.arguments
    return _run(invocation, [Job(arguments.user, lambda warn: mbox.MboxFiles(
        _there(arguments.path), arguments.mailbox, arguments.quoting, warn), _time(arguments))])


def import_maildir(invocation: Invocation) -> int:
    """onecopy import maildir"""
    arguments = invocation.arguments
    return _run(invocation, [Job(arguments.user, lambda warn: maildir.Maildirs(
        _there(arguments.path), arguments.mailbox, arguments.layout, warn), _time(arguments))])


def _there(path: Path) -> Path:
    with reading():
        if not path.exists():
            raise Failure(f"{path}: there is nothing of that name")
    return path


def import_imap(invocation: Invocation) -> int:
    """onecopy import imap"""
    arguments = invocation.arguments
    if not arguments.host and not arguments.tunnel:
        raise Failure("which server? --host or --tunnel is missing")
    if arguments.tunnel and arguments.sieve_port:
        raise Failure("--sieve-port goes with --host")
    try:
        shared = _first_line(arguments.password_file) if arguments.password_file else None
        context = imapconnection.tls_context(arguments.ca, verify=not arguments.no_verify)
    except OSError as error:
        raise Failure(f"{error.filename or arguments.ca}: {error.strerror or error}") from None
    server = imapconnection.Server(arguments.host, arguments.port, arguments.tls, context, arguments.admin_user)
    jobs = []
    for old in _users(arguments):
        if arguments.tunnel:
            words = [word.replace("{user}", old.there) for word in arguments.tunnel.split()]
            jobs.append(_imap(arguments, old, partial(imapconnection.tunnelled, words), _no_scripts))
            continue
        secret = Secret(old.password.encode()) if old.password else shared
        if secret is None:
            raise Failure(f"{old.here}: a password is missing: --password-file")
        scripts: Scripts = _no_scripts
        if arguments.sieve_port:
            scripts = partial(scriptserver.scripts, arguments.host, arguments.sieve_port,
                              None if arguments.tls == "none" else context, old.there, secret, arguments.admin_user)
        jobs.append(_imap(arguments, old, partial(server.logged_in, old.there, secret), scripts))
    return _run(invocation, jobs)


def _imap(arguments: argparse.Namespace, old: OldUser, connect: Callable[[UserTime], Connection], scripts: Scripts
          ) -> Job:
    time = _time(arguments)
    return Job(old.here, lambda warn: ImapServer(
        lambda: connect(time), warn, arguments.mailboxes, dict(arguments.rename), arguments.into,
        lambda: scripts(time), annotated=not arguments.no_metadata), time)


def _no_scripts(time: UserTime) -> Sequence[OldScript]:
    return ()


def _time(arguments: argparse.Namespace) -> UserTime:
    return UserTime(arguments.user_time or float("inf"))


def _first_line(path: Path) -> Secret:
    with reading(), privatefiles.open_named(path) as file:
        return Secret(file.readline(4096).rstrip(b"\r\n"))


def import_dovecot(invocation: Invocation) -> int:
    """onecopy import dovecot"""
    arguments = invocation.arguments
    return _run(invocation, [
        _imap(arguments, old, partial(imapconnection.tunnelled, dovecot.imap_program(
            arguments.doveadm, arguments.dovecot_config, old.there)), partial(
                _of_dovecot, arguments, old.there)) for old in _users(arguments)])


def _of_dovecot(arguments: argparse.Namespace, there: str, time: UserTime) -> Sequence[OldScript]:
    return dovecot.scripts(arguments.doveadm, arguments.dovecot_config, there)     # each of its programs ends soon


def import_cyrus(invocation: Invocation) -> int:
    """onecopy import cyrus"""
    arguments = invocation.arguments

    def spool(user: str, warn: Warn) -> cyrus.Spool:
        return cyrus.Spool(user, arguments.imapd_conf, arguments.bin, warn, arguments.mailboxes,
                           dict(arguments.rename), arguments.into)

    return _run(invocation, [Job(old.here, partial(spool, old.there), _time(arguments)) for old in _users(arguments)])


def _users(arguments: argparse.Namespace) -> list[OldUser]:
    """The users that were named. Raises Failure."""
    if (arguments.user is None) == (arguments.users is None):
        raise Failure("either USER or --users")
    if arguments.user is not None:
        return [OldUser(arguments.user, arguments.there or arguments.user)]
    try:
        return importjobs.users_in(arguments.users)
    except Unreadable as problem:
        raise Failure(str(problem)) from None


def _into(store: Store, name: str) -> str:
    """Whose mailboxes get the mail, by whatever address; what was given where there is no such user."""
    try:
        return owner(store, name)
    except StoreError:
        return name


def _run(invocation: Invocation, jobs: Sequence[Job]) -> int:
    """Do the jobs, and say what has come of them."""
    arguments, said = invocation.arguments, list[str]()

    def tell(line: str) -> None:
        said.append(line)
        print(f"onecopy: {line}", file=sys.stderr)

    sieve = None if arguments.no_sieve else invocation.config.settings("sieve", SieveSettings)
    choices = Choices(
        dry_run=arguments.dry_run, keep_flags=arguments.keep_flags, acl=not arguments.no_acl,
        subscriptions=not arguments.no_subscriptions, annotations=not arguments.no_metadata, sieve=sieve,
        limits=arguments.limits, uidl_format=arguments.uidl_format)
    with invocation.store() as store, contextlib.ExitStack() as stack:
        operation = None if arguments.dry_run else stack.enter_context(invocation.repeatable(
            arguments.program.partition(" ")[2], [_into(store, job.user) for job in jobs]))
        progress = stack.enter_context(changing_bar())
        found = importjobs.run(store, jobs, lambda name: None if name == PUBLIC else account(store, name), choices,
                               tell, progress, operation)
    rows = [{"user": user, **taken.facts()} for user, taken in found]
    if arguments.json:
        print_json({"mailboxes": rows, "told": said})
    else:
        print_table(rows, (*(("user",) if len(jobs) > 1 else ()), *COLUMNS))
    return int(bool(said) or not all(taken.well for _, taken in found))
