"""Each command as octets and as value: RFC 3501 §6 and its extensions."""

import pytest

from imap.wire.append import Append, Appended, is_message
from imap.wire.commandlimits import Limits
from imap.wire.commands import COMMANDS, SELECTED, BadCommand, Head, parse_command
from imap.wire.connection import Capability, Enable, Id, Idle, Logout, Noop, StartTls, is_done
from imap.wire.copying import Copy
from imap.wire.fetch import Fetch, Item, Part, Section
from imap.wire.flags import StoreFlags
from imap.wire.framer import Frame
from imap.wire.grammar import SyntaxProblem
from imap.wire.listing import Lsub, Status, StatusItem
from imap.wire.login import Authenticate, Login, challenge, sasl_response
from imap.wire.mailboxes import Create, Delete, Namespace, Rename, Subscribe, Unsubscribe
from imap.wire.numbers import NumberSet
from imap.wire.selecting import Check, Close, Expunge, Select, Unselect
from store.values import Flag, FlagAction, Flags, InternalDate


def frame(*parts: bytes) -> Frame:
    return Frame(parts)


def one(number):
    return NumberSet(((number, number),))


def section(*args, label, **kwargs):
    return Section(*args, label=label, **kwargs)


SIMPLE = [
    (b"CAPABILITY", Capability()),
    (b"nOOp", Noop()),
    (b"LOGOUT", Logout()),
    (b"STARTTLS", StartTls()),
    (b"IDLE", Idle()),
    (b"NAMESPACE", Namespace()),
    (b"CHECK", Check()),
    (b"CLOSE", Close()),
    (b"UNSELECT", Unselect()),
    (b"EXPUNGE", Expunge()),
    (b"UID EXPUNGE 3000:3002", Expunge(NumberSet(((3000, 3002),)))),
    (b"ID NIL", Id()),
    (b'ID ("name" "sodr" "version" NIL)', Id(((b"name", b"sodr"), (b"version", None)))),
    (b"ID ()", Id()),
    (b"ENABLE CONDSTORE x-good-idea", Enable((b"CONDSTORE", b"X-GOOD-IDEA"))),
    (b"AUTHENTICATE gssapi", Authenticate(b"GSSAPI")),
    (b"SELECT inbox", Select("inbox")),
    (b'SELECT "A \\"b\\" \\\\c"', Select('A "b" \\c')),
    (b"EXAMINE blurdybloop", Select("blurdybloop", read_only=True)),
    (b"SELECT ~peter/mail/&U,BTFw-/&ZeVnLIqe-", Select("~peter/mail/台北/日本語")),
    (b"CREATE owatagusiam/", Create("owatagusiam/")),
    (b"CREATE MySpecial (USE (\\Drafts \\Sent))", Create("MySpecial", ("\\Drafts", "\\Sent"))),
    (b"CREATE MySpecial (USE ())", Create("MySpecial")),
    (b"DELETE a]b", Delete("a]b")),
    (b"RENAME blurdybloop sarasoop", Rename("blurdybloop", "sarasoop")),
    (b"SUBSCRIBE #news.comp.mail.mime", Subscribe("#news.comp.mail.mime")),
    (b"UNSUBSCRIBE nil", Unsubscribe("nil")),
    (b'LSUB "#news." "comp.mail.*"', Lsub("#news.", ("comp.mail.*",))),
    (b"STATUS blurdybloop (UIDNEXT MESSAGES uidnext)",
     Status("blurdybloop", (StatusItem.UIDNEXT, StatusItem.MESSAGES))),
    (b"COPY 2:4 MEETING", Copy(NumberSet(((2, 4),)), "MEETING")),
    (b"UID COPY 2:4,9 MEETING", Copy(NumberSet(((2, 4), (9, 9))), "MEETING", by_uid=True)),
    (b"MOVE * a", Copy(NumberSet(((0, 0),)), "a", remove=True)),
    (b"UID MOVE 42:69 foo", Copy(NumberSet(((42, 69),)), "foo", by_uid=True, remove=True)),
    (b"STORE 2:4 +FLAGS (\\Deleted)", StoreFlags(NumberSet(((2, 4),)), FlagAction.ADD, Flags(Flag.DELETED))),
    (b"UID STORE 5 -flags.silent (\\sEEN $Junk $junk x[)",
     StoreFlags(one(5), FlagAction.REMOVE, Flags(Flag.SEEN, ("$Junk", "x[")), silent=True, by_uid=True)),
    (b"STORE 1 FLAGS ()", StoreFlags(one(1), FlagAction.REPLACE, Flags())),
    (b"STORE 1 FLAGS \\Answered \\Draft Work",
     StoreFlags(one(1), FlagAction.REPLACE, Flags(Flag.ANSWERED | Flag.DRAFT, ("Work",)))),
]

