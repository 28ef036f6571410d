"""Nothing that the disk does not say is taken for "it is not there".

Every place of store/ and mboxlist/ that catches OSError and goes on as if nothing was there is listed here, with the
reason why that harms nobody. A new one needs a reason, too; most often it should catch FileNotFoundError alone, or ask
`engine.disk.is_unanswered`.
"""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WIDE = {"OSError", "Exception", "BaseException"}

#: reason -> module and function
HARMLESS = {
    "who looks does not act on it: a figure of a report, or what is shown of another process": """
        store/mailboxes/joining.py figures; store/mend/leftovers.py _size; store/readonly/volumestate.py is_read_only;
        store/readonly/volumestate.py _emergencies; store/recovery/environments.py reports;
        store/standby/cascade/cascade.py seen; store/standby/longfollowing.py seen; store/standby/source/instep.py seen;
        store/partition/marks.py AsOf.of; store/standby/standbyprocess.py process; store/standby/standbyprocess.py send;
        store/standby/standbyprocess.py _noted; store/standby/standbyprocess.py _began; store/quota/overview.py look;
        store/opening.py _is_in_hand; store/readonly/place.py numbered; store/readonly/place.py places;
        store/readonly/readingcopy.py _is_of;
        store/check/causes.py _Causes._other_names; store/check/layout.py _original; store/check/layout.py _partitions;
        store/check/layout.py _Walk.folder; store/check/layout.py _Walk._entry; store/check/filecheck.py is_file;
        store/check/filecheck.py _is_whole""",
    "the safe side: what it then does is more work, or nothing": """
        store/accounts/apppasswords/accessfiles.py AccessFiles.version; store/accounts/throttle/formerlogins.py
        FormerLogins.load; store/mailboxes/identicalfiles.py _double; store/mailboxes/identicalfiles.py _with_trace;
        store/mailboxes/identicalfiles.py _same_octets; store/mend/leftovers.py correct_sizes;
        store/mend/orphans.py _read; store/partition/filelooks.py read_through;
        store/partition/messagereading.py ReadableFiles.beginning; store/partition/messagereading.py
        ReadableFiles.will_need; store/partition/processes.py _is_held; store/quota/sums.py are_right;
        store/recovery/knownfiles.py KnownFiles._expunged; store/recovery/knownfiles.py KnownFiles._names;
        store/recovery/knownfiles.py KnownFiles._octets; store/recovery/partitionfill.py PartitionFill._came;
        store/rejoin/partitionhome.py _is_right; store/standby/purgedfiles.py copies;
        store/operations/clockrecord.py holds_back;
        store/net/sharedsyncs.py _LogFlush._begin;
        mboxlist/engine/damagemarks.py is_begun; mboxlist/engine/damagemarks.py file_id;
        mboxlist/engine/damagemarks.py newest; mboxlist/engine/damagemarks.py marks;
        mboxlist/engine/damagemarks.py is_untouched; mboxlist/engine/damagemarks.py has_whole_tables;
        mboxlist/engine/damagemarks.py cut_at; mboxlist/engine/generations.py LogEnd.of;
        mboxlist/engine/generations.py Marks.ends; mboxlist/engine/generations.py read_mark;
        mboxlist/engine/logfiles.py _are_zeros; mboxlist/engine/regions.py is_kept; mboxlist/privatefiles.py
        Folder.is_folder; mboxlist/setaside.py stands_in_the_way; store/backup/archive.py _reading.read""",
    "what is written there is a hint; who reads it does without": """
        store/standby/cascade/cascade.py Cascade._note; store/standby/longfollowing.py LongFollowing._note;
        store/standby/source/instep.py InStep._note; mboxlist/engine/damagemarks.py note_newest;
        mboxlist/engine/damagemarks.py suspect; mboxlist/engine/generations.py Marks._write;
        mboxlist/engine/logfiles.py LogFlush.note; mboxlist/engine/logfiles.py read_from_disk;
        mboxlist/engine/kv.py Env.close; mboxlist/engine/logfiles.py LogAhead.make_next;
        mboxlist/engine/logfiles.py LogAhead._write""",
    "a name or a descriptor that is let go of; what is left is swept": """
        store/audit/trail.py _append; store/filelock.py sweep; store/mailboxes/deletion.py _remove_copy;
        store/net/controlchannel.py ControlPort._stopped; store/news/notify.py NewsSocket.stop;
        store/news/notify.py NewsSocket._send_to; store/operations/operationrecord.py begun;
        store/operations/operationrecord.py forget; store/partition/filejournal.py FileJournal.make;
        store/partition/filejournal.py FileJournal.close; store/partition/processes.py ProcessRegistry.leave;
        store/readonly/readingcopy.py remove; store/reconstruct/livepartition.py _write_what_it_knows;
        store/snapshots/opened.py sweep; store/standby/standbyjournal.py Journal.close;
        store/standby/filecopies.py FileCopies.needed; store/standby/standbyjournal.py _put_file;
        store/userarea/paths.py remove_empty_folders;
        mboxlist/engine/damage.py bring; mboxlist/engine/secondcopy.py SecondCopy.close; mboxlist/privatefiles.py
        replacing; mboxlist/setaside.py set_aside""",
    "the error of a sync is raised already; only where this fails, too, does a name stay that may be lost": """
        store/standby/filecopies.py FileCopies.settle""",
    "each log whose sync may have failed is marked, then it is raised; or the connection has ended, nobody is told": """
        store/standby/source/begunsyncs.py BegunSyncs.finish; store/standby/source/copysource.py Source.close""",
    "no file: a child process that ends, a row that is parsed, a call that is answered as refused": """
        mboxlist/engine/damage.py apart; store/reconstruct/livepartition.py _restart;
        store/snapshots/reset.py _Before.read; store/net/sharedsyncs.py _Shared._start""",
    "a socket, not a file": """
        store/net/stream.py Stream._send; store/news/notify.py NewsSocket.doRead;
        mboxlist/engine/secondcopy.py SecondCopy.ask; mboxlist/engine/secondcopy.py SecondCopy._is_deserted;
        mboxlist/engine/secondcopy.py SecondCopy.doRead; mboxlist/engine/secondcopy.py Asked._all_taken""",
}


