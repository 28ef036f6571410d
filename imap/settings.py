"""What an administrator can choose about IMAP, and every limit of a session."""

import re
from functools import lru_cache

from attrs import evolve, frozen
from attrs.validators import ge

from imap.wire.commandlimits import STRICT, Limits
from store.net.admission import LoginAdmissionSettings
from store.values import setting

_SIEVE_URL = re.compile(r"sieve://[A-Za-z0-9.-]+(?::[0-9]{1,5})?")


def _is_sieve_url(value: str) -> None:
    """RFC 5804 §3: a server, as far as it can stand in a capability."""
    if value and _SIEVE_URL.fullmatch(value) is None:
        raise ValueError("must be like sieve://sieve.example.org:4190")


@frozen
class Settings(LoginAdmissionSettings):
    """Settings of the IMAP server; sizes in octets, times in seconds."""

    line_limit: int = setting(64 << 10, "octets of a command line", type="size")
    literal_limit: int = setting(64 << 10, "octets of a literal other than APPEND's message", type="size")
    early_line_limit: int = setting(
        64 << 10, "the same for lines before login, where ID may have 30 fields of 1,024 octets", type="size")
    early_literal_limit: int = setting(1 << 10, "the same for literals before login", type="size")
    command_time: int = setting(300, "time without progress in the middle of a command or an answer", type="duration")
    idle_time: int = setting(   # RFC 3501 §5.4
        1800, "time between two commands before the connection is ended", type="duration", validator=ge(1800))
    login_attempts: int = setting(5, "failed logins before the connection is ended")
    bad_commands: int = setting(25, "bad commands in a row before the connection is ended")
    referrals: bool = setting(True, "where store.host is set: tell clients that have proved who they are which back "
                              "end keeps their mail (RFC 2221); no: where clients cannot reach back ends")
    mailbox_referrals: bool = setting(False, "with referrals: tell users also which back end keeps the mail of one "
                                      "whose mailbox they name (RFC 2193); so any of them can find out who else there "
                                      "is, and where")
    admins: str = setting("", "user ids of those who may set quotas over IMAP, with spaces or commas between them")
    eight_bit_headers: bool = setting(True, "let APPEND take headers with octets above 127 from clients that have not "
                                      "enabled UTF8=ACCEPT, as those that copy old mail have to; RFC 6855 forbids it")

    sieve_url: str = setting("", "where clients find ManageSieve, as sieve://HOST or sieve://HOST:PORT; they hear of "
                             "it as IMAPSIEVE (RFC 6785); empty: this host, if managesieve.port is set",
                             check=_is_sieve_url)

    time_travel: str = setting("", "who may look into snapshots, below #snapshots/: user ids, group:NAME, anyone, and "
                               "with a - before it who may not, with spaces or commas between them; empty: nobody")

    @property
    def travellers(self) -> frozenset[str]:
        """`time_travel`, one by one."""
        return frozenset(self.time_travel.replace(",", " ").split())

    @property
    def administrators(self) -> frozenset[str]:
        """`admins`, one by one."""
        return frozenset(self.admins.replace(",", " ").split())

    def limits(self, *, logged_in: bool) -> Limits:
        """What one command may take."""
        if not logged_in:
            return _early_limits(self.early_line_limit, self.early_literal_limit)
        return Limits(line=self.line_limit, literal=self.literal_limit, memory=2 * self.literal_limit)


@lru_cache(maxsize=8)
def _early_limits(line: int, literal: int) -> Limits:
    return evolve(STRICT, line=line, literal=literal, memory=32 * literal)
