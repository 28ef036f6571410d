"""A plan's tables and manifest; places of digests; which records are usable; references counted."""

import json
import random

import numpy as np
import pyarrow as pa
import pytest
from attrs import evolve

from mboxlist.names import MailboxName
from store.rebuild.userareascan import Source
from store.tables.index import ROW
from store.tables.privateheaders import UNKNOWN
from store.tables.references import sum_of_marks
from store.userarea.idxfile import Head
from tools.spark.rebuild import plantasks
from tools.spark.rebuild.plan import MANIFEST, SCHEMAS, BadPlan, Facts, Figures, Manifest, Plan
from tools.spark.rebuild.planpieces import Messages, whole_mailboxes

WHOLE = Manifest("/srv/mail", 1.5, {"primary": Figures(1, 2, 3, 4, 5), "big": Figures(2, 10, 20, 30, 40)})


def facts(*files):
    rows = [{"digest": digest, "octets": octets, "trace": trace, "staged": staged}
            for digest, octets, trace, staged in files]
    names = ["digest", "octets", "trace", "staged"]
    return Facts.of(pa.Table.from_pylist(rows, pa.schema([SCHEMAS["messages"].field(name) for name in names])))


def test_a_manifest_comes_back(tmp_path):
    plan = Plan(tmp_path)
    plan.write_manifest(WHOLE)
    assert plan.read_manifest() == WHOLE
    assert WHOLE.total == Figures(0, 12, 23, 34, 45)


@pytest.mark.parametrize(("text", "said"), [
    (None, "no plan"), ("", "cannot be read"), ("[]", "cannot be read"), ("{}", "cannot be read"),
    (json.dumps({"version": 99}), "version 99"),
    (json.dumps({"version": 3, "partitions": {}}), "cannot be read"),
    (json.dumps({"version": 3, "root": "/", "begun": 0, "partitions": {"p": {"x": 1}}}), "cannot be read"),
])
def test_what_is_no_manifest(tmp_path, text, said):
    if text is not None:
        (tmp_path / MANIFEST).write_text(text)
    with pytest.raises(BadPlan, match=said):
        Plan(tmp_path).read_manifest()


def test_a_table_that_is_gone_is_a_bad_plan(tmp_path):
    with pytest.raises(BadPlan):
        list(Plan(tmp_path).rows("messages"))


def test_a_table_that_is_damaged_is_a_bad_plan(tmp_path):
    plan = Plan(tmp_path)
    plan.write("findings", [{"what": "a", "place": "b", "repair": "c"}])
    path, = (tmp_path / "findings").glob("*.parquet")
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(BadPlan):
        plan.findings()


# Places

def test_places_are_those_of_the_digests_in_order():
    chance = random.Random(1)
    digests = [chance.randbytes(32) for _ in range(500)]
    digests += [b"same....".ljust(31, b"\0") + bytes([number]) for number in (0, 1, 9, 200)]    # and NULs at their ends
    known = facts(*[(digest, number, 0, False) for number, digest in enumerate(digests)])
    ordered = sorted(digests)
    asked = [*digests, *(chance.randbytes(32) for _ in range(50)), b"same....".ljust(31, b"\0") + b"\2", bytes(32)]
    places, there = known.find(np.frombuffer(b"".join(asked), "V32"))
    for digest, place, is_there in zip(asked, places.tolist(), there.tolist(), strict=True):
        assert is_there == (digest in digests)
        if is_there:
            assert ordered[place] == digest and known.octets[place] == digests.index(digest)


def test_a_file_that_has_its_place_counts_before_one_that_is_staged():
    one, two = b"1" * 32, b"2" * 32
    known = facts((two, 7, 0, True), (one, 100, 30, True), (one, 90, 20, False))
    assert (known.octets.tolist(), known.traces.tolist()) == ([90, 7], [20, 0])


def test_nothing_is_nowhere():
    assert facts().find(np.frombuffer(bytes(64), "V32"))[1].tolist() == [False, False]
    assert facts((b"1" * 32, 1, 0, False)).find(np.empty(0, "V32"))[0].tolist() == []


# Records

def of_alice():
    head = Head(id=7, name="user/alice/INBOX", owner="alice", partition="primary", uidvalidity=1, uidnext=99,
                highestmodseq=9, keywords=["a", "b"])
    return Source("primary", None, head, MailboxName.parse(head.name))


