"""docs/speed.md: what a command writes stands between two comments that name it; all else is written by hand."""

import os
import platform
import re
import time
from collections.abc import Mapping
from pathlib import Path

from mboxlist import privatefiles
from tools.exits import Failure

PAGE = Path(__file__).resolve().parents[3] / "docs" / "speed.md"


def write_part(page: Path, name: str, content: str, drawings: Mapping[str, str]) -> None:
    """Put this in place of what the command wrote last time, and the drawings, by name, beside the page. A page that
    is not there is made. Raises Failure."""
    begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
    part = f"{begin}\n\n{content.strip()}\n\n{end}"
    if page.exists():
        before = privatefiles.read_text(page)
        if not re.search(f"{begin}.*{end}", before, re.DOTALL):
            raise Failure(f"{page}: the comments \"{begin}\" and \"{end}\" are missing", 1)
        after = re.sub(f"{begin}.*{end}", lambda _: part, before, flags=re.DOTALL)
    else:
        after = f"# Speed\n\n{part}\n"
    if drawings:
        privatefiles.make_folder(page.parent / "speed", exist_ok=True)
    for drawn, svg in drawings.items():
        privatefiles.write(page.parent / "speed" / f"{drawn}.svg", svg)
    privatefiles.write(page, after)


def machine() -> str:
    """What it ran on, in a few words."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / (1 << 30)
    return (f"{os.cpu_count()} cores, {memory:.0f} GiB of memory, Linux {platform.release()}, Python "
            f"{platform.python_version()}")


def day() -> str:
    """Today's date."""
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
