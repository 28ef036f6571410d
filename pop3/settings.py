"""What an administrator can choose about POP3, and every limit of a session."""

from attrs import field, frozen
from attrs.validators import ge


@frozen
class Settings:
    """Settings of the POP3 server; sizes in octets, times in seconds."""

    plaintext_login: bool = field(default=False, metadata={
        "help": "allow passwords without TLS from other hosts (from this host they always are)"})
    mark_seen: bool = field(default=False, metadata={
        "help": r"set \Seen on messages that were retrieved, so that IMAP clients show them as read"})
    line_limit: int = field(default=510, validator=ge(253), metadata={          # RFC 2449 §4
        "help": "octets of a command line", "type": "size"})
    response_limit: int = field(default=4096, validator=ge(1024), metadata={    # three names or passwords, in base64
        "help": "octets of a client's line in an exchange that AUTH began", "type": "size"})
    login_time: int = field(default=180, metadata={"help": "time a client has to log in", "type": "duration"})
    idle_time: int = field(default=600, validator=ge(600), metadata={           # RFC 1939 §3
        "help": "time between two commands before the connection is ended", "type": "duration"})
    send_time: int = field(default=300, metadata={
        "help": "time in which a client takes nothing of an answer before the connection is ended", "type": "duration"})
    login_attempts: int = field(default=3, validator=ge(1), metadata={
        "help": "failed logins before the connection is ended"})
    bad_commands: int = field(default=20, validator=ge(1), metadata={
        "help": "bad commands in a row before the connection is ended"})
    connections: int = field(default=10_000, metadata={"help": "connections in all"})
    connections_per_address: int = field(default=1000, metadata={"help": "connections from one address"})
