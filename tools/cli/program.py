"""The program `onecopy`: finds the command, reads the configuration, and turns failures into one line and a status."""

import argparse
import atexit
import gc
import os
import signal
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from attrs import evolve

import mboxlist.engine.transact
from mboxlist import privatefiles
from store import VERSION
from store.errors import Problem, StoreError, in_words
from store.readonly import place
from tools import storeowner
from tools.cli import options as config
from tools.cli import output, registry
from tools.cli.invocation import AGAIN, Command, Invocation
from tools.cli.later import Later
from tools.cli.output import only_printable
from tools.exits import Failure, add_advice, did_you_mean, status

_elsewhere = Later("tools.cli.elsewhere.remote:run")
_find_copy = Later("store.readonly.readingcopy:find")    # next to never is there one
_note = Later("tools.commandaudit:note")                # most commands note nothing
_running = Later("tools.commandaudit:running")
_hidden = Later("tools.commandaudit:hidden")

_USUAL = {"expire": "run"}  # in groups of commands: the one that is meant when none is named

YOUNG = 100_000             # objects after which cycles are looked for: twice what a command loads at its start

WIDTH = 80                  # columns, where nothing is shown

_READS = frozenset({"", "read", "search", "export", "session"})     # kinds of commands that change no mail
_OWN = frozenset({"standby", "config"})     # groups that are about the machine itself

_HELP_WORDS = frozenset({"-h", "--help", "--help-all"})


# The help of arguments that mean the same everywhere, where a command gives none of its own.
_HELP = {
    "--json": "print JSON, for programs",
    "--bytes": "print sizes as numbers of octets, as JSON has them",
    "--yes": "do not ask",
    "USER": "a user id or an address of the user",
    "MAILBOX": "its name, as its owner's client writes it",
    "UID": "the message's UID in the mailbox",
    "NAME": "its name",
    "OLD": "the name that it has",
    "NEW": "the name that it gets",
    "NEW-NAME": "the name that it gets, as its owner's client writes it",
}


class _Parser(argparse.ArgumentParser):
    """Complains in one line, and says what may have been meant."""

    def error(self, message: str) -> NoReturn:
        message = message.replace("invalid int value:", "not a number:")
        self.exit(2, f"onecopy: {message} (see {self.prog} --help)\n")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """A command that does not exist, or a value that is none of the choices."""
        if action.choices is None or value in action.choices:
            return
        if not isinstance(action, argparse._SubParsersAction):
            meant = did_you_mean(str(value), map(str, action.choices))
            raise argparse.ArgumentError(action, f"{value!r} is none of {', '.join(map(str, action.choices))}{meant}")
        group = self.prog.partition(" ")[2]
        meant = did_you_mean(str(value), action.choices) if group else registry.near(str(value))
        self.error(f"there is no command {' '.join([group, str(value)]).strip()!r}{meant}")

    def unknown(self, words: Sequence[str]) -> NoReturn:
        """Complain of what is left when everything that is known has been taken."""
        name = words[0].partition("=")[0]
        if not name.startswith("-"):
            self.error(f"unrecognized arguments: {' '.join(words)}")
        known = [*self._option_string_actions, *(option.flag for option in config.table().values())]
        self.error(f"there is no option {name}{did_you_mean(name, known)}")


class _Silent(_Parser):
    """Prints no help: argparse asks for each argument how wide the terminal is, which takes long."""

    def __init__(self, **options: Any) -> None:
        super().__init__(formatter_class=partial(argparse.HelpFormatter, width=WIDTH), **options)


def _kind(words: Collection[str]) -> type[_Parser]:
    return _Silent if words and _HELP_WORDS.isdisjoint(words) else _Parser


