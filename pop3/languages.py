"""The languages that the server speaks (RFC 6856 §3): there is one."""

LANGUAGES = {"en": "English"}           # the tag (RFC 5646), and what it is called in itself
LISTING = [f"{tag} {name}" for tag, name in LANGUAGES.items()]
PREFERRED = "en"


def match(wanted: str) -> str | None:
    """The tag of the language that comes nearest to a range in lower case (RFC 4647 §3.4); None if there is none."""
    if wanted == "*":
        return PREFERRED
    while wanted not in LANGUAGES and wanted:
        wanted = wanted.rpartition("-")[0]
    return wanted or None
