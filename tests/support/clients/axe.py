"""axe-core, the checker of accessibility, in a page: `tools/packages/npm.list` names its version."""

import sys
from pathlib import Path
from typing import Any

from tests.support import ROOT
from tests.support.clients.chromium import Browser

SERIOUS = ("serious", "critical")


def script() -> str:
    """Its text. Raises AssertionError where it is not unpacked."""
    package, version, file = next(line.split()[:3] for line in (
        ROOT / "tools" / "packages" / "npm.list").read_text().splitlines() if line.startswith("axe-core "))
    path = Path(sys.prefix) / "unpacked" / f"{package}-{version}" / file
    assert path.is_file(), f"{path} is missing: tools/test unpacks it"
    return path.read_text(encoding="utf-8")


def violations(browser: Browser) -> list[str]:
    """What is serious or critical in the page, with where it is. The debugger puts the script there, so that the page's
    own policy on scripts stays as it is."""
    browser.value(script() + ";0")
    found: list[dict[str, Any]] = browser.value(
        "axe.run(document, {resultTypes: ['violations']}).then(found => found.violations)", wait=True)
    return [f"{each['id']} ({each['impact']}): {node['html'][:200]}" for each in found if each["impact"] in SERIOUS
            for node in each["nodes"]]
