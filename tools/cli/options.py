"""The options of onecopy: one table, made from the `Settings` classes of the packages.

Each can be given in `onecopy.toml` (`[imap] port = 143`), in the environment (`ONECOPY_IMAP_PORT`) and on the command
line (`--imap-port`), in rising precedence. An attribute's metadata may hold "help", and a "type" that its annotation
does not tell: "size" (64M), "duration" (30m), "mode" (0660).
"""

import argparse
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar, cast, get_args, get_type_hints

import attrs
from attrs import evolve, field, frozen

from mboxlist import privatefiles
from store.values import DURATIONS, SIZES, boolean, duration, size
from tools.exits import Failure, did_you_mean

DEFAULT_FILE = Path("/etc/onecopy/onecopy.toml")
FILE_NAME = "onecopy.toml"
TYPED = "option:"           # begins the name under which argparse keeps one that was typed

T = TypeVar("T")

# The classes of each section by module and name: one is loaded when somebody asks for its section.
SECTIONS: dict[str, tuple[str, ...]] = {
    "store": ("store.settings:Settings",),
    "imap": ("tools.serversettings:ImapListen", "imap.settings:Settings"),
    "pop3": ("tools.serversettings:Pop3Listen", "pop3.settings:Settings"),
    "lmtp": ("tools.serversettings:LmtpListen", "lmtp.settings:Settings"),
    "managesieve": ("tools.serversettings:ManageSieveListen", "imap.managesieve.managesettings:Settings"),
    "sieve": ("store.filtering.sievesettings:Settings",),
    "exchange": ("tools.serversettings:Exchange",),
    "front": ("tools.serversettings:FrontListen", "tools.front.settings:Settings"),
    "http": ("tools.serversettings:HttpListen", "tools.http.settings:Settings"),
    "directory": ("store.accounts.ldap.ldapsettings:Settings", "store.accounts.ldap.ldapprofiles:MapSettings"),
    "login": ("store.accounts.loginsettings:Settings",),
    "tls": ("tools.serversettings:Tls",),
    "workers": ("tools.serversettings:Workers",),
    "log": ("tools.serversettings:Log",),
    "trace": ("tools.serversettings:Trace",),
    "audit": ("store.audit.auditsettings:Settings",),
}

# Sections of which there may be several, each by a name of its own: [outbox.NAME]. They stand in the file and in the
# environment, not on the command line.
NAMED: dict[str, tuple[str, ...]] = {"outbox": ("tools.outbox.outboxsettings:Settings",)}
_GIVEN_NAME = re.compile("[a-z][a-z0-9]{0,31}")


def mode(text: str) -> int:
    """The permissions of a file, in octal. Raises ValueError."""
    if not re.fullmatch(r"(0o?)?[0-7]{3}", text.strip()):
        raise ValueError("not the permissions of a file (such as 0660)")
    return int(text.strip().removeprefix("0o"), 8)


def _integer(text: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]{1,18}", text.strip()):
        raise ValueError("not a whole number")
    return int(text)


def _number(text: str) -> float:
    if not re.fullmatch(r"[+-]?[0-9]{1,18}(\.[0-9]{1,18})?", text.strip()):
        raise ValueError("not a number")
    return float(text)


def _path(text: str) -> Path:
    if not text or "\0" in text:
        raise ValueError("not a path")
    return Path(text).expanduser()


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


_READERS: dict[object, Any] = {
    "size": size, "duration": duration, "mode": mode,
    bool: boolean, int: _integer, float: _number, str: str, Path: _path, tuple[str, ...]: _words,
}


