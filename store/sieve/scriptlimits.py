"""How much a script may be, do and look at. RFC 5228 §2.10.5, §10 let an implementation set these."""

from attrs import frozen


@frozen
class Limits:
    """Limits of scripts and of one run. Sizes are in octets for what stands in mail, in characters for strings."""

    script: int = 63 << 10              # octets of a script; with its name it is an annotation (`mboxlist.annotations`)
    nesting: int = 32                   # of blocks and tests (RFC 5228 §2.10.5 asks for 15)
    nodes: int = 10_000                 # commands and tests of one script
    string: int = 64 << 10              # characters of a value that a run makes
    steps: int = 20_000                 # commands, tests and values compared
    octets: int = 16 << 20              # characters that tests of a run look at
    variables: int = 256                # that a run sets (RFC 5229 §6 asks for 128)
    include_depth: int = 8              # of scripts that include one another (RFC 6609 §3.1 asks for 3)
    included: int = 64                  # scripts that a run includes
    redirects: int = 5                  # addresses that a run sends the message to
    actions: int = 64
    notices: int = 4                    # notifications of a run
    body: int = 1 << 20                 # octets of a message whose text `body` and `extracttext` look at
    rewritten: int = 32 << 20           # octets of a message of which a script changes more than fields on top
    lookups: int = 50                   # members and lists that a run asks the directory about (RFC 6134)
    parts: int = 500                    # MIME parts that a run looks at


DEFAULT = Limits()
