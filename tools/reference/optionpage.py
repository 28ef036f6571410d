"""Every option of the configuration."""

from collections.abc import Collection, Iterator

from tools.cli import options
from tools.cli.manpages import INTRODUCTIONS
from tools.reference.markdown import anchored, cell, code, page, table

_WRITTEN = ("Written by `onecopy man --markdown docs/reference` from the texts that `--help` shows: change those, not "
            "this page.")
_WHERE = (f"An option such as `imap.port` stands in `{options.FILE_NAME}` as `port` below `[imap]`, in the "
          "environment as `ONECOPY_IMAP_PORT`, and on the command line as `--imap-port`. Reload: a running server "
          "takes over a new value at `onecopy config reload`; the others need a restart. "
          "[configuration.md](../configuration.md) says what a site must set, and which page is about what.")


def lines(reloaded: Collection[str]) -> Iterator[str]:
    """The page. Each option is an anchor by its name: options.md#imap.port."""
    yield from page("Every option", _WRITTEN, _WHERE)
    for section in ("", *options.SECTIONS):
        yield from ("", f"## Section {section}" if section else "## Outside of sections", "",
                    *([INTRODUCTIONS[section], ""] if section in INTRODUCTIONS else []))
        yield from table(("option", "default", "reload", "what it is"), (
            (anchored(option.name, code(option.name)), code(option.show(option.default)),
             "yes" if option.name in reloaded else "", cell(option.help))
            for option in options.section(section).values()))
