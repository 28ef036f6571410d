"""Functions whose module is loaded when they are called: what a start would wait for, and most commands do without.

This is the one way in tools to load something late. tests/test_layers.py reads the places as it reads imports.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from attrs import frozen


@frozen
class Later:
    """A function at "module:name". `first` is called before its module is loaded, without arguments: it raises Failure
    where that could not be loaded."""

    place: str
    first: str = ""

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        if self.first:
            self.function(self.first)()
        return self.function(self.place)(*arguments, **named)

    @staticmethod
    def function(place: str) -> Callable[..., Any]:
        """What is at that place."""
        module, _, name = place.partition(":")
        found: Callable[..., Any] = getattr(import_module(module), name)
        return found
