"""onecopy user add|list|show|set|remove"""

import argparse
import getpass
import sys
from pathlib import Path

from store.accounts.base import Account, Status
from store.accounts.passwords import hash_password
from store.store import Store
from store.values import Secret
from tools.commands import Invocation, Parsers, account, directory, each
from tools.commands.quotas import limits
from tools.errors import Failure
from tools.output import print_facts, print_json, print_table

LONGEST_PASSWORD = 1024


def add(parser: Parsers) -> None:
    """Make the parsers."""
    made = parser("user add", add_users, "make users; all given here get the same password")
    made.add_argument("users", nargs="+", metavar="USER", help="name, or name@domain outside the default domain")
    _password_options(made)
    made = parser("user list", list_users, "list the users")
    made.add_argument("--json", action="store_true")
    made = parser("user show", show_user, "show what a user has and may")
    made.add_argument("user", metavar="USER")
    made.add_argument("--json", action="store_true")
    made = parser("user set", set_user, "change a user's password or status")
    made.add_argument("user", metavar="USER")
    made.add_argument("--status", choices=[status.value for status in Status])
    made.add_argument("--password", action="store_true", help="ask for a new password")
    _password_options(made)
    made = parser("user remove", remove_users, "remove users and all their mail")
    made.add_argument("users", nargs="+", metavar="USER")
    made.add_argument("--yes", action="store_true", help="do not ask")


def _password_options(parser: argparse.ArgumentParser) -> None:
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--password-file", type=Path, metavar="FILE", help="the password is the file's first line")
    source.add_argument("--password-stdin", action="store_true", help="the same of standard input")


def read_password(invocation: Invocation) -> Secret:
    """The password, from where the options say or from the person. Raises Failure."""
    arguments = invocation.arguments
    if arguments.password_file is not None:
        try:
            with arguments.password_file.open("rb") as stream:
                return _password(stream.readline(LONGEST_PASSWORD + 2))
        except OSError as error:
            raise Failure(f"{arguments.password_file}: {error.strerror}") from None
    if arguments.password_stdin:
        return _password(sys.stdin.buffer.readline(LONGEST_PASSWORD + 2) if sys.stdin else b"")
    if sys.stdin is None or not sys.stdin.isatty():
        raise Failure("no password: give it with --password-file or --password-stdin")
    first = getpass.getpass("Password: ")
    if getpass.getpass("Again: ") != first:
        raise Failure("the two passwords are not the same")
    return _password(first.encode())


def _password(line: bytes) -> Secret:
    password = line.rstrip(b"\r\n")
    if not password:
        raise Failure("the password is empty")
    if len(password) > LONGEST_PASSWORD or b"\0" in password:
        raise Failure(f"the password is longer than {LONGEST_PASSWORD} octets, or has a NUL in it")
    return Secret(password)


def add_user(store: Store, address: str, password_hash: str) -> Account:
    """Make a user with an INBOX. Raises StoreError USER_EXISTS, BAD_NAME."""
    made = directory(store).add(address, password_hash)
    store.inbox(made)
    return made


def add_users(invocation: Invocation) -> int:
    """onecopy user add"""
    password = read_password(invocation)
    with invocation.store() as store:
        return each(invocation.arguments.users, lambda user: _added(store, user, password))


def _added(store: Store, user: str, password: Secret) -> None:
    add_user(store, user, hash_password(password))


def list_users(invocation: Invocation) -> int:
    """onecopy user list"""
    with invocation.store() as store:
        rows = [{"user": user.user, "status": user.status.value, "partition": user.partition}
                for user in directory(store).all()]
    if invocation.arguments.json:
        print_json(rows)
    else:
        print_table(rows, ("user", "status", "partition"))
    return 0


def show_user(invocation: Invocation) -> int:
    """onecopy user show"""
    with invocation.store() as store:
        user = account(store, invocation.arguments.user)
        use = store.quota(user.user)
        facts: dict[str, object] = {
            "user": user.user, "status": user.status.value, "partition": user.partition,
            "mailboxes": len(store.names(user.user)), "messages": use.messages, "octets": use.octets,
            **limits(use, store.settings)}
    if invocation.arguments.json:
        print_json(facts)
    else:
        print_facts(facts)
    return 0


def set_user(invocation: Invocation) -> int:
    """onecopy user set"""
    arguments = invocation.arguments
    password_hash = None
    if arguments.password or arguments.password_file is not None or arguments.password_stdin:
        password_hash = hash_password(read_password(invocation))
    elif arguments.status is None:
        raise Failure("nothing to change: give --status, --password, --password-file or --password-stdin")
    with invocation.store() as store:
        user = account(store, arguments.user)
        directory(store).change(user.user, password_hash=password_hash,
                                status=Status(arguments.status) if arguments.status else None)
    return 0


def remove_users(invocation: Invocation) -> int:
    """onecopy user remove"""
    users = invocation.arguments.users
    with invocation.store() as store:
        invocation.confirm(f"Remove {', '.join(users)} and all their mail?")
        return each(users, lambda user: _remove(store, user))


def _remove(store: Store, address: str) -> None:
    """No mail may come in, and no session begin, while the mailboxes go."""
    user = account(store, address).user
    directory(store).change(user, status=Status.DISABLED)
    store.remove_user(user)
    directory(store).remove(user)
