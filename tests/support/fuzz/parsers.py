"""A target of the fuzzer for functions that read or write octets: each input says which of them gets it."""

from attrs import define

from tests.support.fuzz.steps import counted

LONGEST = 600           # octets of an input
SAMPLE = 500            # of so many inputs one has its steps counted


@define
class Parsers:
    """See `tests.support.fuzz.driver`. `examined` are functions of octets and a number below 256, which raise when
    something is wrong; `corpus` makes the inputs to begin with.

    `places` are where steps are counted; `steps` how many an input may take, and how many for each of its octets.
    """

    examined: tuple
    words: tuple
    corpus: object
    places: tuple
    steps: tuple
    kept: int
    longest: int = LONGEST

    def begin(self):
        """Nothing to prepare."""

    def examine(self, data):
        """The first octet of an input says what gets the rest, the second one how, or where it is cut."""
        if len(data) >= 2:
            self.examined[data[0] % len(self.examined)](data[2:], data[1])

    def run(self, data, number):
        """One input."""
        if number % SAMPLE:
            self.examine(data)
        else:
            counted(self.places, self.steps[0] + self.steps[1] * len(data), self.examine, data)

    def end(self):
        """What else there is to tell."""
        return f"{len(set(self.examined))} parsers"
