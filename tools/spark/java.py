"""Which Java runs Spark, found without starting any."""

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from mboxlist import privatefiles
from tools.exits import Failure

OLDEST = 17
PACKAGE = "openjdk-17-jre-headless"
PLACES = Path("/usr/lib/jvm")
_VERSION = re.compile(r'^JAVA_VERSION="(?:1\.)?([0-9]+)', re.MULTILINE)


def java_home(environment: Mapping[str, str] = os.environ, places: Path = PLACES) -> Path:
    """The folder of the Java to use: that of JAVA_HOME, the first in PATH, or the oldest of the system's that will do.

    Raises Failure, which says in one line what to do.
    """
    given = environment.get("JAVA_HOME")
    if given:
        home = Path(given)
        if not _is_java(home):
            raise Failure(f"JAVA_HOME is {given}, and there is no Java: set it to that of Java {OLDEST}, or unset it")
        if (version_of(home) or OLDEST) < OLDEST:
            raise Failure(f"JAVA_HOME is {given}, Java {version_of(home)}: Spark needs Java {OLDEST} or later")
        return home
    found = None
    for home in _candidates(environment, places):
        version = version_of(home)
        if version is not None and version >= OLDEST:
            return home
        found = found or version
    older = f" (found: Java {found})" if found else ""
    raise Failure(f"Spark needs Java {OLDEST} or later{older}: apt-get install {PACKAGE}, or set JAVA_HOME")


def _candidates(environment: Mapping[str, str], places: Path) -> Iterator[Path]:
    program = shutil.which("java", path=environment.get("PATH", ""))
    if program is not None:
        yield Path(os.path.realpath(program)).parent.parent
    homes = [home for home in places.glob("*") if not home.is_symlink() and _is_java(home)]
    yield from sorted(homes, key=lambda home: (version_of(home) or 0, home.name))


def _is_java(home: Path) -> bool:
    return os.access(home / "bin" / "java", os.X_OK)


def version_of(home: Path) -> int | None:
    """The version of the Java in that folder; None when it does not say."""
    try:
        match = _VERSION.search(privatefiles.read_named(home / "release").decode(errors="replace"))
    except OSError:
        return None
    return int(match[1]) if match else None
