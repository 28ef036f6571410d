"""What an administrator can choose about ManageSieve."""

from attrs import frozen
from attrs.validators import ge

from store.net.admission import LoginAdmissionSettings
from store.values import setting


@frozen
class Settings(LoginAdmissionSettings):
    """Settings of the ManageSieve server; sizes in octets, times in seconds."""

    line_limit: int = setting(8 << 10, "octets of a line of a command", type="size", validator=ge(2048))
    swallow_limit: int = setting(16 << 20, "octets of a script that is too large which are read and dropped before the "
                                 "connection is ended", type="size")
    idle_time: int = setting(   # RFC 5804 §1.4
        1800, "time between two commands before the connection is ended", type="duration", validator=ge(1800))
    send_time: int = setting(300, "time in which a client takes nothing of an answer before the connection is ended",
                             type="duration")
    login_attempts: int = setting(3, "failed logins before the connection is ended", validator=ge(1))
    bad_commands: int = setting(20, "bad commands in a row before the connection is ended", validator=ge(1))
