"""All of the language: the commands, tests and capabilities that a script can use (RFC 5228 §6, IANA's registry)."""

from attrs import evolve

from store.sieve.actions import control, editing, filing, leaving, mimeparts
from store.sieve.commandforms import constants
from store.sieve.compiling import Language
from store.sieve.conditions import bodytests, datetests, fieldtests, flagtests, logic, sitetests
from store.sieve.scriptrun import Node

# In the order in which ManageSieve and `onecopy sieve` show them, each with its source.
CAPABILITIES = {
    "fileinto": "RFC 5228", "envelope": "RFC 5228", "encoded-character": "RFC 5228",
    "comparator-i;ascii-numeric": "RFC 4790", "comparator-i;unicode-casemap": "RFC 5051",
    "variables": "RFC 5229", "vacation": "RFC 5230", "vacation-seconds": "RFC 6131", "relational": "RFC 5231",
    "imap4flags": "RFC 5232", "subaddress": "RFC 5233", "spamtest": "RFC 5235", "spamtestplus": "RFC 5235",
    "virustest": "RFC 5235", "date": "RFC 5260", "index": "RFC 5260", "editheader": "RFC 5293", "reject": "RFC 5429",
    "ereject": "RFC 5429", "enotify": "RFC 5435", "mailbox": "RFC 5490", "mboxmetadata": "RFC 5490",
    "servermetadata": "RFC 5490", "environment": "RFC 5183", "body": "RFC 5173", "copy": "RFC 3894",
    "include": "RFC 6609", "ihave": "RFC 5463", "duplicate": "RFC 7352", "mime": "RFC 5703",
    "foreverypart": "RFC 5703", "replace": "RFC 5703", "enclose": "RFC 5703", "extracttext": "RFC 5703",
    "special-use": "RFC 8579", "fcc": "RFC 8580", "mailboxid": "RFC 9042",
    "extlists": "RFC 6134", "imapsieve": "RFC 6785", "regex": "draft-ietf-sieve-regex"}


def _all_there(node: Node) -> bool:
    names = constants(node.values[0])
    return isinstance(node.values[0], tuple) and len(names) == len(node.values[0]) and CAPABILITIES.keys() >= set(names)


# What looks at nothing but the message, its sender and the time.
_ALIKE = frozenset((
    "if", "elsif", "else", "stop", "error", "set", "keep", "fileinto", "discard", "setflag", "addflag", "removeflag",
    "redirect", "reject", "ereject", "vacation", "notify", "addheader", "deleteheader", "foreverypart", "break",
    "replace", "extracttext", "allof", "anyof", "not", "true", "false", "ihave", "header", "address", "exists", "size",
    "body", "date", "currentdate", "string", "hasflag", "spamtest", "virustest", "valid_notify_method",
    "notify_method_capability"))


def _alike(node: Node) -> bool:
    if node.name == "envelope":
        names = constants(node.values[0])
        return names == node.values[0] and "to" not in [name.lower() for name in names] and "list" not in node.tags
    return node.name in _ALIKE and "list" not in node.tags


SIEVE = Language(
    {**control.COMMANDS, **filing.COMMANDS, **leaving.COMMANDS, **editing.COMMANDS, **mimeparts.COMMANDS},
    {**logic.TESTS, **fieldtests.TESTS, **datetests.TESTS, **bodytests.TESTS, **flagtests.TESTS, **sitetests.TESTS,
     "ihave": evolve(logic.TESTS["ihave"], prepare=_all_there)},
    frozenset(CAPABILITIES), _alike)
