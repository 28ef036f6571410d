"""onecopy man, completion"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from mboxlist.names import PUBLIC
from store.store import Store
from tools.cli import commandtree, completion, manpages
from tools.cli.exits import Failure
from tools.cli.invocation import Invocation, Parsers, directory, owner

WORDS = ("users", "mailboxes", "partitions")        # that are in the store


def add(parser: Parsers) -> None:
    """Make the parsers."""
    made = parser("man", man, "show a man page, or write all of them into a folder")
    made.add_argument("page", metavar="PAGE", nargs="?",
                      help="such as onecopy-user or onecopy.toml; to a pipe it goes as it is written, for man -l -; "
                           "default: list the pages")
    made.add_argument("--to", type=Path, metavar="FOLDER",
                      help="write all into man1 and man5 of this folder, such as /usr/local/share/man")
    made = parser("completion", complete, "print the script that has a shell complete our commands, or words that it "
                                          "asks for")
    made.add_argument("what", metavar="SHELL", choices=(*completion.SHELLS, *WORDS),
                      help="bash: put it into /etc/bash_completion.d/onecopy; zsh: source it; fish: put it into "
                           "~/.config/fish/completions/onecopy.fish. The others are words of the store, one on a line")
    made.add_argument("user", metavar="USER", nargs="?", help="with mailboxes: whose")


def _top() -> commandtree.Node:
    from tools.cli import program  # here: it imports this module
    return program.tree()


def man(invocation: Invocation) -> int:
    """onecopy man"""
    arguments, found = invocation.arguments, manpages.pages(_top())
    if arguments.to is not None:
        for name, text in found.items():
            folder = arguments.to / f"man{name[-1]}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
        return 0
    if arguments.page is None:
        for name in found:
            print(f"{name[:-2]}({name[-1]})")
        return 0
    wanted = next((found[name] for name in found if arguments.page in (name, name[:-2], f"{name[:-2]}({name[-1]})")),
                  None) or found.get(f"onecopy-{arguments.page}.1")
    if wanted is None:
        raise Failure(f"there is no page {arguments.page}: onecopy man lists them")
    if sys.stdout.isatty() and shutil.which("man"):
        with tempfile.NamedTemporaryFile("w", suffix=".1", encoding="utf-8") as file:
            file.write(wanted)
            file.flush()
            return subprocess.run(["man", "-l", file.name], check=False).returncode and 1
    print(wanted, end="")
    return 0


def complete(invocation: Invocation) -> int:
    """onecopy completion"""
    arguments = invocation.arguments
    if arguments.what in completion.SHELLS:
        print(completion.script(arguments.what, _top()), end="")
        return 0
    with invocation.store() as store:
        for word in _words(store, arguments.what, arguments.user):
            print(word)
    return 0


def _words(store: Store, what: str, user: str | None) -> list[str]:
    if what == "partitions":
        return sorted(store.partitions)
    if what == "users":
        return sorted(account.user for account in directory(store).all())
    if user is None:
        raise Failure("whose mailboxes? Name a user")
    found = owner(store, user)
    return [entry.name.path if user == PUBLIC else entry.name.to_client(found) for entry in store.names(found)]