@frozen
class Option:
    """One line of the table."""

    section: str
    key: str
    kind: object            # a type, or the "type" of the metadata
    whole: bool             # the value must be an int, whatever `kind` gives
    optional: bool          # may be None, written ""
    default: object
    help: str
    group: type             # the class whose attribute it is

    @property
    def name(self) -> str:
        """As in the file: imap.port."""
        return f"{self.section}.{self.key}" if self.section else self.key

    @property
    def variable(self) -> str:
        """As in the environment: ONECOPY_IMAP_PORT."""
        return "ONECOPY_" + self.name.replace(".", "_").upper()

    @property
    def flag(self) -> str:
        """As on the command line: --imap-port."""
        return "--" + self.name.replace(".", "-").replace("_", "-")

    def read(self, text: str) -> object:
        """The value from text. Raises ValueError."""
        if self.optional and text in ("", "none"):
            return None
        value = _READERS[self.kind](text)
        if self.whole and isinstance(value, float):
            if not value.is_integer():
                raise ValueError("must be whole seconds")
            value = int(value)
        self.check(value)
        return value

    def read_toml(self, value: object, folder: Path) -> object:
        """The value from a file in `folder`. Raises ValueError."""
        if isinstance(value, list) and self.kind == tuple[str, ...] and all(isinstance(word, str) for word in value):
            return self.read(",".join(value))
        if isinstance(value, bool) is not (self.kind is bool) and not isinstance(value, str):
            raise ValueError("not of the right type")
        if isinstance(value, (bool, int, float)):
            return self.read(oct(value) if self.kind == "mode" and isinstance(value, int) else str(value).lower())
        if not isinstance(value, str):
            raise ValueError("not of the right type")
        read = self.read(value)
        return folder / read if isinstance(read, Path) else read

    def check(self, value: object) -> None:
        """Ask the class's own validator. Raises ValueError."""
        if self.group is not NoneType:
            self.group(**{self.key: value})

    def show(self, value: object) -> str:
        """The value as one would write it."""
        if value is None:
            return ""
        if isinstance(value, bool):
            return "yes" if value else "no"
        if isinstance(value, tuple):
            return ", ".join(value)
        number = cast(float, value)
        if self.kind == "mode":
            return f"{value:04o}"
        if self.kind == "size":
            unit = next((unit for unit in "ptgmk" if number and number % SIZES[unit] == 0), "")
            return f"{int(number) // SIZES[unit]}{unit.upper()}"
        if self.kind == "duration":
            unit = next((unit for unit in "dhm" if number and number % DURATIONS[unit] == 0), "s")
            amount = number / DURATIONS[unit]
            return f"{int(amount) if amount == int(amount) else amount}{unit}"
        return str(value)


ROOT = Option("", "root", Path, False, True, None, "folder of the store", NoneType)


@cache
def section(name: str) -> Mapping[str, Option]:
    """The options of a section by name; "" has those of none. Raises TypeError for a `Settings` class that cannot be
    given in text."""
    if not name:
        return {ROOT.name: ROOT}
    options: dict[str, Option] = {}
    for place in SECTIONS.get(name) or NAMED[name.partition(".")[0]]:
        module, _, group = place.partition(":")
        for option in _options(name, getattr(import_module(module), group)):
            if option.name in options:
                raise TypeError(f"two options are named {option.name}")
            options[option.name] = option
    return options


@cache
def table() -> Mapping[str, Option]:
    """All options by name. Raises TypeError as `section` does."""
    return {name: option for each in ("", *SECTIONS) for name, option in section(each).items()}


def option(name: str) -> Option | None:
    """The option of that name."""
    place = name.rpartition(".")[0]
    return section(place).get(name) if not place or _is_section(place) else None


def _is_section(name: str) -> bool:
    kind, _, given_name = name.partition(".")
    return name in SECTIONS or kind in NAMED and _GIVEN_NAME.fullmatch(given_name) is not None


def of_flag(flag: str) -> Option | None:
    """The option that is given by that word on the command line."""
    place = flag.removeprefix("--").partition("-")[0]
    found = section(place if place in SECTIONS else "")
    return next((option for option in found.values() if option.flag == flag), None)


def _of_variable(variable: str) -> Option | None:
    """The option that is given by that variable of the environment."""
    words = variable.removeprefix("ONECOPY_").lower().split("_")
    place = ".".join(words[:2]) if words[0] in NAMED else words[0]
    found = section(place if _is_section(place) else "")
    return next((option for option in found.values() if option.variable == variable), None)


def _options(section: str, group: type) -> Iterable[Option]:
    hints = get_type_hints(group)
    for attribute in attrs.fields(group):
        hint = hints[attribute.name]
        optional = NoneType in get_args(hint)
        if optional:
            hint, = (kind for kind in get_args(hint) if kind is not NoneType)
        kind = attribute.metadata.get("type", hint)
        if kind not in _READERS:
            raise TypeError(f"{group.__module__}: {attribute.name} has a type that cannot be configured")
        yield Option(section, attribute.name, kind, hint is int, optional, attribute.default,
                     attribute.metadata.get("help", ""), group)


class _Everything(Mapping[str, T]):
    """Something for every option: what was given, and for each other one what it has without; so the sections that
    nobody asks for need not be loaded."""

    def __init__(self, given: Mapping[str, T], without: Callable[[Option], T]) -> None:
        self.given = given
        self._without = without

    def __getitem__(self, name: str) -> T:
        if name in self.given:
            return self.given[name]
        found = option(name)
        if found is None:
            raise KeyError(name)
        return self._without(found)

    def __iter__(self) -> Iterator[str]:
        return iter({**dict.fromkeys(table()), **dict.fromkeys(self.given)})

    def __len__(self) -> int:
        return len({*table(), *self.given})


