"""What an administrator can choose about Sieve."""

from pathlib import Path

from attrs import frozen
from attrs.validators import ge, in_, le

from store.accounts.sieverules import MOST_SCRIPTS
from store.sieve.scriptlimits import DEFAULT
from store.values import setting

SENDERS = ("sender", "recipient", "null")


def _score(value: str) -> None:
    try:
        positive = float(value) > 0
    except ValueError:
        positive = False
    if not positive:
        raise ValueError("must be a number above 0, such as 15 or 7.5")


@frozen
class Settings:
    """Settings of Sieve. Those in `sieverules.READERS` can be others for a user or a domain: see `usersettings`."""

    enabled: bool = setting(True, "whether scripts run when mail is delivered")
    folder: Path | None = setting(None, "folder of the site's scripts: before.sieve and after.sieve run before and "
                                  "after each user's, default.sieve for users without one; DOMAIN/before.sieve and so "
                                  "on for one domain; include/NAME.sieve for `include :global`")
    own: bool = setting(True, "whether users may have scripts of their own, by ManageSieve, and these run; if not, "
                        "only what the site has put runs: the directory's script, and those in the folder")
    scripts: int = setting(32, "scripts that a user may keep", validator=[ge(0), le(MOST_SCRIPTS)])
    script_size: int = setting(DEFAULT.script, "octets of a script that a user keeps", type="size",
                               validator=[ge(0), le(DEFAULT.script)])
    imap_script: str = setting("", "the script that runs after APPEND, COPY and changes of flags (RFC 6785) in each "
                               "mailbox whose annotation /shared/imapsieve/script names none: imap/NAME.sieve of "
                               "sieve.folder, else the owner's of that name")
    redirects: int = setting(5, "addresses to which one message may be sent on by one user's scripts; 0: none",
                             validator=ge(0))
    hourly: int = setting(500, "messages that the scripts of one user send in an hour (redirect, vacation, notify), in "
                          "each process; what would be sent on is kept then; 0: any number", validator=ge(0))
    creations: int = setting(100, "mailboxes that the scripts of one user make in a day, with :create; what would go "
                             "to more of them goes to the INBOX; 0: none", validator=ge(0))
    redirect_sender: str = setting("sender", "envelope sender of what is sent on: sender (of the message), recipient "
                                   "(the user's address), null", validator=in_(SENDERS))
    lists: tuple[str, ...] = setting((), "groups that all scripts may ask about (:list), beside those that the user is "
                                     "in, as access control lists name them")
    vacation: bool = setting(True, "whether vacation answers")
    vacation_least: int = setting(86_400, "time within which a sender gets one answer at most, whatever a script says",
                                  type="duration")
    spam_header: str = setting("X-Spam-Score", "header field with the score that the filter in front has given")
    spam_most: str = setting("15", "the score at which a message is surely spam, for the test spamtest", check=_score)
    virus_header: str = setting("X-Virus-Status", "header field in which the scanner in front says Clean or Infected")