FETCHES = [
    (b"1 ALL", (Item.FLAGS, Item.INTERNALDATE, Item.RFC822_SIZE, Item.ENVELOPE)),
    (b"1 fast", (Item.FLAGS, Item.INTERNALDATE, Item.RFC822_SIZE)),
    (b"1 FULL", (Item.FLAGS, Item.INTERNALDATE, Item.RFC822_SIZE, Item.ENVELOPE, Item.BODY)),
    (b"1 (FLAGS)", (Item.FLAGS,)),
    (b"1 (UID BODYSTRUCTURE body uid)", (Item.UID, Item.BODYSTRUCTURE, Item.BODY)),
    (b"1 RFC822", (section(label=b"RFC822"),)),
    (b"1 RFC822.HEADER", (section(part=Part.HEADER, sets_seen=False, label=b"RFC822.HEADER"),)),
    (b"1 (RFC822.TEXT RFC822.SIZE)", (section(part=Part.TEXT, label=b"RFC822.TEXT"), Item.RFC822_SIZE)),
    (b"1 BODY[]", (section(label=b"BODY[]"),)),
    (b"1 body.peek[]", (section(sets_seen=False, label=b"BODY[]"),)),
    (b"1 BODY.PEEK[]<0.2048>", (section(partial=(0, 2048), sets_seen=False, label=b"BODY[]<0>"),)),
    (b"1 BODY[TEXT]<100.1>", (section(part=Part.TEXT, partial=(100, 1), label=b"BODY[TEXT]<100>"),)),
    (b"1 BODY[HEADER]", (section(part=Part.HEADER, label=b"BODY[HEADER]"),)),
    (b"1 BODY[4.2.2.1]", (section((4, 2, 2, 1), label=b"BODY[4.2.2.1]"),)),
    (b"1 BODY[4.1.mime]", (section((4, 1), Part.MIME, label=b"BODY[4.1.MIME]"),)),
    (b"1 (BODY[3.HEADER] BODY[3.TEXT])",
     (section((3,), Part.HEADER, label=b"BODY[3.HEADER]"), section((3,), Part.TEXT, label=b"BODY[3.TEXT]"))),
    (b'1 (BODY[HEADER.FIELDS (Date "FROM")])',
     (section((), Part.HEADER_FIELDS, (b"Date", b"FROM"), label=b"BODY[HEADER.FIELDS (Date FROM)]"),)),
    (b'1 BODY.PEEK[2.HEADER.FIELDS.NOT (TO "a(b")]<1.2>',
     (section((2,), Part.HEADER_FIELDS_NOT, (b"TO", b"a(b"), (1, 2), False,
              label=b'BODY[2.HEADER.FIELDS.NOT (TO "a(b")]<1>'),)),
]


@pytest.mark.parametrize("line, value", SIMPLE)
def test_a_command_is_read(line, value):
    assert parse_command(frame(b"a.1 " + line)) == (b"a.1", value)


@pytest.mark.parametrize("line, items", FETCHES)
def test_fetch_items_are_read(line, items):
    assert parse_command(frame(b"t FETCH " + line)) == (b"t", Fetch(one(1), items))


@pytest.mark.parametrize("line, items", FETCHES)
def test_uid_fetch_always_has_the_uid(line, items):
    _, value = parse_command(frame(b"t UID FETCH " + line))
    assert value.by_uid and value.items == (items if Item.UID in items else (Item.UID, *items))


