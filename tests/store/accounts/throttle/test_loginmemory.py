"""The lock of the memory about logins: among threads of one process (among processes: test_slowdown)."""

import threading

import pytest

from store.accounts.throttle.loginmemory import LoginMemory, Part


@pytest.mark.parametrize("make", [LoginMemory.shared, LoginMemory.private])
def test_threads_of_one_process_change_a_part_one_after_another(make):
    """The kernel's lock is the process's: a second thread would get it, too, and free it for both (fcntl(2))."""
    memory, order = make(), []

    def other() -> None:
        with memory.locked(Part.FAILURES):
            order.append("other")

    thread = threading.Thread(target=other)
    with memory.locked(Part.FAILURES):
        thread.start()
        thread.join(0.05)
        order.append("first")
    thread.join()
    assert order == ["first", "other"]


def test_who_has_one_part_keeps_nobody_from_another():
    memory = LoginMemory.shared()
    with memory.locked(Part.FAILURES), memory.locked(Part.FORMER):
        pass

