"""What SASL mechanisms say, apart from how each protocol carries it (RFC 4422)."""

from attrs import frozen

from store.values import Secret


@frozen
class Plain:
    """A message of PLAIN (RFC 4616 §2): who logs in, with which password, and as whom ("": as the same)."""

    acts_as: str
    user: str
    password: Secret

    @classmethod
    def from_bytes(cls, message: bytes) -> "Plain":
        """[authzid] NUL authcid NUL passwd. Raises ValueError, whose text may be shown to the client."""
        parts = message.split(b"\0")
        if len(parts) != 3 or not parts[1] or not parts[2]:
            raise ValueError("That is not a message of PLAIN")
        try:
            return cls(parts[0].decode(), parts[1].decode(), Secret(parts[2]))
        except UnicodeDecodeError:
            raise ValueError("The names of PLAIN are UTF-8") from None

    @property
    def for_another(self) -> bool:
        """Whether the client wants to act as somebody else than it logs in as."""
        return self.acts_as not in ("", self.user)
