"""onecopy import mbox|maildir|imap|dovecot|cyrus"""

import argparse
import csv
import ssl
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from functools import partial
from pathlib import Path

from attrs import field, frozen
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from pop3 import uidl
from store.errors import StoreError
from store.mailboxes import placement
from store.store import Store
from store.values import Secret
from tools.cli.exits import Failure
from tools.cli.invocation import Invocation, Parsers, account, owner
from tools.cli.output import print_json, print_table
from tools.commands.mailbox import OWNER_HELP
from tools.transfer import cyrus, imapclient, maildir, mbox
from tools.transfer.imapsource import ImapServer
from tools.transfer.importmail import Choices, Taken, Taking
from tools.transfer.sourcevalues import Source, Told, Unreadable

COLUMNS = ("mailbox", "there", "here", "brought", "octets", "flags_changed", "removed", "only_here", "missing",
           "differing", "uids")
PORTS = {"tls": 993, "starttls": 143, "none": 143}

Open = Callable[[Told], Source]


@frozen
class Job:
    """One user's mail: who gets it here, and how its source is opened."""

    user: str
    open: Open = field(repr=False)


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
    made.add_argument("--port", type=int, metavar="N", help="default: 993 with tls, else 143")
    made.add_argument("--tls", choices=tuple(PORTS), default="tls", help="default: tls")
    made.add_argument("--ca", type=Path, metavar="FILE", help="certificates that vouch for the server's")
    made.add_argument("--no-verify", action="store_true", help="take any certificate")
    made.add_argument("--there", metavar="NAME", help="the user's name there; default: the same")
    made.add_argument("--password-file", type=Path, metavar="FILE",
                      help="its first line is the password of the user, or of --admin-user")
    made.add_argument("--admin-user", default="", metavar="NAME",
                      help="who logs in there for the user (SASL PLAIN with an authorization identity)")
    made.add_argument("--tunnel", metavar="COMMAND", help="a program that speaks IMAP on its standard input and "
                      "output, logged in as {user}, in the place of --host")
    _choice(made)


def _common(made: argparse.ArgumentParser) -> None:
    made.add_argument("--keep-flags", action="store_true", help="messages that are here already keep their flags")
    made.add_argument("--no-acl", action="store_true", help="leave out who else may do what")
    made.add_argument("--no-subscriptions", action="store_true", help="leave out what the user has subscribed to")
    made.add_argument("--uidl-format", type=_uidl_format, metavar="TEMPLATE",
                      help="what POP3 clients know the messages of INBOX by there, as in pop3.uidl_format "
                           "(%%08Xu%%08Xv: Dovecot); it is kept with the messages")
    made.add_argument("--dry-run", action="store_true", help="only say what would come")
    made.add_argument("--json", action="store_true")


def _pair(text: str) -> tuple[str, str]:
    old, equals, new = text.partition("=")
    if not (old and equals and new):
        raise argparse.ArgumentTypeError(f"{text!r} is not OLD=NEW")
    return old, new


def _uidl_format(text: str) -> str:
    try:
        uidl.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def import_mbox(invocation: Invocation) -> int:
    """onecopy import mbox"""
    arguments = invocation.arguments
    return _run(invocation, [Job(arguments.user, lambda told: mbox.MboxFiles(
        _there(arguments.path), arguments.mailbox, arguments.quoting))])


def import_maildir(invocation: Invocation) -> int:
    """onecopy import maildir"""
    arguments = invocation.arguments
    return _run(invocation, [Job(arguments.user, lambda told: maildir.Maildirs(
        _there(arguments.path), arguments.mailbox, arguments.layout, told))])


def _there(path: Path) -> Path:
    if not path.exists():
        raise Failure(f"{path}: there is nothing of that name")
    return path


def import_imap(invocation: Invocation) -> int:
    """onecopy import imap"""
    arguments = invocation.arguments
    if not arguments.host and not arguments.tunnel:
        raise Failure("which server? --host or --tunnel is missing")
    shared = _first_line(arguments.password_file) if arguments.password_file else None
    context = _context(arguments)
    jobs = []
    for here, there, password in _users(invocation):
        if arguments.tunnel:
            words = [word.replace("{user}", there) for word in arguments.tunnel.split()]
            connect: Callable[[], imapclient.Connection] = partial(imapclient.tunnelled, words)
        else:
            secret = Secret(password.encode()) if password else shared
            if secret is None:
                raise Failure(f"{here}: a password is missing: --password-file")
            connect = partial(_logged_in, arguments, context, there, secret)
        jobs.append(Job(here, partial(_imap, arguments, connect)))
    return _run(invocation, jobs)


