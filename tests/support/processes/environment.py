"""The environment of tests, and of the processes that they start: nothing in it is the host's own configuration."""

import os

PLAIN = {"ONECOPY_CONFIG": os.devnull}      # else ./onecopy.toml is read, or /etc/onecopy/onecopy.toml


def plain() -> dict[str, str]:
    """The variables of this process, without options of `onecopy`."""
    return {name: value for name, value in os.environ.items() if not name.startswith("ONECOPY_")} | PLAIN


def forget_the_host() -> None:
    """No option of `onecopy` comes from outside into this process, or into those that it starts."""
    variables = plain()
    os.environ.clear()
    os.environ.update(variables)
