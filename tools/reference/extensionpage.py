"""Every extension of IMAP."""

from collections.abc import Iterator

from imap.capabilities import AFTER_LOGIN, BASE, SOMETIMES
from tools.reference.markdown import anchored, cell, page, table

_WRITTEN = ("Written by `onecopy man --markdown docs/reference` from the tables in `imap/capabilities.py` and "
            "`tools/reference/extensionpage.py`.")
_WHERE = ("The names are those of CAPABILITY. [clients.md](../clients.md) says what a mail program may wonder about, "
          "[limits.md](../limits.md) what is not there.")
_ALWAYS, _LATER, _SOMETIMES = "always", "after login", "see the note"
NOTES = {
    "IMAP4rev1": "", "IMAP4rev2": "changes answers of a client that enables it",
    "LITERAL+": "literals of any size without waiting for the server, within the limits of a command; so LITERAL- is "
                "not announced",
    "SASL-IR": "AUTHENTICATE with its first response in the same line",
    "ID": "x-originating-ip of a proxy in login.proxy_networks is believed",
    "ACL": "users, group:NAME, anyone, and negative rights; owners always have `a`",
    "BINARY": "parts without their transfer encoding; NUL comes back as it was stored",
    "CHILDREN": "", "CONDSTORE": "", "CREATE-SPECIAL-USE": "", "ENABLE": "",
    "ESEARCH": "", "ESORT": "RETURN of SORT; contexts (UPDATE, PARTIAL) are not there",
    "I18NLEVEL=1": "SEARCH, SORT and THREAD compare by i;unicode-casemap",
    "IDLE": "", "INPROGRESS": "commands that take long say how far they are", "LIST-EXTENDED": "", "LIST-MYRIGHTS": "",
    "LIST-STATUS": "", "METADATA": "annotations of mailboxes; those of the server say which script runs on events",
    "MOVE": "all messages or none", "MULTIAPPEND": "all messages or none",
    "NAMESPACE": "own mailboxes, those of other users below `user/`, public ones below `public/`",
    "QRESYNC": "expunged UIDs are kept in `vanished.db`", "QUOTA": "roots are those of users and of mailboxes",
    "QUOTA=RES-MESSAGE": "", "QUOTA=RES-STORAGE": "", "RIGHTS=kxte": "", "SEARCHRES": "",
    "SORT": "", "SORT=DISPLAY": "", "SPECIAL-USE": "", "STATUS=SIZE": "", "THREAD=ORDEREDSUBJECT": "",
    "THREAD=REFERENCES": "", "UIDPLUS": "", "UNAUTHENTICATE": "", "UNSELECT": "",
    "UTF8=ACCEPT": "changes answers of a client that enables it", "WITHIN": "YOUNGER and OLDER in SEARCH",
    "APPENDLIMIT": "after login, with store.message_limit as its value",
    "AUTH": "before login: a capability for each mechanism that can be used there (AUTH=PLAIN)",
    "IMAPSIEVE": "after login, with the URL of ManageSieve (imap.sieve_url)",
    "LOGIN-REFERRALS": "where store.host is set, unless imap.referrals is off",
    "LOGINDISABLED": "before login, where no password is taken without TLS",
    "QUOTASET": "after login, to users in imap.admins, who alone may set limits",
    "STARTTLS": "before login, on a connection without TLS",
}


def lines() -> Iterator[str]:
    """The page."""
    yield from page("Every extension of IMAP", _WRITTEN, _WHERE)
    yield ""
    every = {name.decode(): (number, when) for names, when in (
        (BASE, _ALWAYS), (AFTER_LOGIN, _LATER), (SOMETIMES, _SOMETIMES)) for name, number in names.items()}
    yield from table(("capability", "RFC", "announced", "note"), (
        (anchored(name, name), f"[{number}](https://www.rfc-editor.org/rfc/rfc{number})", when, cell(NOTES[name]))
        for name, (number, when) in sorted(every.items(), key=lambda item: item[0].upper())))
