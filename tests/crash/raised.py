"""What the product raises is a finding; a fault of these tests, and whoever stops them, is none."""

import traceback
from pathlib import Path

from tests.support import ROOT

TESTS = ROOT / "tests"
SLIPS = (TypeError, AttributeError, NameError, ImportError)      # what a slip of the pen raises


def raised(what: str, error: Exception) -> str:
    """The finding `what`, with the end of the traceback. Raises the error itself when it is a slip in tests/: an
    expected finding could hide that."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [Path(frame.filename) for frame in frames if Path(frame.filename).is_relative_to(ROOT)
            and ".venv" not in frame.filename]
    if ours and ours[-1].is_relative_to(TESTS) and isinstance(error, SLIPS):
        raise error
    return f"{what}: {''.join(traceback.format_exception(error, limit=-4))}"