@pytest.mark.parametrize(("size", "header_length", "head", "usable"), [
    (1000, 0, 0, True),                 # the whole file, trace header and all
    (900, 100, 0, True),                # without it
    (900, 0, 0, False), (1000, 100, 0, False), (999, 1, 0, False), (1001, 0, 0, False),
    (1020, 0, 5, True), (920, 100, 5, True), (1000, 0, 5, False),          # 20 octets of its own
    (1030, 0, 6, "lost"), (930, 100, 6, "lost"), (1000, 0, 6, False),      # nobody knows how many
    (2 ** 64 - 1, 0, 0, False), (2 ** 64 - 1, 0, 6, False), (0, 2 ** 32 - 1, 0, False),
])
def test_which_records_are_usable(size, header_length, head, usable):
    """A file of 1000 octets, 100 of them a trace header."""
    rows = np.zeros(2, ROW)
    rows["uid"], rows["digest"], rows["flags"], rows["keywords"], rows["modseq"] = [3, 4], b"1" * 32, 0xFFFF, 7, 2 ** 63
    rows["size"], rows["header_length"], rows["head"] = [size, 1000], [header_length, 0], [head, 0]
    source = of_alice()
    findings = []
    good, unused = plantasks.usable(source, rows, {5: b"x" * 20}, facts((b"1" * 32, 1000, 100, False)), findings)
    assert good["uid"].tolist() == ([3, 4] if usable else [4]) and unused["uid"].tolist() == ([] if usable else [3])
    assert len(findings) == (usable is not True)
    assert all("UID 3" in finding.where for finding in findings)
    assert set(good["flags"]) == {31} and set(good["keywords"]) == {3} and good["modseq"].max() == 1 << 62
    if usable == "lost":
        assert (good["size"][0], good["head"][0]) == (1000 - header_length, 0)
    assert UNKNOWN < 0


def test_a_message_that_is_not_there():
    rows = np.zeros(1, ROW)
    rows["uid"], rows["digest"], rows["size"] = 5, b"2" * 32, 10
    for known in (facts(), facts((b"1" * 32, 10, 0, False))):
        findings = []
        assert not len(plantasks.usable(of_alice(), rows, {}, known, findings)[0])
        assert [finding.where for finding in findings] == ["user/alice/INBOX, UID 5"]
        findings = []                                   # it came when the plan had been begun
        plantasks.usable(of_alice(), rows, {}, known, findings, lambda row: True)
        assert findings == []
        broken = evolve(known, damaged=frozenset((b"2" * 32,)))
        plantasks.usable(of_alice(), rows, {}, broken, findings, lambda row: True)
        assert len(findings) == 1


# References

def test_references_are_counted():
    """Also of digests that end with NULs."""
    chance = random.Random(2)
    digests = [chance.randbytes(32) for _ in range(38)] + [b"1" * 31 + b"\0", b"1" * 30 + b"\0\0"]
    batches, wanted, serials = [], {}, {}
    for mailbox in (1000, 2000, 3000):
        rows = np.zeros(200, ROW)
        rows["uid"], rows["serial"] = np.arange(1, 201), [chance.randrange(1, 9) for _ in rows]
        rows["digest"] = np.array([chance.choice(digests) for _ in rows], "V32")
        batches += [plantasks.counted("primary", mailbox, some) for some in (rows[:120], rows[120:])]
        for row in rows:
            wanted.setdefault(row["digest"].tobytes(), []).append((mailbox, int(row["uid"])))
            serials.setdefault(row["digest"].tobytes(), []).append(int(row["serial"]))
    found = plantasks.summed(pa.Table.from_batches(batches)).to_pylist()
    assert len(found) == len(wanted) == 40
    for row in found:
        references = wanted[row["digest"]]
        check = (row["low"] + (row["high"] << 32)) % 2 ** 64
        assert (row["references"], check) == (len(references), sum_of_marks(references) % 2 ** 64)
        assert (row["first_serial"], row["last_serial"]) == (min(serials[row["digest"]]), max(serials[row["digest"]]))


def test_every_message_gets_an_arrival_serial_of_its_own(tmp_path):
    """The one that its records name, if that can be and nobody else has it."""
    plan = Plan(tmp_path)
    digests = [bytes([number]) * 32 for number in range(6)]
    plan.write("messages", [{"partition": "primary", "path": "p", "digest": digest, "octets": 10, "trace": 0,
                             "staged": False, "cached": b"c"} for digest in digests])
    named = {0: 5, 1: 5, 2: 0, 3: 9, 4: 1 << 62}            # and nothing refers to the last one
    plan.write("references", [{"partition": "primary", "digest": digests[place], "references": 2, "low": 2 ** 32 - 1,
                               "high": 2 ** 33, "first_serial": serial, "last_serial": serial}
                              for place, serial in named.items()])
    messages = Messages.of(plan, "primary")
    assert messages.serials[[0, 3]].tolist() == [5, 9]
    assert len(set(messages.serials.tolist())) == 6 and messages.serials.min() > 0
    assert messages.last_serial == messages.serials.max() < 20
    record = messages.record(digests[1], 0)
    assert (record.references, record.check, record.size) == (2, (2 ** 32 - 1 + (2 ** 33 << 32)) % 2 ** 64, 10)
    assert messages.record(digests[5], 0) is None and messages.record(b"x" * 32, 0) is None


def test_pieces_that_are_not_in_order_are_a_bad_plan(tmp_path):
    plan = Plan(tmp_path)
    plan.write("pieces", [{"partition": "primary", "path": "a", "piece": piece, "rows": b""} for piece in (0, 2)])
    with pytest.raises(BadPlan, match="not in order"):
        list(whole_mailboxes(plan, "primary"))
