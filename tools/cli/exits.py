"""How the program ends when it cannot do what it was asked to do."""


class Failure(Exception):
    """Ends the program with one line and an exit status: 1 for something wrong that was found, 2 for wrong use."""

    def __init__(self, text: str, status: int = 2) -> None:
        super().__init__(text)
        self.status = status
