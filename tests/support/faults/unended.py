"""What a test leaves without an end: a coroutine that nobody waits for, and a transaction of Berkeley DB that nobody
commits or aborts.

Python warns of both when it collects them as garbage: mostly at once, and else in a later test. `filterwarnings` cannot
make errors of them: an object is being freed then, and no exception can be raised. So the run fails, and its summary
names the tests.
"""

import re
import warnings

import pytest
from attrs import define, field

LEFT = re.compile(r"coroutine .* was never awaited|DBTxn aborted in destructor")


@define(eq=False)
class Unended:
    """A plug-in of pytest: lines of what was left, in a run and all of its processes."""

    lines: list[str] = field(factory=list)

    def pytest_warning_recorded(self, warning_message: warnings.WarningMessage, nodeid: str) -> None:
        """Of any process of the run."""
        if LEFT.match(text := str(warning_message.message)):
            self.lines.append(f"{nodeid}: {text.splitlines()[0]}")

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """The run has failed."""
        if self.lines and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Which tests they were."""
        if self.lines:
            terminalreporter.section("left without an end, by this test or one before it: the run has failed", red=True)
            for line in self.lines:
                terminalreporter.line(line)
