"""A script runs: the tree that `compiling` made, its state, and the steps that it may take."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from attrs import Factory, define, field, frozen

from store.sieve.receivedmail import ReceivedMail
from store.sieve.scriptlimits import DEFAULT, Limits
from store.sieve.scriptoutcome import JUST_KEPT, UNCHANGED, Edition, Filed, Outcome
from store.sieve.scriptproblems import Place, RunProblem
from store.sieve.surroundings import Envelope, Surroundings
from store.sieve.templates import Template

Text = str | Template
Value = bool | int | Text | tuple[Text, ...]
Function = Callable[["Run", "Node"], bool | None]
NO_TAGS: Mapping[str, Value] = {}

#: Capabilities that there are only when mail comes: a script that requires one fails at an event of IMAP (RFC 6785
#: §3.11).
FOR_DELIVERY = frozenset(("reject", "ereject", "vacation", "vacation-seconds"))


@frozen(eq=False)
class Node:
    """A command or test of a script, checked and ready. `ready` is what its form has made of it beforehand;
    `otherwise` is what an `if` does when its test says no."""

    name: str
    place: Place
    function: Function
    tags: Mapping[str, Value] = NO_TAGS
    values: tuple[Value, ...] = ()
    tests: tuple["Node", ...] = ()
    block: tuple["Node", ...] = ()
    otherwise: tuple["Node", ...] = ()
    ready: Any = None


@frozen(eq=False)
class Tree:
    """A whole script; `needs` is what it requires, `count` its commands and tests. `alike`: its outcome is the same for
    all recipients of a message."""

    nodes: tuple[Node, ...]
    needs: frozenset[str] = frozenset()
    alike: bool = False
    count: int = field(init=False)

    @count.default
    def _count(self) -> int:
        return sum(1 for _ in nodes_of(self))


class Stopped(Exception):  # noqa: N818 - not an error
    """`stop` (RFC 5228 §3.3)."""


class Returned(Exception):  # noqa: N818 - not an error
    """`return` (RFC 6609 §3.3)."""


@define(eq=False)
class Scope:
    """The variables of one script; those that it calls global are shared (RFC 6609 §3.4)."""

    own: dict[str, str] = field(factory=dict)
    shared: set[str] = field(factory=set)


@define(eq=False)
class Run:
    """The state of one run. `compiled(name, site)` gives other scripts; `noted` hears of each node and what it said.
    `event`: it runs for an event of IMAP, and not for mail that comes (RFC 6785).
    """

    message: ReceivedMail
    envelope: Envelope
    surroundings: Surroundings = Factory(Surroundings)
    limits: Limits = DEFAULT
    compiled: Callable[[str, bool], Tree | None] = lambda _name, _site: None
    noted: Callable[[Node, bool | None], None] | None = None
    event: bool = False
    outcome: Outcome = Factory(Outcome)
    keeping: bool = True                            # the implicit keep (RFC 5228 §2.10.2) has not been cancelled
    flags: tuple[str, ...] = ()                     # the internal variable of RFC 5232 §2
    scope: Scope = Factory(Scope)
    shared: dict[str, str] = field(factory=dict)    # global variables
    matched: tuple[str, ...] = ()
    parts: list[Any] = field(factory=list)          # of `foreverypart`, the innermost last,
    loops: list[str | None] = field(factory=list)   # and the names of these loops
    includes: list[tuple[str, bool]] = field(factory=list)
    included: set[tuple[str, bool]] = field(factory=set)
    edition: Edition = UNCHANGED
    replaced: dict[tuple[int, int], bytes] = field(factory=dict)    # octets from and to, and what stands there now
    rewritten: int = 0                              # octets of all editions that were written again
    exhausted: bool = False                         # the run took too many steps, or looked at too much
    steps: int = 0                                  # that it has taken,
    octets: int = 0                                 # and characters that it has looked at, for `limits`
    lookups: int = 0                                # what the directory was asked about

    def execute(self, nodes: Sequence[Node]) -> None:
        """These commands, one after the other."""
        most, noted = self.limits.steps, self.noted
        for node in nodes:
            self.steps += 1
            if self.steps > most:
                self.count(node)
            said = node.function(self, node)
            if noted is not None:
                noted(node, said)

    def test(self, node: Node) -> bool:
        """What a test says."""
        self.steps += 1
        if self.steps > self.limits.steps:
            self.count(node)
        said = bool(node.function(self, node))
        if self.noted is not None:
            self.noted(node, said)
        return said

    def count(self, node: Node, octets: int = 0, steps: int = 1) -> None:
        """So many steps, which look at so many characters. Raises RunProblem past the limit."""
        self.steps += steps
        self.octets += octets
        if self.steps > self.limits.steps:
            self.exhausted = True
            raise RunProblem(f"the script takes more than {self.limits.steps} steps", node.place)
        if self.octets > self.limits.octets:
            self.exhausted = True
            raise RunProblem(f"the tests look at more than {self.limits.octets} characters", node.place)

    def look_up(self, node: Node) -> None:
        """The directory is to be asked about one thing more. Raises RunProblem past the limit."""
        self.lookups += 1
        if self.lookups > self.limits.lookups:
            raise RunProblem(f"the script asks the directory more than {self.limits.lookups} times", node.place)

    def text(self, value: Value) -> str:
        """A string of the script with the values of its variables."""
        if isinstance(value, Template):
            expanded = value.expanded(self.variable, self.limits.string)
            self.octets += len(expanded)
            if self.octets > self.limits.octets:
                self.exhausted = True
                raise RunProblem(f"the script makes more than {self.limits.octets} characters")
            return expanded
        assert isinstance(value, str)
        return value

    def list(self, value: Value) -> list[str]:
        """A string list, or a string as a list of one."""
        if isinstance(value, tuple):
            return [one if type(one) is str else self.text(one) for one in value]
        return [self.text(value)]

    def variable(self, name: str | int) -> str:
        """The value of a variable, "" if it has none (RFC 5229 §3)."""
        if isinstance(name, int):
            return self.matched[name] if name < len(self.matched) else ""
        space, _, rest = name.rpartition(".")
        if space == "global":
            return self.shared.get(rest, "")
        return (self.shared if name in self.scope.shared else self.scope.own).get(name, "")

    def set(self, name: str, value: str, node: Node) -> None:
        """Give a variable a value. Raises RunProblem when there are too many."""
        space, _, rest = name.lower().rpartition(".")
        variables = self.shared if space == "global" or rest in self.scope.shared else self.scope.own
        if rest not in variables and len(self.shared) + len(self.scope.own) >= self.limits.variables:
            raise RunProblem(f"the script sets more than {self.limits.variables} variables", node.place)
        variables[rest] = value[:self.limits.string]

    def require_delivery(self, node: Node) -> None:
        """Raises RunProblem for what there is only when mail comes (RFC 6785 §3.11, §4.6)."""
        if self.event:
            raise RunProblem(f"{node.name} is for mail that comes, not for events of IMAP", node.place)

    def act(self, node: Node) -> None:
        """One more action is to follow. Raises RunProblem when there are too many."""
        if self.outcome.actions >= self.limits.actions:
            raise RunProblem(f"the script does more than {self.limits.actions} actions", node.place)

    def file(self, filed: Filed) -> None:
        """The message goes there, with these flags; a mailbox gets it once, with all flags (RFC 5228 §2.10.3)."""
        for at, other in enumerate(self.outcome.files):
            if (other.mailbox, other.special_use, other.mailbox_id, other.edition) == (
                    filed.mailbox, filed.special_use, filed.mailbox_id, filed.edition):
                self.outcome.files[at] = filed
                return
        self.outcome.files.append(filed)


def run(trees: Sequence[Tree], state: Run) -> Outcome:
    """Run scripts one after the other, as if they were one (a site's first, the owner's, a site's last); a `stop` ends
    all. Never raises for what a script does: what fails keeps the message (RFC 5228 §2.10.6)."""
    outcome = state.outcome
    try:
        for tree in trees:
            state.scope = Scope()
            try:
                state.execute(tree.nodes)
            except Returned:
                continue
    except Stopped:
        pass
    except (RunProblem, RecursionError) as problem:
        outcome = state.outcome = Outcome(failure=str(problem) or "the script calls itself too deeply")
        state.keeping, state.flags, state.edition = True, (), UNCHANGED
    if state.keeping and outcome.refused is None:
        if outcome.files or state.flags or state.edition is not UNCHANGED:
            state.file(Filed(flags=state.flags, edition=state.edition))
        else:
            outcome.files += JUST_KEPT
    return outcome


def nodes_of(tree: Tree) -> Iterator[Node]:
    """All commands and tests, outermost first."""
    waiting = list(reversed(tree.nodes))
    while waiting:
        node = waiting.pop()
        yield node
        waiting += reversed((*node.tests, *node.block, *node.otherwise))
