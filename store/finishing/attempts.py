"""Refusals that whoever finishes an operation meets: those that may be none the next time, and those for good."""

from collections.abc import Callable, Iterable

from store.errors import Problem, StoreError
from store.operations.operationrecord import HALF_WAY

#: For now: somebody is at it, there is no room, or part of the store cannot be had. It is tried again.
FOR_NOW = HALF_WAY | {Problem.BUSY, Problem.STORE_IN_USE}


def undone(refusal: StoreError) -> str:
    """What is said of an operation that is refused for good. Raises the refusal, where it is for now."""
    if refusal.problem in FOR_NOW:
        raise refusal
    return f"undone: {refusal.public}"


def each(items: Iterable[str], work: Callable[[str], object]) -> list[str]:
    """Do `work` for each; none stops another. What is said of those that are refused for good; behind the last one the
    first refusal for now is raised."""
    refused, for_now = list[str](), list[Exception]()
    for item in items:
        try:
            work(item)
        except StoreError as refusal:
            if refusal.problem in FOR_NOW:
                for_now.append(refusal)
            else:
                refused.append(f"{item}: left as it is: {refusal.public}")
        except OSError as error:
            for_now.append(error)
    if for_now:
        raise for_now[0]
    return refused