class _Tree:
    """The parsers of commands: `user` and `add` below it. Only those that are among the words have options of the
    configuration: there are a hundred of them."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = frozenset(words)
        self.parsers: list[argparse.ArgumentParser] = []
        self._parser = _kind(words)
        self.top = self._parser(prog="onecopy", description="A single-copy mail message store.", allow_abbrev=False)
        self.top.add_argument("--version", action="version", version=f"onecopy {VERSION}")
        self._below = {"": self.top.add_subparsers(metavar="COMMAND", required=True, parser_class=self._parser)}

    def __call__(self, name: str, command: Command, help: str, *, settings: bool = False) -> argparse.ArgumentParser:
        group, _, own = name.rpartition(" ")
        self.group(group)
        parser: argparse.ArgumentParser = self._below[group].add_parser(
            own, help=help, description=help, allow_abbrev=False,
            parents=[_options(self._words, shown=settings)] if own in self._words else [])
        parser.set_defaults(command=command, program=parser.prog, parser=parser)
        self.parsers.append(parser)
        return parser

    def group(self, name: str) -> None:
        """There is a group of that name from now on."""
        if name not in self._below:
            what = registry.GROUPS[name]
            made = self._below[""].add_parser(name, help=what, description=what, allow_abbrev=False)
            self._below[name] = made.add_subparsers(metavar="COMMAND", required=True, parser_class=self._parser)

    def outline(self, command: registry.Registered) -> None:
        """A command of which only the name and the help are shown."""
        if command.group:
            self.group(command.group)
        else:
            self._below[""].add_parser(command.name, help=command.help)


@cache
def _options(words: frozenset[str], *, shown: bool) -> _Parser:
    """A parent parser with the options of the configuration that are among the words. Help has --root and --config; and
    with `shown` it says that there are others, which --help-all lists."""
    parser = _kind(words)(add_help=False, allow_abbrev=False)
    group = parser.add_argument_group("configuration", f"also in {config.FILE_NAME} and in the environment")
    if shown:
        group.add_argument("--help-all", action="help",
                           help=f"list all options of the sections {', '.join(config.SECTIONS)}, too: each can be "
                                "given as --SECTION-KEY VALUE (they stand in onecopy.toml(5) as well)")
    group.add_argument("--config", type=Path, metavar="FILE",
                       help=f"default: ./{config.FILE_NAME}, or {config.DEFAULT_FILE}")
    whole = shown and "--help-all" in words
    for option in (option for section in ("", *config.SECTIONS)
                   if whole or not section or any(word.startswith(f"--{section}-") for word in words)
                   for option in config.section(section).values()):
        show = whole or option is config.ROOT
        default = option.show(option.default)
        text = f"{option.help} ({default})" if default else option.help
        group.add_argument(option.flag, dest=config.TYPED + option.name, metavar="VALUE", default=argparse.SUPPRESS,
                           help=text.replace("%", "%%") if show else argparse.SUPPRESS)
    return parser


def parse(words: Sequence[str], defaults: Mapping[str, str] | None = None) -> Invocation:
    """From what was typed. Raises Failure, SystemExit (argparse has said why).

    `defaults`: by option, stand in the place of the built-in ones.
    """
    words = _in_order(words)
    modules = registry.modules(words)
    grown = _grown(words, modules)
    if not modules:         # the words name no command: argparse says so, or shows the list
        for command in registry.COMMANDS:
            grown.outline(command)
    at = 1 if registry.members(words[0] if words else "") else 0        # where an option would stand before the command
    if words[at:] and words[at].startswith("-") and words[at] not in grown.top._option_string_actions:
        grown.top.unknown(words[at:])
    arguments, unknown = grown.top.parse_known_args(words)
    if unknown:
        arguments.parser.unknown(unknown)
    loaded = config.load(config.given(arguments), os.environ, arguments.config, defaults or {})
    return Invocation(arguments, loaded, tuple(words))


def _in_order(words: Sequence[str]) -> list[str]:
    """The command first, by the name that it has now; options of the configuration that were typed in front of it, or
    between its words, stand behind it."""
    command, options, rest = list[str](), list[str](), list(words)
    while rest and (not command or (len(command) == 1 and registry.members(command[0]))):
        flag, equals, _ = rest[0].partition("=")
        if _takes_value(flag):
            taken = 1 if equals else 2
            options, rest = [*options, *rest[:taken]], rest[taken:]
        elif flag.startswith("-") or (command and command[0] in _USUAL and flag not in registry.members(command[0])):
            break
        else:
            command.append(rest.pop(0))
    if len(command) == 1 and command[0] in _USUAL and _HELP_WORDS.isdisjoint(rest[:1]):
        command.append(_USUAL[command[0]])
    return [*registry.FORMER.get(tuple(command), command), *options, *rest]


def _takes_value(flag: str) -> bool:
    """Whether that is an option of the configuration."""
    return flag in ("--config", config.ROOT.flag) or config.of_flag(flag) is not None


def _grown(words: Sequence[str], modules: Iterable[str]) -> _Tree:
    """The parsers that these modules make."""
    made = _Tree(words)
    for module in modules:
        import_module(f"..commands.{module}", __package__).add(made)
    for action in (action for parser in made.parsers for action in parser._actions if not action.help):
        action.help = next((_HELP[name] for name in (*action.option_strings, str(action.metavar)) if name in _HELP),
                           None)
    return made


def every_parser() -> argparse.ArgumentParser:
    """The program's, with those of all commands below it, without the options of the configuration."""
    return _grown((), registry.every_module()).top


def name_of(invocation: Invocation) -> str:
    """The command's, as the registry has it."""
    return str(invocation.arguments.program).removeprefix("onecopy ")