def test_every_place_has_a_reason():
    allowed = {" ".join(place.split()) for places in HARMLESS.values() for place in places.split(";")}
    found = {place for top in ("store", "mboxlist") for path in sorted((ROOT / top).rglob("*.py"))
             for place in quiet_places(path.read_text(), str(path.relative_to(ROOT)))}
    assert sorted(found - allowed) == [], "these take what the disk does not say for an answer"
    assert sorted(allowed - found) == [], "these are no more"


def test_what_is_found():
    text = """
class A:
    def one(self):
        try:
            return read()
        except (OSError, ValueError):
            return None
    def two(self):
        try:
            return read()
        except FileNotFoundError:
            return None
    def three(self):
        with suppress(*MANY, OSError):
            read()
    def four(self):
        try:
            read()
        except OSError as error:
            raise problem(error)
    def five(self):
        try:
            read()
        except OSError as error:
            if is_unanswered(error):
                raise
            return 0
"""
    assert Counter(quiet_places(text, "m.py")) == Counter(["m.py A.one", "m.py A.three"])


def quiet_places(text: str, module: str) -> Iterator[str]:
    """Where in these lines OSError is caught, and nothing or something empty comes of it."""
    def walk(node: ast.AST, inside: tuple[str, ...]) -> Iterator[str]:
        for child in ast.iter_child_nodes(node):
            named = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            there = (*inside, child.name) if named else inside
            if isinstance(child, ast.ExceptHandler) and caught(child.type) & WIDE and all(map(is_quiet, child.body)):
                yield f"{module} {'.'.join(inside)}"
            if isinstance(child, ast.With) and any(is_suppressing(item.context_expr) for item in child.items):
                yield f"{module} {'.'.join(inside)}"
            yield from walk(child, there)

    yield from walk(ast.parse(text), ())


def caught(what: ast.expr | None) -> set[str]:
    if isinstance(what, ast.Tuple):
        return set[str]().union(*map(caught, what.elts))
    return {"BaseException"} if what is None else {ast.unparse(what)}


def is_suppressing(called: ast.expr) -> bool:
    return isinstance(called, ast.Call) and ast.unparse(called.func).endswith("suppress") and bool(
        WIDE & {ast.unparse(each) for each in called.args})


def is_quiet(line: ast.stmt) -> bool:
    if isinstance(line, ast.Return | ast.Assign):
        return is_nothing(line.value)
    return isinstance(line, ast.Pass | ast.Continue | ast.Break)


def is_nothing(value: ast.expr | None) -> bool:
    """None, an empty value, -1, True, or a class called without anything."""
    if value is None or isinstance(value, ast.Constant):
        return value is None or not value.value or value.value is True
    if isinstance(value, ast.Call):
        return not value.args and not value.keywords
    return ast.unparse(value) in ("-1", "()", "[]", "{}")
