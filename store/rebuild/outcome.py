"""What was found wrong, what has been done about it, and what is left to do."""

from attrs import define, field, frozen

from store.values import Finding


@frozen
class Correction:
    """What was wrong and has been put right, or could not be, and where."""

    what: str
    where: str


@define
class Outcome:
    """What was made or looked at; what was put right (or would be), what was left as it is, and what cannot be repaired
    by it."""

    mailboxes: int = 0
    records: int = 0
    messages: int = 0
    corrections: list[Correction] = field(factory=list)
    left: list[Finding] = field(factory=list)
    findings: list[Finding] = field(factory=list)

    def add(self, other: "Outcome") -> None:
        """That was done, too."""
        self.mailboxes += other.mailboxes
        self.records += other.records
        self.messages += other.messages
        self.corrections += other.corrections
        self.left += other.left
        self.findings += other.findings


@define
class Event:
    """What happened to one environment. `lost`: tables that could not be used, and why; `missing`: what is not there
    any more, for people; `exact`: nothing is. `complete`: all that was committed until then (Unix time, in
    nanoseconds) is in the tables that are left."""

    environment: str
    found: str
    source: str = ""
    exact: bool = False
    logs_lost: bool = False
    lost: dict[str, str] = field(factory=dict)
    aside: str = ""
    missing: list[str] = field(factory=list)
    complete: int = 0
