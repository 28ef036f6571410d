"""What can be wrong with a script: found when it is compiled, or when it runs."""

from attrs import frozen


@frozen(order=True)
class Place:
    """Where something stands in a script: both count from 1; columns are characters."""

    line: int
    column: int

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}"


class ScriptProblem(Exception):
    """The script is no Sieve, or more than is allowed: nothing of it runs."""

    def __init__(self, place: Place, text: str) -> None:
        self.place = place
        self.text = text
        super().__init__(f"{place}: {text}")


class RunProblem(Exception):
    """A run cannot go on: the message is kept in the INBOX (RFC 5228 §2.10.6), and the owner learns of it."""

    def __init__(self, text: str, place: Place | None = None) -> None:
        self.text = text
        self.place = place
        super().__init__(text if place is None else f"{place}: {text}")
