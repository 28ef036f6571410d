"""Tests of what is around the message: mailboxes, metadata, environment, spam: RFC 5183, 5235, 5435 §5, 5490,
7352, 8579, 9042; and of strings, RFC 5229 §5."""

import re
from urllib.parse import unquote, urlsplit

from store.sieve.commandforms import MATCH, MATCH_OR_LIST, Form, Kind, Tag, matching
from store.sieve.scriptoutcome import Seen
from store.sieve.scriptrun import Node, Run

LONGEST = 90 * 86400                    # seconds that a key of `duplicate` is remembered at most
USUAL = 7 * 86400
_ADDRESS = re.compile(r"[^\x00-\x20\x7f<>()\[\]\\,;:\"@]+@[^\x00-\x20\x7f<>()\[\]\\,;:\"@]+")


def string(run: Run, node: Node) -> bool:
    """RFC 5229 §5; an empty string counts as no value (§5, with `:count`)."""
    values = run.list(node.values[0])
    if node.ready.type == "count":
        values = [value for value in values if value]
    return bool(node.ready.any(run, node, values, run.list(node.values[1])))


def environment(run: Run, node: Node) -> bool:
    """RFC 5183 §4; an item that is not known matches nothing."""
    value = run.surroundings.environment.get(run.text(node.values[0]).lower())
    return value is not None and bool(node.ready.any(run, node, [value], run.list(node.values[1])))


def mailbox_exists(run: Run, node: Node) -> bool:
    """RFC 5490 §3.1."""
    return all(run.surroundings.has_mailbox(name) for name in run.list(node.values[0]))


def mailbox_id_exists(run: Run, node: Node) -> bool:
    """RFC 9042 §4."""
    return all(run.surroundings.has_mailbox_id(mailbox_id) for mailbox_id in run.list(node.values[0]))


def special_use_exists(run: Run, node: Node) -> bool:
    """RFC 8579 §3."""
    mailbox = run.text(node.values[0]) if len(node.values) == 2 else ""
    return all(run.surroundings.has_special_use(mailbox, use) for use in run.list(node.values[-1]))


def metadata(run: Run, node: Node) -> bool:
    """RFC 5490 §3.3."""
    value = run.surroundings.metadata(run.text(node.values[0]), run.text(node.values[1]))
    return value is not None and bool(node.ready.any(run, node, [value], run.list(node.values[2])))


def metadata_exists(run: Run, node: Node) -> bool:
    """RFC 5490 §3.4."""
    mailbox = run.text(node.values[0])
    return all(run.surroundings.metadata(mailbox, name) is not None for name in run.list(node.values[1]))


def server_metadata(run: Run, node: Node) -> bool:
    """RFC 5490 §4.3."""
    value = run.surroundings.metadata(None, run.text(node.values[0]))
    return value is not None and bool(node.ready.any(run, node, [value], run.list(node.values[1])))


def server_metadata_exists(run: Run, node: Node) -> bool:
    """RFC 5490 §4.4."""
    return all(run.surroundings.metadata(None, name) is not None for name in run.list(node.values[0]))


def valid_list(run: Run, node: Node) -> bool:
    """`valid_ext_list` (RFC 6134 §2.4): whether all of these can be asked about."""
    names = run.list(node.values[0])
    for _ in names:
        run.look_up(node)
    return all(map(run.surroundings.has_list, names))


def duplicate(run: Run, node: Node) -> bool:
    """RFC 7352 §3: whether a message with that key was filed before; this one is remembered if it is."""
    tags = node.tags
    if "uniqueid" in tags:
        key = run.text(tags["uniqueid"])
    else:
        texts = run.message.texts(run.text(tags["header"]) if "header" in tags else "message-id")
        key = texts[0] if texts else ""
    if not key:
        return False
    key = f"{run.text(tags['handle']) if 'handle' in tags else ''}\0{key}"
    seconds = tags.get("seconds", USUAL)
    assert isinstance(seconds, int)
    asked = next((one for one in run.outcome.seen if one.key == key), None)
    known = run.surroundings.seen(key)
    if asked is None and (not known or "last" in tags):
        run.outcome.seen.append(Seen(key, min(max(seconds, 1), LONGEST)))
    return known


