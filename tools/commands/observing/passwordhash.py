"""onecopy user hash: a password as the directory keeps it"""

from pathlib import Path

from store.accounts.loginsettings import Settings
from store.accounts.passwords import hash_password
from tools.cli.invocation import Invocation, Parsers
from tools.cli.output import print_json
from tools.commands.user import read_password


def add(parser: Parsers) -> None:
    """Make the parser."""
    made = parser("user hash", hash_one, "print the hash of a password, for the file of user add --users --hashed")
    source = made.add_mutually_exclusive_group()
    source.add_argument("--password-file", type=Path, metavar="FILE", help="the password is the file's first line")
    source.add_argument("--password-stdin", action="store_true", help="the same of standard input")
    made.add_argument("--json", action="store_true")


def hash_one(invocation: Invocation) -> int:
    """onecopy user hash"""
    keys = invocation.config.settings("login", Settings).scram_keys
    hashed = hash_password(read_password(invocation), keys)
    if invocation.arguments.json:
        print_json({"hash": hashed})
    else:
        print(hashed)
    return 0