@frozen
class Config:
    """The value of every option, and where it came from."""

    values: Mapping[str, object]
    origins: Mapping[str, str]
    file: Path | None = None
    _again: "Callable[[], Config] | None" = field(default=None, eq=False, repr=False)

    def again(self) -> "Config":
        """What the same sources say now. Raises Failure."""
        return self if self._again is None else self._again()

    def at(self, root: Path) -> "Config":
        """With another folder for the store."""
        return evolve(self, values=_Everything({**self._given, ROOT.name: root}, lambda option: option.default))

    @property
    def root(self) -> Path:
        """The store's folder. Raises Failure."""
        root = self.values[ROOT.name]
        if not isinstance(root, Path):
            raise Failure(f"which store? Give --root, {ROOT.variable}, or root in {FILE_NAME}")
        return root.absolute()

    @property
    def _given(self) -> Mapping[str, object]:
        return self.values.given if isinstance(self.values, _Everything) else self.values

    @property
    def has_outside_directory(self) -> bool:
        """Whether an outside directory has the users. Loads nothing to find out."""
        return bool(self._given.get("directory.uris"))

    def names(self, kind: str) -> list[str]:
        """The names of the sections of that kind (NAMED) of which anything is given."""
        return sorted({name.split(".")[1] for name in self._given if name.startswith(f"{kind}.")})

    def settings(self, section: str, group: type[T]) -> T:
        """A `Settings` object filled from its section."""
        given = self._given
        return group(**{attribute.name: given[name] for attribute in attrs.fields(cast(Any, group))
                        if (name := f"{section}.{attribute.name}") in given})


def load(given: Mapping[str, str], environment: Mapping[str, str], file: Path | None = None,
         defaults: Mapping[str, str] | None = None) -> Config:
    """Join the sources. Raises Failure.

    `given`: from the command line, by option; `file`: named there; `defaults`: in the place of the built-in ones.
    """
    values: dict[str, object] = {}
    origins: dict[str, str] = {}

    def take(option: Option, text: str, origin: str) -> None:
        try:
            values[option.name], origins[option.name] = option.read(text), origin
        except ValueError as error:
            raise Failure(f"{origin}: {text!r}: {error}") from None

    for name, text in (defaults or {}).items():
        take(_known(name), text, "default")
    path = _file(file, environment)
    if path is not None:
        for name, value in _read_file(path).items():
            origin = f"{path}: {name}"
            try:
                values[name], origins[name] = _known(name).read_toml(value, path.absolute().parent), origin
            except ValueError as error:
                raise Failure(f"{origin}: {value!r}: {error}") from None
    for variable in sorted(name for name in environment if name.startswith("ONECOPY_") and name != "ONECOPY_CONFIG"):
        found = _of_variable(variable)
        if found is None:
            near = did_you_mean(variable, (option.variable for option in table().values()))
            raise Failure(f"environment: {variable}: there is no such option{near}")
        take(found, environment[variable], variable)
    for name, text in given.items():
        take(_known(name), text, _known(name).flag)
    return Config(_Everything(values, lambda option: option.default), _Everything(origins, lambda option: "default"),
                  path, partial(load, given, environment, file, defaults))


def given(arguments: argparse.Namespace) -> dict[str, str]:
    """The options of the configuration that were typed."""
    return {name.removeprefix(TYPED): value for name, value in vars(arguments).items() if name.startswith(TYPED)}


def _known(name: str) -> Option:
    found = option(name)
    assert found is not None, name
    return found


def _file(named: Path | None, environment: Mapping[str, str]) -> Path | None:
    """The file to read: the named one, which must be there, or the first of the usual ones that is."""
    if named is None and environment.get("ONECOPY_CONFIG"):
        named = Path(environment["ONECOPY_CONFIG"])
    if named is not None:
        return named
    return next((path for path in (Path(FILE_NAME), DEFAULT_FILE) if path.is_file()), None)


def _read_file(path: Path) -> dict[str, object]:
    import tomllib  # here: nobody else needs it
    try:
        with privatefiles.open_named(path) as stream:
            document = tomllib.load(stream)
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Failure(f"{path}: {error}") from None
    found: dict[str, object] = {}
    for section, content in document.items():
        if isinstance(content, dict) and section in NAMED:
            for given_name, inner in content.items():
                if not _GIVEN_NAME.fullmatch(given_name) or not isinstance(inner, dict):
                    raise Failure(f"{path}: [{section}.{given_name}]: a section [{section}.NAME] belongs here, whose "
                                  "NAME is small letters and digits")
                found.update({f"{section}.{given_name}.{key}": value for key, value in inner.items()})
        elif isinstance(content, dict):
            if section not in SECTIONS:
                raise Failure(f"{path}: [{section}]: there is no such section{did_you_mean(section, SECTIONS)}")
            found.update({f"{section}.{key}": value for key, value in content.items()})
        else:
            found[section] = content
    unknown = sorted(name for name in found if option(name) is None)
    if unknown:
        near = did_you_mean(unknown[0], table()) if len(unknown) == 1 else ""
        raise Failure(f"{path}: {', '.join(unknown)}: there is no such option{near}")
    return found
