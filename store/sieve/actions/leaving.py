"""Commands by which something leaves the store: redirect (RFC 5228 §4.2, RFC 3894), reject (RFC 5429),
vacation (RFC 5230, 6131), notify (RFC 5435, 5436), with copies that are filed (RFC 8580, 9042)."""

import hashlib

from store.message import headers
from store.sieve.actions.filing import FLAGS, PLACES, check_place
from store.sieve.commandforms import Form, Kind, Tag, constants
from store.sieve.conditions.flagtests import flags_of
from store.sieve.conditions.sitetests import is_mail_uri
from store.sieve.scriptoutcome import Answered, Copied, Notified, Redirected, Refused
from store.sieve.scriptproblems import RunProblem
from store.sieve.scriptrun import Node, Run

DAY = 86400
LONGEST = 90 * DAY                      # of a vacation (RFC 5230 §4.1 asks for at least 30 days)


def address_in(text: str) -> str:
    """The one address in a text, as local@domain. Raises ValueError."""
    if any(ord(char) < 32 or ord(char) == 127 for char in text) or len(text) > 500:
        raise ValueError(f'"{text[:60]}" is not an address')
    found = headers.addresses(text.encode("utf-8", "replace"))
    if len(found) != 1 or not found[0].mailbox or not found[0].host or found[0].route:
        raise ValueError(f'"{text[:60]}" is not an address')
    local, domain = found[0].mailbox.decode(), found[0].host.decode()
    if any(char in " \t()<>,;:\\\"[]" for char in local + domain.strip("[]")):
        raise ValueError(f'"{text[:60]}" is an address of a form that is not sent to')
    return f"{local}@{domain}"


def redirect(run: Run, node: Node) -> None:
    """RFC 5228 §4.2; to an address once. Where mail goes in a circle is seen when it is sent."""
    run.act(node)
    try:
        redirected = Redirected(address_in(run.text(node.values[0])), run.edition)
    except ValueError as error:
        raise RunProblem(str(error), node.place) from None
    if redirected not in run.outcome.redirects:
        run.outcome.redirects.append(redirected)
    if len(run.outcome.redirects) > run.limits.redirects:
        raise RunProblem(f"the script sends the message to more than {run.limits.redirects} addresses", node.place)
    if "copy" not in node.tags:
        run.keeping = False


def refuse(run: Run, node: Node) -> None:
    """`reject`, `ereject` (RFC 5429): once, and with nothing else that is done with the message (§2.4)."""
    run.require_delivery(node)
    outcome = run.outcome
    if outcome.files or outcome.redirects or outcome.answer is not None or outcome.refused is not None:
        raise RunProblem(f"{node.name} goes with no other action", node.place)
    outcome.refused = Refused(run.text(node.values[0]), node.name == "ereject")
    run.keeping = False


def copy_of(run: Run, node: Node) -> Copied | None:
    """Where `:fcc` files what is sent (RFC 8580 §3)."""
    tags = node.tags
    if "fcc" not in tags:
        return None
    return Copied(run.text(tags["fcc"]), flags_of(run.list(tags["flags"])) if "flags" in tags else (), "create" in tags,
                  run.text(tags["specialuse"]) if "specialuse" in tags else "",
                  run.text(tags["mailboxid"]) if "mailboxid" in tags else "")


def vacation(run: Run, node: Node) -> None:
    """RFC 5230 §4; to whom, and whether at all, is decided when the outcome is carried out (§4.5, §4.6)."""
    run.require_delivery(node)
    if run.outcome.answer is not None:
        raise RunProblem("vacation is done once (RFC 5230 §4.7)", node.place)
    if run.outcome.refused is not None:
        raise RunProblem(f"vacation does not go with {node.name}", node.place)
    run.act(node)
    tags, reason = node.tags, run.text(node.values[0])
    subject, sender = (run.text(tags[name]) if name in tags else "" for name in ("subject", "from"))
    if sender:
        try:
            sender = address_in(sender)
        except ValueError as error:
            raise RunProblem(str(error), node.place) from None
    handle = run.text(tags["handle"]) if "handle" in tags else hashlib.sha256(
        "\0".join((subject, sender, str("mime" in tags), reason)).encode("utf-8", "replace")).hexdigest()
    run.outcome.answer = Answered(reason, _seconds(node), handle, subject, sender,
                                  tuple(run.list(tags["addresses"])) if "addresses" in tags else (), "mime" in tags,
                                  copy_of(run, node))


