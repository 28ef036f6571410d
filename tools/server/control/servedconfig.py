"""The configuration that the running server goes by: not what its files say since, nor what a command was given."""

from collections.abc import Mapping
from typing import Any

from attrs import evolve

from tools.cli.controlclient import ask_all
from tools.cli.options import ROOT, Config, option


def served(config: Config) -> Config | None:
    """That of the server of the store that `config` names; None where none runs, or answers. Raises Failure."""
    found: Mapping[str, Any] | None = next(iter(ask_all(config.root, "config").values()), None)
    if found is None:
        return None
    values: dict[str, object] = {}
    for name, text in found["values"].items():
        known = option(name)
        if known is not None and name != ROOT.name and text != known.show(known.default):
            try:
                values[name] = known.read(text)
            except ValueError:                  # of a server of another version
                continue
    return evolve(config, values=values, origins=dict.fromkeys(values, "the running server")).at(config.root)


def differing(ours: Config, theirs: Config) -> list[str]:
    """The options of which the two have different values."""
    names = {*ours.values, *theirs.values} - {ROOT.name}
    return sorted(name for name in names if ours.values.get(name) != theirs.values.get(name))
