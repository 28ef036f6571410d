"""Archives that belong together, a full one and those that continue it, and which of them has what."""

from collections.abc import Iterable

from attrs import define, field

from store.backup.archive import Archive, Catalogue
from store.backup.tarmembers import Member
from store.userarea import idxfile


@define(eq=False)
class Chain:
    """Archives in their order. `catalogue` is that of the last one, if it can be read; `newest`, when it cannot, which
    of them has each mailbox last, by its path in the archive."""

    archives: list[Archive]
    catalogue: Catalogue | None = None
    newest: dict[str, int] = field(factory=dict)

    @classmethod
    def of(cls, archives: Iterable[Archive], findings: list[str]) -> "Chain":
        """From archives in any order; what is missing or damaged becomes a finding. Raises StoreError UNAVAILABLE."""
        found = list(archives)
        for archive in found:
            if archive.catalogue() is None and archive.manifest is not None:
                findings.append(f"{archive.name}: its catalogue is damaged, or cut off")
        found.sort(key=lambda archive: len(archive.manifest.since) if archive.manifest is not None else 0)
        chain = cls(found, found[-1].catalogue())
        if chain.catalogue is not None:
            findings += chain._missing(chain.catalogue)
        elif len(found) > 1:
            chain.newest = {member.name: at for at, archive in enumerate(found) for member in archive.members()
                            if isinstance(member, Member) and member.name.endswith(idxfile.NAME)}
        return chain

    def _missing(self, catalogue: Catalogue) -> list[str]:
        given = {archive.manifest.id for archive in self.archives if archive.manifest is not None}
        needed = {each.archive for each in catalogue.mailboxes.values()}
        return [f"the archive with the id {each}, which this one continues, is not here"
                for each in catalogue.chain if each not in given and each in needed]

    def has_newest(self, at: int, path: str, name: str) -> bool:
        """Whether that archive has the mailbox of that name, and path in it, as it was last; False also when it was
        deleted since."""
        manifest = self.archives[at].manifest
        if self.catalogue is not None and manifest is not None:
            listed = self.catalogue.mailboxes.get(name)
            return listed is not None and listed.archive == manifest.id
        return self.newest.get(path, at) == at
