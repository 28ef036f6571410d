"""Commands that say which mailboxes a message goes to, with which flags: RFC 5228 §4.1, §4.3, §4.4; RFC 3894, 5232,
5490, 8579, 9042."""

from store.sieve.commandforms import Form, Kind, Tag, constants
from store.sieve.conditions.flagtests import flags_of, read
from store.sieve.scriptoutcome import Filed
from store.sieve.scriptrun import Node, Run

LONGEST = 1000                          # characters of a mailbox name; the store has its own rules


def flags_for(run: Run, node: Node) -> tuple[str, ...]:
    """The flags of an action: those of `:flags`, else of the internal variable (RFC 5232 §5)."""
    return flags_of(run.list(node.tags["flags"])) if "flags" in node.tags else run.flags


def keep(run: Run, node: Node) -> None:
    """RFC 5228 §4.3."""
    run.act(node)
    run.file(Filed(flags=flags_for(run, node), edition=run.edition))
    run.keeping = False


def file_into(run: Run, node: Node) -> None:
    """RFC 5228 §4.1."""
    run.act(node)
    tags = node.tags
    run.file(Filed(run.text(node.values[0])[:LONGEST] or "INBOX", flags_for(run, node), "create" in tags,
                   run.text(tags["specialuse"]) if "specialuse" in tags else "", run.edition,
                   run.text(tags["mailboxid"]) if "mailboxid" in tags else ""))
    if "copy" not in tags:
        run.keeping = False


def discard(run: Run, _node: Node) -> None:
    """RFC 5228 §4.4."""
    run.keeping = False


def _write(run: Run, node: Node, flags: tuple[str, ...]) -> None:
    """The flags of the variable that the command names, or of the internal one."""
    if len(node.values) == 2:
        run.set(run.text(node.values[0]), " ".join(flags), node)
    else:
        run.flags = flags


def _held(run: Run, node: Node) -> tuple[str, ...]:
    return tuple(read(run, [run.text(node.values[0])])) if len(node.values) == 2 else run.flags


def set_flag(run: Run, node: Node) -> None:
    """RFC 5232 §3.1."""
    _write(run, node, flags_of(run.list(node.values[-1])))


def add_flag(run: Run, node: Node) -> None:
    """RFC 5232 §3.2."""
    _write(run, node, flags_of((*_held(run, node), *run.list(node.values[-1]))))


def remove_flag(run: Run, node: Node) -> None:
    """RFC 5232 §3.3."""
    gone = {flag.lower() for flag in flags_of(run.list(node.values[-1]))}
    _write(run, node, tuple([flag for flag in _held(run, node) if flag.lower() not in gone]))


def check_place(node: Node) -> None:
    """Raises ValueError for tags that do not go together."""
    if {"mailboxid", "specialuse"} <= node.tags.keys():
        raise ValueError(":mailboxid does not go with :specialuse")


def _check(node: Node) -> None:
    if "" in constants(node.values[0]):
        raise ValueError("the name of a mailbox is empty")
    check_place(node)


FLAGS = Tag("imap4flags", Kind.STRINGS)
PLACES = {"create": Tag("mailbox"), "specialuse": Tag("special-use", Kind.STRING),
          "mailboxid": Tag("mailboxid", Kind.STRING)}
_LIST = (Kind.STRING, Kind.STRINGS)
COMMANDS = {
    "keep": Form(keep, tags={"flags": FLAGS}),
    "fileinto": Form(file_into, ("fileinto",), {"copy": Tag("copy"), "flags": FLAGS, **PLACES}, values=(Kind.STRING,),
                     prepare=_check),
    "discard": Form(discard),
    "setflag": Form(set_flag, ("imap4flags",), values=_LIST, optional_first=True),
    "addflag": Form(add_flag, ("imap4flags",), values=_LIST, optional_first=True),
    "removeflag": Form(remove_flag, ("imap4flags",), values=_LIST, optional_first=True),
}