def _seconds(node: Node) -> int:
    """RFC 5230 §4.1: a day at least; RFC 6131 §2: 0 answers each message."""
    seconds, days = node.tags.get("seconds"), node.tags.get("days", 7)
    if isinstance(seconds, int) and not isinstance(seconds, bool):
        return min(seconds, LONGEST)
    assert isinstance(days, int)
    return min(max(days, 1) * DAY, LONGEST)


def notify(run: Run, node: Node) -> None:
    """RFC 5435 §3; a method that cannot be is an error (§3.8), one address gets one notice."""
    method, tags = run.text(node.values[0]), node.tags
    if not is_mail_uri(method):
        raise RunProblem(f'"{method[:100]}" is no way to notify: mailto: is', node.place)
    run.act(node)
    sender = run.text(tags["from"]) if "from" in tags else ""
    if sender:
        try:
            sender = address_in(sender)
        except ValueError:
            sender = ""                 # RFC 5435 §3.4: it may be ignored
    importance = run.text(tags["importance"]) if "importance" in tags else "2"
    if importance not in ("1", "2", "3"):
        raise RunProblem(":importance is 1, 2 or 3", node.place)
    run.outcome.notices.append(Notified(
        method, run.text(tags["message"]) if "message" in tags else "", sender, int(importance),
        tuple(run.list(tags["options"])) if "options" in tags else (), copy_of(run, node)))
    if len(run.outcome.notices) > run.limits.notices:
        raise RunProblem(f"the script notifies more than {run.limits.notices} times", node.place)


def _check_redirect(node: Node) -> None:
    if "list" in node.tags:
        raise ValueError("mail to all members of a list is sent by the relay, not by a script (:list)")
    for text in constants(node.values[0]):
        address_in(text)


def _check_vacation(node: Node) -> None:
    for text in constants(node.tags.get("from", ())):
        address_in(text)
    _check_copy(node)


def _check_copy(node: Node) -> None:
    if "fcc" not in node.tags and not {"flags", *PLACES}.isdisjoint(node.tags):
        raise ValueError(":flags, :create, :specialuse and :mailboxid go with :fcc")
    check_place(node)


def _check_notify(node: Node) -> None:
    for method in constants(node.values[0]):
        if not is_mail_uri(method):
            raise ValueError(f'"{method[:100]}" is no way to notify: mailto: is')
    _check_copy(node)


_COPY = {"fcc": Tag("fcc", Kind.STRING), "flags": FLAGS, **PLACES}
COMMANDS = {
    "redirect": Form(redirect, tags={"copy": Tag("copy"), "list": Tag("extlists")}, values=(Kind.STRING,),
                     prepare=_check_redirect),
    "reject": Form(refuse, ("reject",), values=(Kind.STRING,)),
    "ereject": Form(refuse, ("ereject",), values=(Kind.STRING,)),
    "vacation": Form(vacation, ("vacation",), {
        "days": Tag(value=Kind.NUMBER, group="period"), "seconds": Tag("vacation-seconds", Kind.NUMBER, "period"),
        "subject": Tag(value=Kind.STRING), "from": Tag(value=Kind.STRING), "addresses": Tag(value=Kind.STRINGS),
        "mime": Tag(), "handle": Tag(value=Kind.STRING), **_COPY}, values=(Kind.STRING,), prepare=_check_vacation),
    "notify": Form(notify, ("enotify",), {
        "from": Tag(value=Kind.STRING), "importance": Tag(value=Kind.STRING), "options": Tag(value=Kind.STRINGS),
        "message": Tag(value=Kind.STRING), **_COPY}, values=(Kind.STRING,), prepare=_check_notify),
}
