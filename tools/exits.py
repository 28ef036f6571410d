"""How the program ends when it cannot do what it was asked to do."""

from store.errors import Problem, StoreError


class Failure(Exception):
    """Ends the program with one line and an exit status: 1 for something wrong that was found, 2 for wrong use."""

    def __init__(self, text: str, status: int = 2) -> None:
        super().__init__(text)
        self.status = status


def status(error: StoreError) -> int:
    """The exit status for a refusal of the store."""
    return 2 if error.problem in (Problem.NO_STORE, Problem.STORE_IN_USE) else 1
