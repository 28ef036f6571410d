"""Tests that join or only say yes or no: RFC 5228 §5.2 to §5.10, RFC 5463."""

from store.sieve.commandforms import Form, Kind, Tests
from store.sieve.scriptrun import Node, Run


def all_of(run: Run, node: Node) -> bool:
    """RFC 5228 §5.2; the first that says no ends it."""
    for one in node.tests:              # no `all`: this is called often
        if not run.test(one):
            return False
    return True


def any_of(run: Run, node: Node) -> bool:
    """RFC 5228 §5.3; the first that says yes ends it."""
    for one in node.tests:
        if run.test(one):
            return True
    return False


def negation(run: Run, node: Node) -> bool:
    """RFC 5228 §5.8."""
    return not run.test(node.tests[0])


def always(_run: Run, _node: Node) -> bool:
    """RFC 5228 §5.10."""
    return True


def never(_run: Run, _node: Node) -> bool:
    """RFC 5228 §5.4."""
    return False


def have(_run: Run, node: Node) -> bool:
    """RFC 5463 §4: whether all these capabilities are there."""
    return bool(node.ready)


TESTS = {
    "allof": Form(all_of, tests=Tests.SOME),
    "anyof": Form(any_of, tests=Tests.SOME),
    "not": Form(negation, tests=Tests.ONE),
    "true": Form(always),
    "false": Form(never),
    "ihave": Form(have, ("ihave",), values=(Kind.STRINGS,)),        # `language` says what there is
}