def run(invocation: Invocation) -> int:
    """Do what was typed, for root as the owner of the store; the exit status. Raises Failure."""
    command: Command = invocation.arguments.command
    output.use_plain_sizes(getattr(invocation.arguments, "bytes", False))
    registered = registry.BY_NAME[name_of(invocation)]
    note = _noting(invocation, registered)
    if not registered.stays_root:
        invocation.act_as_owner(reads_as_root=registered.reads_as_root)
        note()
        invocation = _of_what_is_served(invocation, reads=registered.audit in _READS and registered.group not in _OWN)
    result = "it was ended"
    try:
        status = command(invocation)
        result = f"exit status {status}" if status else ""
    except (Failure, StoreError, OSError) as error:
        result = str(error)
        if _is_refused(error) and invocation.config.values["root"]:
            error.add_note(storeowner.why_refused(invocation.config.root))
        raise
    finally:
        if result or registered.stays_root:     # who stays root has become the owner by now
            note(result=result)
    return status


def _noting(invocation: Invocation, registered: registry.Registered) -> Callable[..., None]:
    """What notes the command in the audit trail (`store/audit`): before it begins, and when it ends otherwise than
    well."""
    arguments, config_of = invocation.arguments, invocation.config
    chosen = not registered.audit_if or any(
        getattr(arguments, name, None) not in (None, False, []) for name in registered.audit_if)
    chosen = chosen and not getattr(arguments, registered.audit_unless or "nothing", False)
    if not registered.audit or not chosen or not config_of.values["root"]:
        return lambda **result: None
    words = list(invocation.words)
    for word in registered.name.split():
        words.remove(word)
    return partial(_note, config_of.root, config_of.values["audit.kinds"], registered.audit, registered.name,
                   "the server" if os.environ.get(AGAIN) else _running(),
                   list(_hidden(words, arguments.parser._option_string_actions)))


def _of_what_is_served(invocation: Invocation, *, reads: bool) -> Invocation:
    """With the copy for reading in the place of the store, while a server serves that; and what only `reads` with the
    newest of a standby."""
    root = invocation.config.values["root"]
    if isinstance(root, Path) and reads and (newest := place.newest_of_standby(root.absolute())) is not None:
        return evolve(invocation, config=invocation.config.at(newest))
    if not isinstance(root, Path) or not any(each.exists() for each in place.places(root)):
        return invocation
    served = _find_copy(invocation.config.root)
    return invocation if served is None else evolve(invocation, config=invocation.config.at(served))


def guarded(work: Callable[[], int]) -> int:
    """The exit status of `work`; what goes wrong in it is said in one line."""
    privatefiles.only_ours()
    with only_printable():
        return _guarded(work)


def _guarded(work: Callable[[], int]) -> int:
    try:
        done = work()
        sys.stdout.flush()
        return done
    except SystemExit as end:
        return int(end.code or 0)
    except Failure as failure:
        return _complain(str(failure), failure.status, failure)
    except StoreError as error:
        if error.problem is Problem.DISK_FULL and not any(getattr(error, "__notes__", ())):
            error.add_note("make room, then run the command again")
        add_advice(error)
        return _complain(str(error), status(error), error)
    except BrokenPipeError:
        os.dup2(privatefiles.nothing(), 1)      # nobody reads the rest, and nobody minds
        return 1
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)        # end as any program does, so that a shell sees it
        os.kill(os.getpid(), signal.SIGINT)
        return 128 + signal.SIGINT
    except OSError as error:
        return _complain(in_words(error), 1, error)
    except mboxlist.engine.transact.Failure as error:
        return _complain(str(error), 1, error)


def _complain(text: str, status: int, error: BaseException) -> int:
    why = " ".join(note for note in getattr(error, "__notes__", ()) if note)
    print("onecopy:", text.replace("\n", " ") + (f" ({why})" if why else ""), file=sys.stderr)
    return status


def _is_refused(error: BaseException) -> bool:
    """Whether the system has not let this user do something."""
    reason: BaseException | None = error
    while reason is not None and not isinstance(reason, PermissionError):
        reason = reason.__cause__ or reason.__context__
    return reason is not None


def main(words: Sequence[str] | None = None) -> int:
    """The program."""
    # numpy's OpenBLAS has a thread for each processor, which look for work for a while, and there is none: nothing here
    # multiplies matrices.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    gc.set_threshold(YOUNG)
    atexit.register(gc.freeze)          # or Python looks through all there is for cycles, several times, as it ends
    typed = sys.argv[1:] if words is None else words
    if typed and typed[0].partition("=")[0] == "--server":
        return guarded(lambda: int(_elsewhere(typed)))
    return guarded(lambda: run(parse(typed)))


if __name__ == "__main__":
    sys.exit(main())