def test_a_list_with_header_fields_is_read_once():
    """Mail programs send the same list with each FETCH. What is behind it, and limits, are looked at each time."""
    def items(line, **limits):
        return parse_command(frame(b"t " + line), Limits(**limits))[1].items

    text = b"(FLAGS BODY.PEEK[HEADER.FIELDS (Date From)])"
    fields = section((), Part.HEADER_FIELDS, (b"Date", b"From"), sets_seen=False,
                     label=b"BODY[HEADER.FIELDS (Date From)]")
    first = items(b"FETCH 1 " + text)
    assert first == (Item.FLAGS, fields) and items(b"FETCH 2:* " + text) is first
    assert items(b"UID FETCH 1 " + text) == (Item.UID, Item.FLAGS, fields)
    assert items(b"FETCH 1 " + text.replace(b"From", b"from"))[1].fields == (b"Date", b"from")
    assert items(b"FETCH 1 " + text.replace(b".PEEK", b""))[1].sets_seen
    assert items(b"FETCH 1 BODY.PEEK[HEADER.FIELDS (Date From)]") == (fields,)
    _, value = parse_command(frame(b"t FETCH 1 %b (CHANGEDSINCE 5)" % text))
    assert value.changed_since == 5 and value.items == (Item.FLAGS, fields, Item.MODSEQ)
    for line, limits in ((b"1 " + text, {"items": 1}), (b"1,2,3 " + text, {"ranges": 2}), (b"1 %b x" % text, {}),
                         (b"1 %b ()" % text, {})):
        with pytest.raises(BadCommand):
            items(b"FETCH " + line, **limits)


@pytest.mark.parametrize("line, items", FETCHES)
def test_the_label_of_a_section_asks_for_the_same_section(line, items):
    for item in items:
        if isinstance(item, Section) and item.label.startswith(b"BODY"):
            label = item.label.split(b"<")[0]
            (again,) = parse_command(frame(b"t FETCH 1 " + label))[1].items
            assert (again.path, again.part, again.fields) == (item.path, item.part, item.fields)


@pytest.mark.parametrize(("usual", "same"), [
    (b"FETCH 1:* (FLAGS UID ENVELOPE)", b"FETCH 1:* ( FLAGS UID ENVELOPE)"),
    (b"FETCH 7 BODY.PEEK[]", b"FETCH 7 ( BODY.PEEK[])"),
    (b"FETCH 7 (RFC822.SIZE RFC822)", b"FETCH 7 ( RFC822.SIZE RFC822)"),
    (b"FETCH 1,3 FLAGS", b"FETCH 1,3 ( FLAGS)"), (b"FETCH 2 (FLAGS FLAGS)", b"FETCH 2 FLAGS"),
    (b"FETCH 2 fast", b"FETCH 2 (FLAGS INTERNALDATE RFC822.SIZE)"),
    (b"STORE 4 +FLAGS (\\Seen)", b"STORE 4 +FLAGS ( \\Seen)"),
    (b"STORE 4 flags (\\seen \\Draft)", b"STORE 4 FLAGS \\Draft \\Seen"),
    (b"STORE 2:4 -FLAGS.SILENT (\\Deleted)", b"STORE 2:4 -FLAGS.SILENT \\Deleted"),
    (b"SEARCH UNSEEN", b"SEARCH (UNSEEN)"), (b"SEARCH new", b"SEARCH (NEW)")])
def test_the_usual_form_of_a_command_is_read_as_the_unusual_one(usual, same):
    """RFC 3501 §9: parentheses around one, names in any case, macros (§6.4.5); blanks that clients put."""
    for by_uid in (b"", b"UID "):
        assert parse_command(frame(b"a " + by_uid + usual)) == parse_command(frame(b"a " + by_uid + same))


@pytest.mark.parametrize("line", [
    b"FETCH 1 (FLAGS", b"FETCH 1 FLAGS)", b"FETCH 1 (FLAGS )x", b"FETCH 1 (ALL)", b"FETCH 1 (FLAGS BODY[)",
    b"FETCH 0 FLAGS",
    b"FETCH 1, FLAGS", b"FETCH  FLAGS", b"FETCH 1 ()", b"STORE 1 +FLAGS (\\Recent)",
    b"STORE 1 +FLAGS (\\Seen", b"STORE 1 *FLAGS (\\Seen)",
    b"STORE 1 FLAGS (\\)", b"STORE 0 FLAGS (\\Seen)", b"SEARCH UNSEENS", b"SEARCH "])
