"""onecopy directory flush"""

from tools.cli.invocation import Invocation, Parsers


def add(parser: Parsers) -> None:
    """Make the parser."""
    parser("directory flush", flush, "have the server ask the directory anew about everybody, also about passwords")


def flush(invocation: Invocation) -> int:
    """onecopy directory flush"""
    with invocation.store() as store:
        store.directory.flush()
    return 0
