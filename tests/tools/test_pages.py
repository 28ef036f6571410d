"""The pages of the documentation: links lead somewhere, the index has every page, words are in order."""

import re
from pathlib import Path

import pytest

ROOT = next(folder for folder in Path(__file__).parents if (folder / "setup.cfg").exists())
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted(DOCS.rglob("*.md"))]
LONGEST = {"README.md": 150, "docs/architecture.md": 400}          # lines: what is read first stays short


def links(page: Path) -> list[tuple[str, str]]:
    """The file and the heading of each link that does not leave the repository."""
    found = re.findall(r"\]\(([^)#\s]*)(?:#([^)]*))?\)", page.read_text(encoding="utf-8"))
    return [(name, heading) for name, heading in found if "://" not in name]


def anchors(page: Path) -> set[str]:
    """What headings are called in links, as GitHub does it."""
    headings = re.findall(r"^#+ (.*)", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    wrong = []
    for name, heading in links(page):
        target = (page.parent / name).resolve() if name else page
        if not target.exists() or heading and heading not in anchors(target):
            wrong.append(f"{name}#{heading}" if heading else name)
    assert not wrong


def test_the_index_has_every_page() -> None:
    index = {(DOCS / name).resolve() for name, _ in links(DOCS / "README.md")}
    missing = [str(page.relative_to(ROOT)) for page in PAGES if page.resolve() not in index]
    assert missing == ["docs/README.md"]


def test_the_glossary_is_in_order() -> None:
    words = re.findall(r"^\| ([^|]+?) \| ", (DOCS / "glossary.md").read_text(encoding="utf-8"), re.MULTILINE)[1:]
    assert len(words) > 50
    assert words == sorted(words, key=str.lower)


# By which rooms, commands and files are named, and which a reader meets without an explanation
WORDS = """
admission control, app password, audit trail, authentication, batch store, cache rebuild, change board, control client,
control server, damage marks, delivery log, digest, duplicate suppression, file copy, front, header length, import,
interrupted operation, least MODSEQ, listener, live rebuild, mailbox view, orphan, outbox, place of a standby,
prefilter, private header, process registry, rebuild, receiver, reconciliation, record buffers, replacement, role, room,
salvage, settle, snapshot name space, snapshot reader, store.idx, token, transcript, UID skip, user-area scan,
user move, write freeze
"""


def test_the_glossary_has_our_words() -> None:
    rows = re.findall(r"^\| ([^|]+?) \| ", (DOCS / "glossary.md").read_text(encoding="utf-8"), re.MULTILINE)
    words = {word for row in rows for word in row.split(", ")}
    assert set(re.split(r",\s+", WORDS.strip())) - words == set()


@pytest.mark.parametrize(("name", "most"), LONGEST.items())
def test_what_is_read_first_is_short(name: str, most: int) -> None:
    assert len((ROOT / name).read_text(encoding="utf-8").splitlines()) < most


def test_paths_that_pages_name_are_there() -> None:
    """What docs/architecture.md sends a reader to exists."""
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    named = set(re.findall(r"`((?:store|imap|pop3|lmtp|mboxlist|tools|tests|docs)/[\w./-]+(?:\.py|/))`", text))
    assert len(named) > 50
    assert sorted(name for name in named if not (ROOT / name).exists()) == []