def test_what_looks_like_a_usual_form_and_is_none_is_refused(line):
    for by_uid in (b"", b"UID "):
        with pytest.raises(BadCommand):
            parse_command(frame(b"a " + by_uid + line))


def test_every_row_of_the_table_is_a_name_in_upper_case_that_finds_itself():
    for name, entry in COMMANDS.items():
        head = Head(frame(b"x " + name.lower() + b" rest"))
        assert (head.name, head.entry) == (name, entry)


def test_no_expunge_is_told_during_fetch_store_and_search():
    """RFC 3501 §7.4.1; the UID forms may tell."""
    silent = {name for name, entry in COMMANDS.items() if entry.states == SELECTED and not entry.expunges}
    assert silent == {b"FETCH", b"STORE", b"SEARCH", b"SORT", b"THREAD", b"CLOSE", b"UNSELECT"}


def test_login_takes_any_astring_and_keeps_the_password_to_itself():
    for command in (frame(b"a LOGIN SMITH sesame"), frame(b'a LOGIN "SMITH" "sesame"'),
                    frame(b"a LOGIN {5}", b"SMITH", b" {6+}", b"sesame", b"")):
        _, login = parse_command(command)
        assert (login.user, login.password.reveal()) == ("SMITH", b"sesame")
        assert isinstance(login, Login) and "sesame" not in repr(login)


@pytest.mark.parametrize("parts", [
    (b"a LOGIN {2}x {1}", b"y", b" z"), (b"a LOGIN {1} {1}", b"y", b" z"), (b"a LOGIN x {1}", b"y", b"z"),
    (b"a LOGIN x y{1}", b"y", b""), (b"a LOGIN {1}", b"x", b""), (b"a LOGIN x{1}", b" ", b"y")])
def test_a_literal_is_only_where_it_is_announced(parts):
    with pytest.raises(BadCommand):
        parse_command(frame(*parts))


def test_login_names_may_be_utf8_in_a_literal_but_nothing_else():
    assert parse_command(frame(b"a LOGIN {3}", "ü".encode() + b"x", b" x"))[1].user == "üx"
    quoted = parse_command(frame('a LOGIN "ü" "é"'.encode()))[1]
    assert (quoted.user, quoted.password.reveal()) == ("ü", "é".encode())
    with pytest.raises(BadCommand):
        parse_command(frame(b"a LOGIN {2}", b"\xff\xfe", b" x"))


@pytest.mark.parametrize("encoded, initial", [(b"=", b""), (b"AHRlc3QAdGVzdA==", b"\0test\0test")])
def test_the_initial_response_is_decoded(encoded, initial):
    _, command = parse_command(frame(b"a AUTHENTICATE PLAIN " + encoded))
    assert command.initial is not None and command.initial.reveal() == initial


def test_the_initial_response_is_no_literal():
    with pytest.raises(BadCommand):
        parse_command(frame(b"a AUTHENTICATE PLAIN {4}", b"AHg=", b""))


def test_the_answers_to_a_challenge():
    assert sasl_response(b"*") is None
    answer = sasl_response(b"AHg=")
    assert answer is not None and answer.reveal() == b"\0x"
    assert challenge(b"") == b"+ \r\n"
    assert challenge(b"\0x") == b"+ AHg=\r\n"
    for junk in (b"AHg", b"A H g =", b"\xff", b"***"):
        with pytest.raises(SyntaxProblem):
            sasl_response(junk)


def test_done_ends_idle():
    assert is_done(b"done") and is_done(b"DONE") and not is_done(b"DONE ") and not is_done(b"a DONE")


APPENDS = [
    (b"APPEND saved-messages (\\Seen) {310}", Append("saved-messages", (Appended(Flags(Flag.SEEN), None, 310),))),
    (b'APPEND x " 1-Feb-2026 09:30:00 +0100" {0+}',
     Append("x", (Appended(Flags(), InternalDate(1769934600, 60), 0, sync=False),))),
    (b'APPEND "a b" () "17-Jul-1996 02:44:25 -0700" {5000000000}',
     Append("a b", (Appended(Flags(), InternalDate(837596665, -420), 5_000_000_000),))),
    (b"APPEND x {1}", Append("x", (Appended(Flags(), None, 1),))),
]


