"""What a look at a deployment finds."""

from attrs import frozen


@frozen
class Advice:
    """`about`: an option, or what was looked at; `serious`: mail is lost, refused or not read because of it, or will
    be; `do`: what to do about it, "" where `text` says so."""

    about: str
    serious: bool
    text: str
    do: str
