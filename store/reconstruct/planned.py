"""A reconstruct by the plan of a rebuild."""

from pathlib import Path

from store.filelock import scratch
from store.mend.correctionrounds import mend
from store.partition.marks import is_down
from store.rebuild.outcome import Outcome
from store.reconstruct.request import Request
from store.reconstruct.wholestore import accounts


def make(request: Request) -> Outcome:
    """Write the plan, and change nothing. Raises Refused, StoreError, OSError."""
    assert request.plan is not None
    return request.planner().make(request, request.plan)


def apply(request: Request) -> Outcome:
    """Do what a plan says. Raises Refused, StoreError, OSError."""
    assert request.apply is not None
    return _apply(request, request.apply)


def make_and_apply(request: Request) -> Outcome:
    """Write a plan beside the store, and do what it says. Raises Refused, StoreError, OSError."""
    down = is_down(request.root)
    with scratch(request.root, "plan") as folder:
        outcome = request.planner().make(request, folder)
        if not (down and request.check):
            outcome = _apply(request, folder)
    if not request.check and not request.partition:
        with request.open_store() as store:
            outcome.left.clear()        # the rounds say what is left in the end
            mend(store, request.faults, outcome)
    return outcome


def _apply(request: Request, folder: Path) -> Outcome:
    if request.check or not is_down(request.root):
        return request.planner().apply(request, folder, [])
    users = accounts(request)
    with request.making():
        return request.planner().apply(request, folder, users)