def spam(run: Run, node: Node) -> bool:
    """RFC 5235 §2: 0 not tested, 1 surely not to 10 surely; with `:percent` 0 to 100, where `:count` says whether it
    was tested."""
    share = run.surroundings.spam(run.message)
    if share is None:
        values = [] if node.ready.type == "count" else ["0"]
    else:
        values = [str(round(100 * share) if "percent" in node.tags else 1 + round(9 * share))]
    return bool(node.ready.any(run, node, values, run.list(node.values[0])))


def virus(run: Run, node: Node) -> bool:
    """RFC 5235 §2.3: 0 not tested, 1 none, to 5 surely one."""
    return bool(node.ready.any(run, node, [str(run.surroundings.virus(run.message))], run.list(node.values[0])))


def is_mail_uri(method: str) -> bool:
    """Whether it is a URI of scheme mailto with an address (RFC 6068, RFC 5436)."""
    try:
        parts = urlsplit(method)
    except ValueError:
        return False
    return parts.scheme == "mailto" and not parts.netloc and all(
        _ADDRESS.fullmatch(unquote(one)) for one in parts.path.split(","))


def valid_notify(run: Run, node: Node) -> bool:
    """RFC 5435 §4."""
    return all(is_mail_uri(method) for method in run.list(node.values[0]))


def notify_capability(run: Run, node: Node) -> bool:
    """RFC 5435 §5: of mailto nothing is known but that it cannot say whether anybody is there."""
    if not is_mail_uri(run.text(node.values[0])) or run.text(node.values[1]).lower() != "online":
        return False
    return bool(node.ready.any(run, node, ["maybe"], run.list(node.values[2])))


def _prepare_duplicate(node: Node) -> None:
    if "header" in node.tags and "uniqueid" in node.tags:
        raise ValueError("duplicate takes :header or :uniqueid")


_ONE, _TWO = (Kind.STRINGS,), (Kind.STRING, Kind.STRINGS)
TESTS = {
    "string": Form(string, ("variables",), MATCH_OR_LIST, values=(Kind.STRINGS, Kind.STRINGS), prepare=matching),
    "environment": Form(environment, ("environment",), MATCH, values=_TWO, prepare=matching),
    "mailboxexists": Form(mailbox_exists, ("mailbox",), values=_ONE),
    "mailboxidexists": Form(mailbox_id_exists, ("mailboxid",), values=_ONE),
    "specialuse_exists": Form(special_use_exists, ("special-use",), values=_TWO, optional_first=True),
    "metadata": Form(metadata, ("mboxmetadata",), MATCH, values=(Kind.STRING, Kind.STRING, Kind.STRINGS),
                     prepare=matching),
    "metadataexists": Form(metadata_exists, ("mboxmetadata",), values=_TWO),
    "servermetadata": Form(server_metadata, ("servermetadata",), MATCH, values=_TWO, prepare=matching),
    "servermetadataexists": Form(server_metadata_exists, ("servermetadata",), values=_ONE),
    "duplicate": Form(duplicate, ("duplicate",), {
        "handle": Tag(value=Kind.STRING), "header": Tag(value=Kind.STRING), "uniqueid": Tag(value=Kind.STRING),
        "seconds": Tag(value=Kind.NUMBER), "last": Tag()}, prepare=_prepare_duplicate),
    "spamtest": Form(spam, ("spamtest", "spamtestplus"), {**MATCH, "percent": Tag("spamtestplus")},
                     values=(Kind.STRING,), prepare=matching),
    "virustest": Form(virus, ("virustest",), MATCH, values=(Kind.STRING,), prepare=matching),
    "valid_ext_list": Form(valid_list, ("extlists",), values=_ONE),
    "valid_notify_method": Form(valid_notify, ("enotify",), values=_ONE),
    "notify_method_capability": Form(notify_capability, ("enotify",), MATCH,
                                     values=(Kind.STRING, Kind.STRING, Kind.STRINGS), prepare=matching),
}
