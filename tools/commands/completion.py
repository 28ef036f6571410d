"""onecopy completion"""

from mboxlist.names import PUBLIC
from store.store import Store
from tools.cli import commandtree, shellscripts
from tools.cli.invocation import Invocation, Parsers
from tools.cli.lookup import owner
from tools.exits import Failure

WORDS = ("users", "mailboxes", "partitions")        # that are in the store


def add(parser: Parsers) -> None:
    """Make the parser."""
    made = parser("completion", complete, "print the script that has a shell complete our commands, or words that it "
                                          "asks for")
    made.add_argument("what", metavar="SHELL", choices=(*shellscripts.SHELLS, *WORDS),
                      help="bash: put it into /etc/bash_completion.d/onecopy; zsh: source it; fish: put it into "
                           "~/.config/fish/completions/onecopy.fish. The others are words of the store, one on a line")
    made.add_argument("user", metavar="USER", nargs="?", help="with mailboxes: whose")


def complete(invocation: Invocation) -> int:
    """onecopy completion"""
    arguments = invocation.arguments
    if arguments.what in shellscripts.SHELLS:
        print(shellscripts.script(arguments.what, commandtree.tree()), end="")
        return 0
    with invocation.store() as store:
        for word in _words(store, arguments.what, arguments.user):
            print(word)
    return 0


def _words(store: Store, what: str, user: str | None) -> list[str]:
    if what == "partitions":
        return sorted(store.partitions)
    if what == "users":
        return sorted(account.user for account in store.directory.all())
    if user is None:
        raise Failure("whose mailboxes? Name a user")
    found = owner(store, user)
    return [entry.name.path if user == PUBLIC else entry.name.to_client(found) for entry in store.names(found)]
