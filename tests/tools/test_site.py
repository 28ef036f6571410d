"""The documentation as a site: everything is in it and can be reached, and nothing in it asks another host."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.support import ROOT
from tools.cli import options
from tools.cli.commandtree import tree
from tools.packages import site
from tools.server.metrics.metriclist import METRICS, PREFIX

NAMES = {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xhtml", "http://www.w3.org/1999/xlink"}  # of languages
LOADED = {"link": "href", "script": "src", "img": "src", "iframe": "src", "source": "src", "object": "data",
          "embed": "src", "video": "src", "audio": "src", "form": "action"}


class Read(HTMLParser):
    """What a page has: anchors, links, what a browser loads for it, and scripts and styles within."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors, self.links, self.loaded, self.within = set[str](), list[str](), list[str](), ""
        self._within = False
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if given.get(LOADED.get(tag, "")) and given.get("rel") not in ("index", "search", "next", "prev"):
            self.loaded.append(given[LOADED[tag]])
        self.within += given.get("style", "")
        self._within = tag in ("script", "style")

    def handle_data(self, data: str) -> None:
        if self._within:
            self.within += data

    def handle_endtag(self, tag: str) -> None:
        self._within = False


def make(folder: Path, *, root: Path = ROOT) -> "subprocess.CompletedProcess[str]":
    """As tools/docs does, of that repository."""
    return subprocess.run([sys.executable, "-m", "tools.packages.site", folder, root], text=True, cwd=ROOT,
                          env={**os.environ, "http_proxy": "http://127.0.0.1:9/"}, capture_output=True,
                          check=False)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("documentation") / "site"
    done = make(folder)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{folder}\n", "")
    return folder


@pytest.fixture(scope="module")
def read(built: Path) -> dict[Path, Read]:
    return {path: Read(path) for path in built.rglob("*.html")}


def test_every_page_is_there_and_found_from_the_front_page(built: Path, read: dict[Path, Read]) -> None:
    every = {(built / page).with_suffix(".html") for page in site.pages(ROOT)}
    assert len(every) > 40 and every <= read.keys()
    assert {built / "docs" / path.relative_to(ROOT / "docs").with_suffix(".html")
            for path in (ROOT / "docs").rglob("*.md")} <= every
    front = {(built / link.partition("#")[0]).resolve() for link in read[built / "index.html"].links}
    assert every <= front
    named = [name for _, names in site.navigation(ROOT) for name in names]
    assert sorted(named) == sorted(site.pages(ROOT))


def test_no_link_is_dead(built: Path, read: dict[Path, Read]) -> None:
    dead, seen = [], 0
    for path, page in read.items():
        for link in page.links + page.loaded:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            seen += 1
            anchors = read[target].anchors if target in read else {""}
            if not target.is_file() or parts.fragment and unquote(parts.fragment) not in anchors:
                dead.append(f"{path.relative_to(built)}: {link}")
    assert dead == []
    assert seen > 1000


def test_every_option_can_be_linked_to(built: Path, read: dict[Path, Read]) -> None:
    """Those of the configuration, of each command, and each metric."""
    folder = built / "docs" / "reference"
    assert read[folder / "options.html"].anchors > options.table().keys()
    assert read[folder / "metrics.html"].anchors > {PREFIX + metric.name for metric in METRICS}
    commands = read[folder / "commands.html"].anchors
    of_commands = {node.name.replace(" ", "-") + word for node in tree().walk() for action in node.actions
                   for word in action.option_strings[-1:]}
    assert commands > of_commands and len(of_commands) > 300
    assert commands > {"onecopy-" + node.name.replace(" ", "-") for node in tree().walk()}


def test_nothing_is_asked_of_another_host(built: Path, read: dict[Path, Read]) -> None:
    asked = [(path, link) for path, page in read.items() for link in page.loaded
             if urlsplit(link).netloc or urlsplit(link).scheme not in ("", "data")]
    texts = {path: page.within for path, page in read.items()}
    texts |= {path: path.read_text("utf-8") for path in built.rglob("*")
              if path.suffix in (".css", ".js", ".svg") and path.name != "searchindex.js"}
    for path, text in texts.items():
        text = re.sub(r"/\*.*?\*/|(?m:^\s*//.*$)", "", text, flags=re.DOTALL)
        asked += [(path, name) for name in re.findall(r"(?:https?:|[\"'(])//[\w.-]+[^\s\"')]*", text)
                  if name not in NAMES]
    assert asked == []
    assert len(texts) > len(read) + 10
    assert (built / "searchindex.js").stat().st_size > 100_000


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A repository of three pages."""
    root = tmp_path / "repository"
    (root / "docs").mkdir(parents=True)
    (root / "LICENSE").write_text("free")
    (root / "README.md").write_text("# One\n\n[there](docs/two.md#further)\n")
    (root / "docs" / "README.md").write_text("# All\n\n## Run it\n\n| [README](../README.md) | what? |\n"
                                             "| [two.md](two.md) | how? |\n")
    (root / "docs" / "two.md").write_text("# Two\n\n## Further\n\n- a list of `a|b`\n")
    return root


def test_a_small_one_is_made(small: Path, tmp_path: Path) -> None:
    done = make(tmp_path / "site", root=small)
    assert (done.returncode, done.stderr) == (0, "") and (tmp_path / "site" / "index.html").exists()


def test_what_is_wrong_is_named_and_leaves_no_site(small: Path, tmp_path: Path) -> None:
    """A part, a page and a picture that are not there, and a page that is in no list."""
    (small / "docs" / "two.md").write_text("# Two\n\n[gone](three.md)\n\n![gone](three.png)\n")
    (small / "docs" / "four.md").write_text("# Four\n")
    done = make(tmp_path / "site", root=small)
    for complaint in ("local id not found", "three.md", "three.png", "docs/four.md", "toctree"):
        assert complaint in done.stderr
    assert done.returncode == 1 and not (tmp_path / "site" / "index.html").exists()


def test_the_site_is_not_committed() -> None:
    assert "/site/" in (ROOT / ".gitignore").read_text().splitlines()