def _logged_in(arguments: argparse.Namespace, context: ssl.SSLContext, user: str, secret: Secret
               ) -> imapclient.Connection:
    made = imapclient.connected(arguments.host, arguments.port or PORTS[arguments.tls], arguments.tls, context)
    try:
        made.capability()
        made.log_in(user, secret, arguments.admin_user)
    except BaseException:
        made.way.close()
        raise
    return made


def _imap(arguments: argparse.Namespace, connect: Callable[[], imapclient.Connection], told: Told) -> ImapServer:
    return ImapServer(connect, told, arguments.mailboxes, dict(arguments.rename), arguments.into)


def _context(arguments: argparse.Namespace) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=arguments.ca)
    except OSError as error:
        raise Failure(f"{arguments.ca}: {error.strerror or error}") from None
    if arguments.no_verify:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _first_line(path: Path) -> Secret:
    try:
        with path.open("rb") as file:
            return Secret(file.readline(4096).rstrip(b"\r\n"))
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}") from None


def import_dovecot(invocation: Invocation) -> int:
    """onecopy import dovecot"""
    arguments = invocation.arguments
    config = ["-c", str(arguments.dovecot_config)] if arguments.dovecot_config else []
    return _run(invocation, [Job(here, partial(_imap, arguments, partial(
        imapclient.tunnelled, [arguments.doveadm, *config, "exec", "imap", "-u", there])))
        for here, there, _ in _users(invocation)])


def import_cyrus(invocation: Invocation) -> int:
    """onecopy import cyrus"""
    arguments = invocation.arguments
    return _run(invocation, [Job(here, lambda told, there=there: cyrus.Spool(     # type: ignore[misc]
        there, arguments.imapd_conf, arguments.bin, told, arguments.mailboxes, dict(arguments.rename), arguments.into))
        for here, there, _ in _users(invocation)])


def _users(invocation: Invocation) -> list[tuple[str, str, str]]:
    """Name here, name there and password of each user. Raises Failure."""
    arguments = invocation.arguments
    if (arguments.user is None) == (arguments.users is None):
        raise Failure("either USER or --users")
    if arguments.user is not None:
        return [(arguments.user, arguments.there or arguments.user, "")]
    try:
        with arguments.users.open(newline="", encoding="utf-8") as file:
            rows = [[cell.strip() for cell in row] for row in csv.reader(file)]
    except (OSError, UnicodeError, csv.Error) as error:
        raise Failure(f"{arguments.users}: {error}") from None
    found = [(row[0], row[1] if len(row) > 1 and row[1] else row[0], row[2] if len(row) > 2 else "")
             for row in rows if row and row[0] and not row[0].startswith("#")]
    if not found:
        raise Failure(f"{arguments.users}: it names no users")
    return found


def _run(invocation: Invocation, jobs: Sequence[Job]) -> int:
    """Do the jobs one after the other, and say what has come of them."""
    arguments, rows, told = invocation.arguments, list[dict[str, object]](), list[str]()
    status = 0
    with invocation.store() as store, _progress() as progress:
        def tell(line: str) -> None:
            told.append(line)
            print(f"onecopy: {line}", file=sys.stderr)

        for job in jobs:
            try:
                found = list(_one(invocation, store, job, tell, progress))
            except (Unreadable, StoreError, OSError) as error:
                tell(f"{job.user}: {error}")
                status = 1
                continue
            status |= any(not taken.well for taken in found)
            rows += [{"user": job.user, **taken.facts()} for taken in found]
    if arguments.json:
        print_json({"mailboxes": rows, "told": told})
    else:
        print_table(rows, (*(("user",) if len(jobs) > 1 else ()), *COLUMNS))
    return int(status or bool(told))


def _one(invocation: Invocation, store: Store, job: Job, tell: Told, progress: Callable[[str, int, int, int], None]
         ) -> Iterator[Taken]:
    arguments = invocation.arguments
    user = owner(store, job.user)
    place = account(store, user).partition if user else placement.for_new_mail(store)
    choices = Choices(arguments.dry_run, arguments.keep_flags, not arguments.no_acl, not arguments.no_subscriptions,
                      arguments.uidl_format)
    source = job.open(tell)
    with closing(source) if isinstance(source, ImapServer) else nullcontext():
        yield from Taking(store, user, place, source, tell, choices, progress).all()


@contextmanager
def _progress() -> Iterator[Callable[[str, int, int, int], None]]:
    """A bar on standard error while a person watches."""
    if not sys.stderr.isatty():
        yield lambda mailbox, done, total, octets: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]}"),
               TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None, rate="")

        def tell(mailbox: str, done: int, total: int, octets: int) -> None:
            if bar.tasks[0].description != mailbox:
                bar.reset(task, total=total, description=mailbox)
            speed = bar.tasks[0].speed
            bar.update(task, completed=done, total=total, rate=f"{speed:.0f}/s" if speed else "")

        yield tell
