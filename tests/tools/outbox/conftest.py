"""Receivers in the place of web hooks and files, and a clock that the test moves."""

from typing import Any

import pytest
from twisted.internet.task import Clock

from tests.support.servers.outboxreceivers import Place
from tools.outbox import sendall
from tools.outbox.outboxsettings import Settings


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch) -> dict[str, Place]:
    found: dict[str, Place] = {}

    def made(settings: Settings, _reactor: Any) -> Place:
        return found.setdefault(settings.to, Place())

    monkeypatch.setattr(sendall, "_MADE", dict.fromkeys(("https", "file"), made))
    return found


@pytest.fixture
def clock() -> Clock:
    return Clock()
