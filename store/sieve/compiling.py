"""Scripts are compiled: what `syntax` has read is checked by the forms of `language`, and becomes a frozen tree.

Every problem is found before a script is kept (RFC 5804 §2.6): names, arguments, `require`, header names, addresses,
regular expressions. Only what a variable makes at run time is seen later.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from attrs import evolve, frozen

from store.sieve.commandforms import Form, Kind, Tag, Tests
from store.sieve.scriptlimits import DEFAULT, Limits
from store.sieve.scriptproblems import Place, RunProblem, ScriptProblem
from store.sieve.scriptrun import NO_TAGS, Node, Run, Tree, Value
from store.sieve.syntax import Argument, Parsed, parse
from store.sieve.templates import Template, decoded, template

_CONDITIONAL = ("if", "elsif", "else")


@frozen
class Language:
    """The commands, tests and capabilities that there are; `language.SIEVE` has all. `alike`: whether a command or test
    does and says the same for all recipients of a message."""

    commands: Mapping[str, Form]
    tests: Mapping[str, Form]
    capabilities: frozenset[str]
    alike: Callable[[Node], bool] = lambda node: False


def compile_script(script: str, language: Language, limits: Limits = DEFAULT) -> Tree:
    """The tree of a script. Raises ScriptProblem."""
    compiler = _Compiler(language)
    nodes = compiler.script(parse(script, limits))
    return Tree(nodes, frozenset(compiler.needs), compiler.alike)


def _missing(text: str) -> Node:
    """What stands for a command or test that is not there, which `ihave` guards (RFC 5463 §4)."""
    def fail(_run: Run, node: Node) -> None:
        raise RunProblem(text, node.place)
    return Node("", Place(0, 0), fail)


class _NoTag(ScriptProblem):
    """A command takes no such tag, or not without another capability."""


class _Compiler:
    """Compiles one script."""

    def __init__(self, language: Language) -> None:
        self.language = language
        self.needs: set[str] = set()
        self.alike = True

    def script(self, commands: Sequence[Parsed]) -> tuple[Node, ...]:
        first = 0
        while first < len(commands) and commands[first].name == "require":
            self._require(commands[first])
            first += 1
        return tuple(self._commands(commands[first:]))

    def _require(self, command: Parsed) -> None:
        values = [argument for argument in command.arguments if not argument.tag]
        if len(values) != 1 or len(command.arguments) != 1 or isinstance(values[0].value, int) or (
                command.tests or command.block is not None):
            raise ScriptProblem(command.place, "require takes a string or a list of strings")
        for name in _strings(values[0].value):
            if name not in _BUILT_IN and name not in self.language.capabilities:
                raise ScriptProblem(values[0].place, f'there is no extension "{name}" here')
            self.needs.add(name)

    def _commands(self, commands: Sequence[Parsed]) -> Iterator[Node]:
        """A chain of if, elsif and else becomes one node."""
        at = 0
        while at < len(commands):
            end = at + 1
            if commands[at].name == "if":
                while end < len(commands) and commands[end].name in _CONDITIONAL[1:]:
                    end += 1
                    if commands[end - 1].name == "else":
                        break
                yield self._chain(commands[at:end])
            elif commands[at].name in _CONDITIONAL:
                raise ScriptProblem(commands[at].place, f"{commands[at].name} follows no if")
            elif commands[at].name == "require":
                raise ScriptProblem(commands[at].place, "require stands before all other commands")
            else:
                yield self._node(commands[at], self.language.commands, "command")
            at = end

    def _chain(self, chain: Sequence[Parsed]) -> Node:
        made = [self._node(command, self.language.commands, "command") for command in chain]
        node = made.pop()
        while made:
            otherwise = node.block if node.name == "else" else (node,)
            node = evolve(made.pop(), otherwise=otherwise)
        return node

    def _node(self, parsed: Parsed, forms: Mapping[str, Form], kind: str) -> Node:
        form = forms.get(parsed.name)
        if form is None or form.need and not self.needs.intersection(form.need):
            text = f"there is no {kind} {parsed.name}" if form is None else (
                f'{parsed.name} needs require "{form.need[0]}"')
            if "ihave" in self.needs:
                return evolve(_missing(text), name=parsed.name, place=parsed.place)
            raise ScriptProblem(parsed.place, text)
        try:
            tags, values = self._arguments(parsed, form)
        except _NoTag as problem:
            if "ihave" in self.needs:           # it may belong to what is not there
                return evolve(_missing(problem.text), name=parsed.name, place=parsed.place)
            raise
        self._check_shape(parsed, form)
        tests = tuple([self._node(test, self.language.tests, "test") for test in parsed.tests])
        node = Node(parsed.name, parsed.place, form.function, tags or NO_TAGS, values, tests)
        self.alike = self.alike and self.language.alike(node)
        if form.prepare is not None:
            try:
                node = evolve(node, ready=form.prepare(node))
            except ValueError as error:
                raise ScriptProblem(parsed.place, f"{parsed.name}: {error}") from None
        if parsed.name == "ihave":
            self.needs |= self.language.capabilities.intersection(*[values[0]] if values else ())
        return evolve(node, block=tuple(self._commands(parsed.block))) if parsed.block else node

    def _check_shape(self, parsed: Parsed, form: Form) -> None:
        count = len(parsed.tests)
        if not {Tests.NONE: count == 0, Tests.ONE: count == 1, Tests.SOME: count > 0}[form.tests]:
            raise ScriptProblem(parsed.place, f"{parsed.name} takes {form.tests.value}")
        if form.block != (parsed.block is not None):
            raise ScriptProblem(parsed.place, f"{parsed.name} {'needs' if form.block else 'takes no'} block in braces")

    def _arguments(self, parsed: Parsed, form: Form) -> tuple[dict[str, Value], tuple[Value, ...]]:
        tags: dict[str, Value] = {}
        groups: dict[str, str] = {}
        positional: list[Argument] = []
        waiting = list(reversed(parsed.arguments))
        while waiting:
            argument = waiting.pop()
            if not argument.tag:
                positional.append(argument)
                continue
            if positional:
                raise ScriptProblem(argument.place, f"tags of {parsed.name} stand before its other arguments")
            name = str(argument.value)
            tag = self._tag(name, argument, parsed, form)
            if name in tags or groups.setdefault(tag.group or name, name) != name:
                raise ScriptProblem(argument.place, f"{parsed.name} takes one :{groups[tag.group or name]} only")
            tags[name] = True
            if tag.value is not None:
                if not waiting or waiting[-1].tag:
                    raise ScriptProblem(argument.place, f":{name} is followed by {tag.value.value}")
                tags[name] = self._value(waiting.pop(), tag.value, f":{name}")
        for wanted in form.required:
            if wanted not in groups:
                raise ScriptProblem(parsed.place, f"{parsed.name} needs a {wanted}")
        return tags, self._values(parsed, form, positional)

    def _tag(self, name: str, argument: Argument, parsed: Parsed, form: Form) -> Tag:
        tag = form.tags.get(name)
        if tag is None:
            raise _NoTag(argument.place, f"{parsed.name} takes no :{name}")
        if tag.need and tag.need not in self.needs:
            raise _NoTag(argument.place, f':{name} needs require "{tag.need}"')
        return tag

    def _values(self, parsed: Parsed, form: Form, found: Sequence[Argument]) -> tuple[Value, ...]:
        kinds = form.values
        if len(found) == len(kinds) - 1:
            if form.optional_first:
                kinds = kinds[1:]
            elif form.optional_last:
                kinds = kinds[:-1]
        if len(found) != len(kinds):
            expected = ", ".join(kind.value for kind in kinds) or "nothing"
            raise ScriptProblem(parsed.place, f"{parsed.name} takes {expected}")
        return tuple([self._value(one, kind, parsed.name) for one, kind in zip(found, kinds, strict=True)])

    def _value(self, argument: Argument, kind: Kind, owner: str) -> Value:
        value = argument.value
        if isinstance(value, int) != (kind is Kind.NUMBER) or isinstance(value, tuple) and kind is Kind.STRING:
            raise ScriptProblem(argument.place, f"{owner} takes {kind.value} here")
        if isinstance(value, int):
            return value
        texts = tuple([self._text(text, argument.place) for text in _strings(value)])
        return texts if kind is Kind.STRINGS else texts[0]

    def _text(self, text: str, place: Place) -> str | Template:
        if "${" not in text:
            return text
        if "encoded-character" in self.needs:
            try:
                text = decoded(text)
            except ValueError as error:
                raise ScriptProblem(place, str(error)) from None
        if "variables" not in self.needs:
            return text
        made = template(text)
        if isinstance(made, Template):
            for name in made.names:
                space = name.rpartition(".")[0] if isinstance(name, str) else ""
                if space and not (space == "global" and "include" in self.needs):
                    raise ScriptProblem(place, f'there is no namespace of variables "{space}" here')
        return made


def _strings(value: int | str | tuple[str, ...]) -> tuple[str, ...]:
    assert not isinstance(value, int)
    return value if isinstance(value, tuple) else (value,)


_BUILT_IN = frozenset(("comparator-i;octet", "comparator-i;ascii-casemap"))       # RFC 5228 §2.7.3: need no require
