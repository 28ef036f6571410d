"""Who may deliver: trusted networks, client certificates, relays that log in. Decided here and nowhere else."""

from enum import Enum

from attrs import field, frozen

from lmtp.settings import Settings
from store.accounts.networks import Networks


class Trust(Enum):
    """What a client may do."""

    REFUSED = "it is rejected at connect"
    STRANGER = "it must show a certificate or log in first"
    RELAY = "it may deliver"
    TRUSTED = "its word about other clients and about quota counts too"


@frozen
class Access:
    """The rules, from the settings."""

    networks: Networks
    trusted: Networks
    client_names: frozenset[str]
    certificates: bool = field(kw_only=True)        # a verified client certificate admits
    auth_users: frozenset[str] = field(kw_only=True)

    @classmethod
    def from_settings(cls, settings: Settings) -> "Access":
        """The rules that these settings make."""
        return cls(Networks.parse(settings.networks), Networks.parse(settings.trusted_networks),
                   frozenset(name.lower() for name in settings.client_names),
                   certificates=settings.client_ca is not None, auth_users=frozenset(settings.auth_users))

    def trust(self, peer: str, certificate: tuple[str, ...] = (), user: str = "") -> Trust:
        """What a client from that address may do, with the names of its certificate and the user it logged in as."""
        if peer in self.trusted:
            return Trust.TRUSTED
        if peer in self.networks or user or (certificate and self._is_known(certificate)):
            return Trust.RELAY
        return Trust.STRANGER if self.certificates or self.auth_users else Trust.REFUSED

    def _is_known(self, certificate: tuple[str, ...]) -> bool:
        return not self.client_names or any(name.lower() in self.client_names for name in certificate)
