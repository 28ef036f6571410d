"""What is done to the lines of a session, whatever its protocol: `choices` say what, `at` where.

A line is its octets, or a tuple that ends with them.
"""


def remove(choices, lines, at):
    """Some lines are missing."""
    del lines[at:at + 1 + choices.below(3)]


def repeat(choices, lines, at):
    """A line comes several times."""
    lines[at:at] = lines[at:at + 1] * (1 + choices.below(20))


def exchange(choices, lines, at):
    """Two lines change their places."""
    lines[at:at + 2] = lines[at:at + 2][::-1]


def spliced(scripts):
    """A change: it goes on as another one of these."""
    def splice(choices, lines, at):
        other = choices.one(scripts)
        lines[at:] = other[choices.below(len(other)):]

    return splice


def spoil(choices, lines, at):
    """An octet is another one, or there is one more."""
    for line in lines[at:at + 1]:
        octets = _octets(line)
        cut = choices.below(len(octets) + 1)
        lines[at] = _with(line, octets[:cut] + bytes((choices.below(256),)) + octets[cut + choices.below(2):])


def shorten(choices, lines, at):
    """A line is not whole."""
    for line in lines[at:at + 1]:
        octets = _octets(line)
        lines[at] = _with(line, octets[:choices.below(len(octets) + 1)])


def _octets(line):
    return line[-1] if isinstance(line, tuple) else line


def _with(line, octets):
    return (*line[:-1], octets) if isinstance(line, tuple) else octets
