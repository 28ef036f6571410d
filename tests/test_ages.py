"""What is old goes, or is refused, only by a clock that is believed (`store/operations/clockrecord.py`).

Every place of store/ and tools/ that compares a time with the clock's is listed here, with the reason why a clock that
is years ahead destroys nothing there. A new one needs a reason, too; what removes or refuses something for good because
it is old belongs behind the guard: a task of housekeeping is `by_age`, anything else asks `clockrecord.holds_back`.
"""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ORDER = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)

#: reason -> module and function
HARMLESS = {
    "the guard itself": """
        store/operations/clockrecord.py Known.is_ahead; store/operations/clockrecord.py Known.is_far""",
    "behind the guard: a task that is `by_age`": """
        store/events/outgoingfiles.py sweep; store/expiry/decide.py _by_limits; store/mailboxes/deletion.py
        due_mailboxes; store/mailboxes/expunge.py last_due; store/users/lifecycle.py due;
        store/users/restorable.py due; tools/server/worker.py _forgetting""",
    "behind the guard: it, or who calls it, asks `clockrecord`": """
        store/deliverylog.py FileDeliveryLog._remove_old; store/deliverylog.py FileDeliveryLog._write;
        store/operations/operationrecord.py _forget; store/tables/quotatable.py QuotaTable.refuse;
        store/users/directoryremovals.py Seen.is_due; store/users/explanation.py _root; tools/commands/purge.py
        purge""",
    "an outbox: what is given up stays as a dead letter, which `onecopy outbox retry` sends again": """
        tools/outbox/sending.py Sending._is_down; tools/outbox/sending.py Sending._is_put_off""",
    "what is due to be done or sent is done earlier or later, and nothing goes": """
        store/accounts/apppasswords/applogins.py AppLogins._note; store/events/outboxtable.py OutboxTable.due;
        store/expiry/rounds.py Rounds.items; store/expiry/rounds.py following; store/expiry/rounds.py is_due;
        store/expiry/rounds.py latest; store/housekeeping/interrupted.py pending; store/housekeeping/notices.py
        _is_due; store/message/arrivaldate.py _date; store/net/openlogins.py OpenLogins._due;
        store/snapshots/retention.py _age; store/snapshots/retention.py due; tools/server/process/housekeeper.py
        Housekeeping._pause""",
    "a repeated message is delivered once more": """
        store/delivery/repeats.py repeated; store/tables/duplicates.py Duplicates._is_over;
        store/tables/duplicates.py Duplicates.counts; store/tables/duplicates.py Duplicates.ends;
        store/tables/duplicates.py Duplicates.is_noted""",
    "what was given for a time is refused after it, whatever is wrong with the clock; a new one can be given": """
        store/accounts/apppasswords/apppassword.py AppPassword.holds; store/accounts/apppasswords/apppassword.py
        make; store/accounts/tokens.py Tokens._look_at; tools/http/apitokens.py Token.holds;
        tools/http/console/consolesessions.py Sessions._sweep; tools/http/console/consolesessions.py
        Sessions._sweep_challenges; tools/http/console/consolesessions.py Sessions.find;
        tools/http/console/consolesessions.py Sessions.take_challenge; tools/http/console/consolesessions.py
        _holds; tools/http/console/reauthentication.py is_fresh; tools/server/tls/contexts.py _make_certificate;
        tools/server/tls/tickets.py TicketKeys.current""",
    "failed logins count for less, or are remembered for less": """
        store/accounts/throttle/failurecounts.py Count.at; store/accounts/throttle/failurecounts.py
        FailureCounts.rows; store/accounts/throttle/formerlogins.py FormerLogins.add;
        store/accounts/throttle/formerlogins.py FormerLogins.has; store/net/authentication.py _Attempt._pause""",
    "a file of which another process is still at work: it must be found twice, and no living message may have it": """
        store/partition/messagefiles.py MessageFiles.left""",
    "a copy that nobody reads, of which there is a newer one": """
        store/standby/reading/readingcopies.py remove_older; tools/server/readingserver.py
        ReadingServer._look_at_copy""",
    "an administrator has typed the age, is asked, and `onecopy undelete` brings it back": """
        tools/commands/messages/chosenmessages.py chosen; tools/commands/messages/searchwords.py _at;
        tools/commands/messages/searchwords.py _day; tools/commands/messages/withdrawal.py _since""",
    "it is only shown": """
        store/check/lastcheck.py write; store/deliverylog.py read; store/housekeeping/tasks.py Round._end;
        store/recovery/environments.py Recovery.report; store/standby/longfollowing.py behind;
        store/standby/promotion.py _behind; store/standby/source/copysource.py Source._snapshot;
        store/standby/source/instep.py InStep._watch; tools/commands/connections.py _of_console;
        tools/commands/connections.py _print; tools/commands/explain.py _print_quota; tools/commands/explain.py
        login; tools/commands/explain.py message; tools/commands/observing/audittrail.py _since;
        tools/commands/observing/newestlog.py errors; tools/commands/standby/standbystatus.py _served;
        tools/commands/stats.py _print; tools/commands/stats.py _print_processes; tools/commands/status.py
        troubles; tools/http/console/pages/overviewpages.py _past; tools/server/configcheck.py _certificates;
        tools/server/control/connectionlist.py Connections._row; tools/server/control/controlserver.py
        ControlServer._interrupted; tools/server/control/loginfailures.py tell; tools/server/doctor/agelooks.py
        last_check; tools/server/doctor/agelooks.py snapshots; tools/server/health.py _housekeeping;
        tools/server/metrics/figures.py _overdue; tools/server/metrics/history.py read;
        tools/server/process/loglevels.py Levels.tell; tools/server/tls/backendtls.py _ending;
        tools/server/transcripts/wantedsessions.py WantedSessions.tell; tools/outbox/sending.py Sending.status;
        tools/spark/report/page.py _activity""",
    "more is looked at, and moved once more": """
        store/partitions/partitionmove.py _Move._bring; store/usermove/sendmailboxes.py
        MailboxSender._send_changes""",
    "a clock that nobody sets, of the event loop or of the machine": """
        store/audit/sessionaudit.py Pace.wait; store/net/countedconnection.py Counted._look_at_rate;
        store/net/openlogins.py OpenLogin.begin; store/standby/cascade/cascade.py Cascade.further;
        store/standby/source/copysource.py Source._is_new; store/standby/source/copysource.py
        Source._signatures; store/standby/source/copysource.py Source._tables; store/standby/source/instep.py
        Member.follows; store/standby/source/instep.py Member.has; tools/front/hosts.py Hosts._address;
        tools/server/process/loglevels.py Levels._apply; tools/server/process/reactor.py;
        tools/server/process/reactor.py Reactor.mainLoop; tools/server/transcripts/wantedsessions.py
        WantedSessions._turn""",
    "no time: it is something else that is called `now`": """
        store/reconstruct/wholestore.py write_user_area; store/standby/succession.py noted;
        store/userarea/unlisted.py is_ahead; store/userarea/writing.py _Round._elsewhere""",
}


