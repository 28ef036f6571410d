"""What the processes of a server know of failed logins, told and cleared on the control socket of any of them."""

from collections.abc import Mapping
from typing import Any

from store.accounts.throttle.failurecounts import PAIR, USER, Name
from store.accounts.throttle.slowdown import Place, SlowDown

MOST = 200          # rows in an answer


def tell(slow: SlowDown, request: Mapping[str, Any]) -> dict[str, Any]:
    """Those of a user, of an address or of all ("" for either), the worst first; with `clear` they are forgotten."""
    user, peer = str(request["user"]), str(request["peer"])
    places = Place.of(peer).known_by if peer else ()
    found = [(row, wait) for row, wait in slow.rows() if _concerns(row.kind, row.name, user, places)]
    found.sort(key=lambda each: (each[1], each[0].count.weight), reverse=True)
    if request["clear"]:
        for row, _ in found:
            slow.clear(row.kind, row.name)
    now = slow.clock()
    return {"count": len(found), "rows": [
        {"kind": row.kind, "name": row.name, "failures": round(row.count.weight, 1), "wait": round(wait, 1),
         "last": round(max(0.0, now - row.count.last), 1)} for row, wait in found[:MOST]]}


def _concerns(kind: str, name: str, user: str, places: tuple[str, ...]) -> bool:
    place, _, who = name.partition(" ") if kind == PAIR else ("", "", name) if kind == USER else (name, "", "")
    kept = Name(kind, f"{place} {user}" if kind == PAIR else user).kept.decode(errors="replace")
    return (not user or bool(who) and name == kept) and (not places or place in places)
