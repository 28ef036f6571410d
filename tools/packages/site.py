"""python -m tools.packages.site FOLDER REPOSITORY: the documentation as a site, of the pages as they are there.

Sphinx with MyST makes it: it reads Markdown as GitHub shows it, nothing that it writes asks another host for anything,
and it is maintained (Material for MkDocs is not, from May 2027 on). Whatever Sphinx warns of, a dead link, a page that
nobody finds, ends it: there is no site then.

Which pages there are, and in which order, docs/README.md says, by reader. The site shows them by kind: what teaches,
what helps with a task, what one looks up, what explains. A page that is in no list here helps with a task.
"""

import io
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from sphinx.application import Sphinx

from store import VERSION

INDEX = "docs/README.md"
TUTORIAL = ("README.md", "docs/first-hour.md")
REFERENCE = ("docs/reference/", "docs/configuration.md", "docs/limits.md", "docs/glossary.md", "docs/quota-report.md",
             "docs/http.md", "docs/events.md", "CHANGELOG.md")
EXPLANATION = ("docs/architecture.md", "docs/durability.md", "docs/single-copy.md", "docs/security.md",
               "docs/sizing.md", "docs/speed.md", "docs/performance.md", "docs/cost-of-reading.md",
               "docs/cost-of-writing.md", "docs/command-cost.md", "docs/testing.md",
               "CONTRIBUTING.md", "SECURITY.md")
KINDS = (("Learn", TUTORIAL), ("Look up", REFERENCE), ("Understand", EXPLANATION))
BESIDE = ("LICENSE",)           # what pages link to
FRONT = """\
# onecopy

A mail store with IMAP, POP3 and LMTP servers, in which a message is kept once, for any number of recipients. These are
its pages by kind; [by reader](docs/README.md) they stand with the question that each of them answers.
"""
SETTINGS = {
    "project": "onecopy", "version": VERSION, "release": VERSION, "copyright": "the authors of onecopy",
    "extensions": ["myst_parser"], "root_doc": "index", "exclude_patterns": ["docs/examples"], "language": "en",
    "myst_heading_anchors": 6, "html_theme": "furo", "html_title": f"onecopy {VERSION}", "html_show_sphinx": False,
    "html_copy_source": False, "html_show_copyright": False, "html_use_index": False, "highlight_language": "none",
}


def main() -> int:
    """The program."""
    folder, root = map(Path, sys.argv[1:])
    complaint = build(root, folder)
    print(complaint or folder, file=sys.stderr if complaint else sys.stdout)
    return 1 if complaint else 0


def build(root: Path, folder: Path) -> str:
    """Make the site of that repository. Returns what was wrong; then there is no site."""
    with tempfile.TemporaryDirectory(prefix="onecopy-site-") as name:
        source, said = Path(name, "source"), io.StringIO()
        collect(root, source)
        shutil.rmtree(folder, ignore_errors=True)
        made = Sphinx(source, None, folder, Path(name, "read"), "html", SETTINGS, status=None, warning=said)
        made.build()
        shutil.rmtree(folder / ".doctrees", ignore_errors=True)
        (folder / ".buildinfo").unlink(missing_ok=True)
    complaint = re.sub(rf"\x1b\[[\d;]*m|{re.escape(str(source))}/", "", said.getvalue())
    if complaint:
        shutil.rmtree(folder)
    return complaint


def collect(root: Path, source: Path) -> None:
    """The pages where they are in the repository, and a front page."""
    shutil.copytree(root / "docs", source / "docs")
    for name in (*(page for page in pages(root) if "/" not in page), *BESIDE):
        shutil.copy(root / name, source / name)
    (source / "index.md").write_text(FRONT + "".join(
        f"\n## {caption}\n\n```{{toctree}}\n:titlesonly:\n" + (":caption: " + caption) + "\n\n" + "\n".join(names)
        + "\n```\n" for caption, names in navigation(root)), "utf-8")


def pages(root: Path) -> dict[str, str]:
    """All pages, as docs/README.md names them, each with the title that it stands under there."""
    found, title = {INDEX: ""}, ""
    for line in (root / INDEX).read_text("utf-8").splitlines():
        if line.startswith("## "):
            title = line[3:]
        elif match := re.match(r"\| \[[^]]*\]\(([^)#]+\.md)\)", line):
            found[os.path.normpath(f"docs/{match[1]}")] = title
    return found


def navigation(root: Path) -> Iterator[tuple[str, list[str]]]:
    """Each kind with its pages: what helps with a task under the title that it has in docs/README.md."""
    every = pages(root)
    of_kind = {caption: [name for begin in begins for name in every if name.startswith(begin)]
               for caption, begins in KINDS}
    placed = {name for names in of_kind.values() for name in names}
    yield "Learn", [INDEX, *of_kind.pop("Learn")]
    for title in dict.fromkeys(every.values()):
        if tasks := [name for name in every if every[name] == title and name not in {INDEX, *placed}]:
            yield title, tasks
    yield from of_kind.items()


if __name__ == "__main__":
    sys.exit(main())