@pytest.mark.parametrize("line, value", APPENDS)
def test_append_is_read_before_its_message_comes_and_after(line, value):
    assert is_message(frame(b"a " + line))
    assert parse_command(frame(b"a " + line)) == (b"a", value)
    assert parse_command(frame(b"a " + line, b"", b"")) == (b"a", value)
    with pytest.raises(BadCommand):
        parse_command(frame(b"a " + line, b"", b" more"))


def test_the_mailbox_of_append_may_be_a_literal_and_is_not_the_message():
    assert not is_message(frame(b"a APPEND {5}"))
    assert is_message(frame(b"a append {5}", b"INBOX", b" {3}"))
    assert parse_command(frame(b"a APPEND {5}", b"INBOX", b" {3}"))[1] == Append("INBOX", (Appended(Flags(), None, 3),))


def test_only_append_has_a_message():
    for line in (b"a LOGIN APPEND {3}", b"APPEND x {3}", b"a SEARCH TEXT {3}", b"a UID APPEND x {3}", b"{3}"):
        assert not is_message(frame(line))


@pytest.mark.parametrize("line", [
    b"APPEND x (\\Seen {3}", b"APPEND x \"bad date\" {3}", b"APPEND x(\\Seen) {3}", b"APPEND x (\\Recent) {3}",
    b"APPEND x junk {3}", b"APPEND x  {3}", b"APPEND x", b"APPEND", b"APPEND x {3} ", b"APPEND x (\\Seen){3}"])
def test_append_that_is_wrong_is_refused_before_the_message(line):
    with pytest.raises(BadCommand) as refused:
        parse_command(frame(b"a " + line))
    assert refused.value.tag == b"a"


@pytest.mark.parametrize("line", [
    b"NOOP ", b"NOOP x", b"CAPABILITY  ", b"FOO", b"UID", b"UID NOOP", b"UID  FETCH 1 FLAGS", b"UID CLOSE", b"LOGIN x",
    b"LOGIN x  y", b'LOGIN "x y', b'LOGIN "x\\y" z', b'LOGIN x "\0"', b"LOGIN x y z", b"LOGIN {3}",
    b"LOGIN x {3}y", b"AUTHENTICATE", b"AUTHENTICATE PLAIN !", b"AUTHENTICATE PLAIN ", b"SELECT", b"SELECT ",
    b"SELECT (x)", b"SELECT a b", b"SELECT \x7f", b"SELECT a\rb", b"CREATE x (",
    b"CREATE x (FOO (\\Sent))", b"CREATE x (USE \\Sent)", b"CREATE x (USE (\\Sent)", b"RENAME a", b'LIST ""',
    b'LSUB "" * x',
    b"STATUS x ()", b"STATUS x", b"STATUS x MESSAGES", b"STATUS x (MODSEQ)", b"STATUS x (MESSAGES x)", b"ENABLE",
    b"ENABLE ", b"ID", b'ID ("a")', b'ID ("a" "b" x)', b"ID (a b)", b"ID NILX", b"COPY 0 x", b"COPY 1", b"COPY 1, x",
    b"COPY 4294967296 x", b"COPY 1:2:3 x", b"COPY $1 x", b"COPY : x", b"STORE 1 FLAGS", b"STORE 1 FLAGS ",
    b"STORE 1 FLAGS (\\Recent)", b"STORE 1 +FLAGS \\Recent", b"STORE 1 FLAGS (\\Foo)", b"STORE 1 FLAGS (\\Seen",
    b"STORE 1 FLAGS ( \\Seen", b"STORE 1 FLAGSX (a)", b"STORE 1 *FLAGS (a)", b"STORE 1 FLAGS (\\)",
    b"STORE 1 FLAGS (a) b", b"STORE 1 FLAGS.SILENT", b"FETCH 1", b"FETCH 1 ()", b"FETCH 1 FOO", b"FETCH 1 FLAGS UID",
    b"FETCH 1 (ALL)", b"FETCH 1 (FLAGS", b"FETCH 1 BODY[", b"FETCH 1 BODY[1", b"FETCH 1 BODY[0]", b"FETCH 1 BODY[1.]",
    b"FETCH 1 BODY[.TEXT]", b"FETCH 1 BODY[1TEXT]", b"FETCH 1 BODY[MIME]", b"FETCH 1 BODY[FOO]",
    b"FETCH 1 BODY[1.2.FOO]", b"FETCH 1 BODY.PEEK", b"FETCH 1 BODY[HEADER.FIELDS]", b"FETCH 1 BODY[HEADER.FIELDS ()]",
    b"COPY 00 x", b"FETCH 1 BODY[HEADER.FIELDS (a ]", b'FETCH 1 BODY[HEADER.FIELDS ("a b")]', b"FETCH 1 BODY[]<0.0>",
    b"FETCH 1 BODY[]<0>", b"FETCH 1 BODY[]<1.2", b"FETCH 1 BODY[]<1.99999999999999999999>", b"FETCH 1 BODY[4294967296]",
    b"FETCH 1 RFC822.PEEK", b"FETCH 1 ENVELOPE[]", b"FETCH 1 BODYSTRUCTURE[1]", b"FETCH 1 BODY[]x",
    b"FETCH 1 (BODY[]FLAGS)", b"UID EXPUNGE", b"UID EXPUNGE 1 2", b"EXPUNGE 1", b"MOVE 1 x y"])
