"""What a start found wrong with the databases in one folder, and did about it."""

from attrs import define, field


@define
class Event:
    """What happened to one environment. `lost`: tables that could not be used, and why; `missing`: what is not there
    any more, for people; `exact`: nothing is."""

    environment: str
    found: str
    source: str = ""
    exact: bool = False
    logs_lost: bool = False
    lost: dict[str, str] = field(factory=dict)
    aside: str = ""
    missing: list[str] = field(factory=list)