def test_every_place_has_a_reason() -> None:
    allowed = [" ".join(place.split()) for places in HARMLESS.values() for place in places.split(";")]
    found = {place for top in ("store", "tools") for path in sorted((ROOT / top).rglob("*.py"))
             if ROOT / "tools" / "benchmarks" not in path.parents
             for place in ages(path.read_text(), str(path.relative_to(ROOT)))}
    assert sorted(found.difference(allowed)) == [], "these compare a time with the clock's"
    assert sorted(set(allowed) - found) == [], "these are no more"
    assert [place for place, count in Counter(allowed).items() if count > 1] == []


def test_what_is_found() -> None:
    text = """
class A:
    def one(self):
        return time.time() - self.began > 5
    def two(self, now):
        if self.until <= now:
            self.drop()
    def three(self):
        over = self.clock() - KEPT
    def four(self, path):
        return path.stat().st_mtime < self.before
    def five(self):
        self.began = time.time()
    def six(self, now):
        return now == self.now
"""
    assert list(ages(text, "m.py")) == ["m.py A.one", "m.py A.one", "m.py A.two", "m.py A.three", "m.py A.four"]
    assert list(ages("import time\nx = time.monotonic() - 5\ndef f(now): return now - 5\n", "m.py")) == []


def ages(text: str, module: str) -> Iterator[str]:
    """Where in these lines a difference from the clock's time is made, or a comparison with it. A module that knows
    another clock alone, which nobody sets, is passed over."""
    def walk(node: ast.AST, inside: tuple[str, ...]) -> Iterator[str]:
        for child in ast.iter_child_nodes(node):
            named = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            there = (*inside, child.name) if named else inside
            if is_judged(child) and any(map(is_time, ast.walk(child))):
                yield f"{module} {'.'.join(inside)}".strip()
            yield from walk(child, there)

    if "monotonic" not in text or "time.time" in text:
        yield from walk(ast.parse(text), ())


def is_judged(node: ast.AST) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub) or (
        isinstance(node, ast.Compare) and any(isinstance(each, ORDER) for each in node.ops))


def is_time(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        called = ast.unparse(node.func)
        return called in ("time.time", "clock") or called.endswith((".clock", "._clock"))
    return isinstance(node, ast.Name) and node.id == "now" or (
        isinstance(node, ast.Attribute) and node.attr == "st_mtime")