def test_bad_syntax_names_the_tag(line):
    with pytest.raises(BadCommand) as refused:
        parse_command(frame(b"tag " + line))
    assert refused.value.tag == b"tag"
    assert refused.value.problem.status == b"BAD" and refused.value.problem.public.isascii()


@pytest.mark.parametrize("line, tag", [
    (b"", None), (b" NOOP", None), (b"+ NOOP", None), (b"a+b NOOP", None), (b'"a" NOOP', None), (b"\0", None),
    (b"a", b"a"), (b"a ", b"a"), (b"a  NOOP", b"a"), (b"a \xff", b"a"), (b"a\tNOOP", None), (b"* NOOP", None),
    (b"a1.x] FOO", b"a1.x]")])
def test_the_tag_is_kept_where_it_can_be_read(line, tag):
    with pytest.raises(BadCommand) as refused:
        parse_command(frame(line))
    assert refused.value.tag == tag


def test_a_mailbox_name_in_bad_utf7_is_a_no():
    with pytest.raises(BadCommand) as refused:
        parse_command(frame(b"a SELECT foo&bar"))
    assert (refused.value.problem.status, refused.value.problem.code) == (b"NO", b"CANNOT")


def test_the_head_is_read_without_the_arguments():
    head = Head(frame(b"a1 uid fetch junk ("))
    assert (head.tag, head.name) == (b"a1", b"UID FETCH")
    with pytest.raises(BadCommand):
        head.value()


@pytest.mark.parametrize("line", [
    b"STORE 1 FLAGS (a b c d)", b"STORE 1 FLAGS a b c d", b"STORE 1 FLAGS (keyword-too-long)",
    b"FETCH 1 (UID FLAGS BODY ENVELOPE)", b"FETCH 1 BODY[HEADER.FIELDS (a b c d)]", b"FETCH 1 BODY[1.1.1.1]",
    b"COPY 1,3,5,7 x"])
def test_counts_are_limited(line):
    assert parse_command(frame(b"a " + line))
    with pytest.raises(BadCommand):
        parse_command(frame(b"a " + line), Limits(items=3, ranges=3, word=10))


def test_the_counts_of_id_and_enable_and_uses_are_limited():
    for line in (b"ID (" + b" ".join([b'"a" "b"'] * 31) + b")", b'ID ("' + b"n" * 31 + b'" NIL)',
                 b'ID ("a" "' + b"v" * 1025 + b'")', b"ENABLE" + b" X" * 65,
                 b"CREATE x (USE (" + b" ".join([b"\\Sent"] * 9) + b"))"):
        with pytest.raises(BadCommand):
            parse_command(frame(b"a " + line))
