"""Commands that choose what is done next: RFC 5228 §3; RFC 5463 §5; RFC 6609; RFC 5229 §4."""

import re
from collections.abc import Callable
from urllib.parse import quote

from store.sieve.commandforms import Form, Kind, Tag, Tests, constant, constants
from store.sieve.scriptproblems import RunProblem
from store.sieve.scriptrun import FOR_DELIVERY, Node, Returned, Run, Scope, Stopped
from store.sieve.templates import IDENTIFIER


def choose(run: Run, node: Node) -> None:
    """`if`, `elsif` (RFC 5228 §3.1): a chain of any length, one after the other."""
    while True:
        test, = node.tests
        run.steps += 1                              # as `run.test` does, which is called for each rule of a script
        if run.noted is not None or run.steps > run.limits.steps:
            run.steps -= 1
            said = run.test(test)
        else:
            said = bool(test.function(run, test))
        if said:
            run.execute(node.block)
            return
        following = node.otherwise
        if not following:
            return
        if len(following) != 1 or following[0].function is not choose:
            run.execute(following)
            return
        node = following[0]


def otherwise(run: Run, node: Node) -> None:
    """`else`, when it stands as a node of its own."""
    run.execute(node.block)


def stop(_run: Run, _node: Node) -> None:
    """RFC 5228 §3.3."""
    raise Stopped


def fail(run: Run, node: Node) -> None:
    """`error` (RFC 5463 §5)."""
    raise RunProblem(run.text(node.values[0])[:500], node.place)


def leave(_run: Run, _node: Node) -> None:
    """`return` (RFC 6609 §3.3)."""
    raise Returned


def include(run: Run, node: Node) -> None:
    """RFC 6609 §3.2: another script runs here, with variables of its own."""
    which = constant(node.values[0]), "global" in node.tags
    if "once" in node.tags and which in run.included:
        return
    if which in run.includes or len(run.includes) >= run.limits.include_depth:
        raise RunProblem(f'the script "{which[0]}" is included within itself, or too deeply', node.place)
    tree = run.compiled(*which)
    if tree is None:
        if "optional" in node.tags:
            return
        raise RunProblem(f'there is no script "{which[0]}" to include, or it is wrong', node.place)
    if run.event and not tree.needs.isdisjoint(FOR_DELIVERY):
        raise RunProblem(f'the script "{which[0]}" is for mail that comes, not for events of IMAP', node.place)
    if len(run.included) >= run.limits.included:
        raise RunProblem(f"more than {run.limits.included} scripts are included", node.place)
    run.included.add(which)
    run.includes.append(which)
    scope, run.scope = run.scope, Scope()
    try:
        run.execute(tree.nodes)
    except Returned:
        pass
    finally:
        run.scope = scope
        run.includes.pop()


def share(run: Run, node: Node) -> None:
    """`global` (RFC 6609 §3.4.1)."""
    run.scope.shared.update(name.lower() for name in run.list(node.values[0]))


_QUOTED_WILDCARDS = re.compile(r"([*?\\])")
_QUOTED_REGEX = re.compile(r"([\\.\[\](){}*+?|^$])")
# In the order in which they act: the highest precedence first (RFC 5229 §4.1; of `:encodeurl` RFC 5435 §6).
MODIFIERS: dict[str, tuple[int, Callable[[str], str]]] = {
    "lower": (40, str.lower), "upper": (40, str.upper),
    "lowerfirst": (30, lambda text: text[:1].lower() + text[1:]),
    "upperfirst": (30, lambda text: text[:1].upper() + text[1:]),
    "quotewildcard": (20, lambda text: _QUOTED_WILDCARDS.sub(r"\\\1", text)),
    "quoteregex": (20, lambda text: _QUOTED_REGEX.sub(r"\\\1", text)),
    "encodeurl": (15, lambda text: quote(text, safe="-._~")),
    "length": (10, lambda text: str(len(text)))}
MODIFIER_TAGS = {name: Tag({"quoteregex": "regex", "encodeurl": "enotify"}.get(name, ""),
                           group=f"modifier of precedence {place}") for name, (place, _) in MODIFIERS.items()}


def modified(text: str, node: Node) -> str:
    """The text with the modifiers of a `set` or `extracttext`."""
    for name, (_, change) in MODIFIERS.items():
        if name in node.tags:
            text = change(text)
    return text


def assign(run: Run, node: Node) -> None:
    """`set` (RFC 5229 §4)."""
    run.set(run.text(node.values[0]), modified(run.text(node.values[1]), node), node)


def check_variable(node: Node) -> None:
    """Raises ValueError when the first argument cannot be the name of a variable."""
    name = constant(node.values[0]) if len(node.values) > 1 or node.name != "extracttext" else constant(node.values[-1])
    space, _, rest = name.rpartition(".")
    if IDENTIFIER.fullmatch(rest) is None or space.lower() not in ("", "global"):
        raise ValueError(f'"{name}" is not the name of a variable')


def _check_shared(node: Node) -> None:
    names = constants(node.values[0])
    if isinstance(node.values[0], tuple) and len(names) != len(node.values[0]) or not all(
            map(IDENTIFIER.fullmatch, names)):
        raise ValueError("names of variables are expected")


def _check_include(node: Node) -> None:
    name = constant(node.values[0])
    if not name or len(name.encode("utf-8", "replace")) > 512 or any(ord(char) < 32 for char in name):
        raise ValueError("a script has a name of 1 to 512 octets")


COMMANDS = {
    "if": Form(choose, tests=Tests.ONE, block=True),
    "elsif": Form(choose, tests=Tests.ONE, block=True),
    "else": Form(otherwise, block=True),
    "stop": Form(stop),
    "error": Form(fail, ("ihave",), values=(Kind.STRING,)),
    "include": Form(include, ("include",), {
        "personal": Tag(group="place"), "global": Tag(group="place"), "once": Tag(), "optional": Tag()},
        values=(Kind.STRING,), prepare=_check_include),
    "return": Form(leave, ("include",)),
    "global": Form(share, ("include",), values=(Kind.STRINGS,), prepare=_check_shared),
    "set": Form(assign, ("variables",), MODIFIER_TAGS, values=(Kind.STRING, Kind.STRING), prepare=check_variable),
}
