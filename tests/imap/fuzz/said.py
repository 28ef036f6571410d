"""What clients say in a fuzzed session: the lines of a script or commands made by choices, and what was done to them.

A session is a list of (connection, octets); the connection is 0 or 1.
"""

import re

from tests.support.conversations.scripts import SCRIPTS, octets
from tests.support.fuzz.changes import exchange, remove, repeat, shorten, spliced, spoil
from tests.support.fuzz.mail import broken

MOST = 200              # pieces of a session
_SAID = re.compile(r"C(\d?)(~?): ?(.*)")
_PLAIN = {"": 0, "1": 0}

NAMES = (b"INBOX", b"inbox", b"Sent", b"Sent", b"foo", b"foo/bar", b"foo/bar/baz", b"Entw&APw-rfe", b"user/bob/Team",
         b"public/news", b"Nowhere", b'"a b"', b"{3+}\r\nfoo", b"foo/", b'""', b"user/bob", b"&", b"foo//x", b'"a\\"b"',
         b"INBOX/x", b"user/alice/Sent", b'"Entw\xc3\xbcrfe"', b"{8+}\r\nEntw\xfcrfe", b"*", b"~bob", b"x" * 300)
SETS = (b"1", b"*", b"1:*", b"1:*", b"2:1", b"1,3", b"3:*", b"2:4", b"$", b"4294967295", b"9:12,*", b"0", b"1,1,1:2",
        b"*:*", b"5,4,3,2,1")
FLAGS = (b"(\\Seen)", b"\\Deleted", b"(\\Deleted)", b"(\\Flagged $Junk)", b"()", b"(\\Recent)", b"(a b c d)",
         b"\\Draft", b"(NonJunk $Forwarded \\Answered)", b"(\\Nonsense)", b"(a{3+}\r\nabc)")
PARTS = (b"", b"1", b"2", b"1.1", b"1.2.1", b"HEADER", b"TEXT", b"1.MIME", b"2.HEADER", b"1.TEXT", b"2.1.HEADER",
         b"HEADER.FIELDS (SUBJECT FROM)", b"HEADER.FIELDS.NOT (To)", b"2.HEADER.FIELDS ({4+}\r\ndate)", b"99",
         b"1.1.1.1.1.1.1.1")
ITEMS = (b"FLAGS", b"ALL", b"FULL", b"FAST", b"(UID FLAGS INTERNALDATE)", b"(ENVELOPE BODYSTRUCTURE BODY)", b"RFC822",
         b"RFC822.HEADER", b"RFC822.TEXT", b"(RFC822.SIZE BODY.PEEK[] UID)", b"MODSEQ", b"(FLAGS) (CHANGEDSINCE 1)",
         b"(FLAGS) (CHANGEDSINCE 1 VANISHED)", b"(UID BODY[])", b"BODY.PEEK[]<0.10>", b"BINARY.SIZE[1]",
         b"BINARY[1]<3.9>", b"(BINARY.PEEK[] UID)", b"BINARY[2.1]", b"NONSENSE", b"(FLAGS", b"BODY[]<99999999.5>")
KEYS = (b"ALL", b"SEEN", b"UNSEEN", b"RECENT", b"NEW", b"OLD", b"NOT DELETED", b"OR SEEN FLAGGED", b"1:*", b"UID 1:3",
        b"$", b"SUBJECT one", b"FROM {3+}\r\nbob", b"TEXT this", b"BODY hi", b"HEADER subject \"\"", b"LARGER 10",
        b"SINCE 1-Feb-1994", b"SENTON 1-Feb-2020", b"OLDER 1", b"YOUNGER 100000", b"MODSEQ 2", b"KEYWORD $Junk",
        b'MODSEQ "/flags/\\\\Seen" all 1', b"(OR (NOT ALL) (SMALLER 5))", b"UNKEYWORD a", b"9", b"NONSENSE",
        b"TEXT {2+}\r\n\xc3\xa4", b"TO \"=\"")
RETURNS = (b"", b"", b"RETURN () ", b"RETURN (MIN MAX COUNT) ", b"RETURN (SAVE) ", b"RETURN (SAVE ALL) ",
           b"RETURN (COUNT) ", b"RETURN (NONSENSE) ")
CHARSETS = (b"", b"", b"CHARSET UTF-8 ", b"CHARSET iso-8859-1 ", b"CHARSET x-none ", b"CHARSET utf-16 ")
SORTS = (b"(DATE)", b"(REVERSE SUBJECT)", b"(FROM TO CC SIZE ARRIVAL)", b"(DISPLAYFROM)", b"(REVERSE DISPLAYTO DATE)",
         b"()", b"(NONSENSE)")
STATUSES = (b"(MESSAGES UNSEEN)", b"(UIDNEXT UIDVALIDITY RECENT)", b"(SIZE DELETED DELETED-STORAGE HIGHESTMODSEQ)",
            b"(APPENDLIMIT)", b"()", b"(NONSENSE)")
PATTERNS = (b"*", b"%", b'""', b"foo/%", b"user/%", b"*/b*", b"(INBOX *)", b"Entw&APw-*", b"{1+}\r\n*", b"I%/*%*", b"(")
SELECTIONS = (b"", b"", b"(SUBSCRIBED) ", b"(SUBSCRIBED RECURSIVEMATCH) ", b"(SPECIAL-USE) ", b"() ", b"(REMOTE) ",
              b"(RECURSIVEMATCH) ")
GIVEN = (b"", b"", b" RETURN (CHILDREN SUBSCRIBED)", b" RETURN (STATUS (MESSAGES UIDNEXT))", b" RETURN (MYRIGHTS)",
         b" RETURN (SPECIAL-USE STATUS (HIGHESTMODSEQ))", b" RETURN (x)")
RIGHTS = (b"lrswipkxte", b"lr", b"+s", b"-r", b'""', b"lrz", b"+", b"lrswite", b"-x")
WHO = (b"bob", b"alice", b"anyone", b"-bob", b'""', b"nobody", b"group:staff", b"{3+}\r\nbob")
MAIL = (b"Subject: one\r\n\r\nHi\r\n", b"From: bob@example.org\r\nTo: alice@example.org\r\n\r\nThis is text\r\n", b"x",
        b"Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\nContent-Type: message/rfc822\r\n\r\n"
        b"Subject: in\r\n\r\na\r\n--b\r\n\r\nb\r\n--b--\r\n", b"", b"\0\r\n\r\n\0")
ENABLED = (b"CONDSTORE", b"QRESYNC", b"IMAP4rev2", b"UTF8=ACCEPT", b"QRESYNC IMAP4rev2", b"X", b"imap4REV2 condstore")
PLAIN = (b"NOOP", b"NOOP", b"CHECK", b"EXPUNGE", b"EXPUNGE", b"CAPABILITY", b"NAMESPACE", b"CLOSE", b"UNSELECT",
         b"ID NIL", b'ID ("name" "x" "os" NIL)', b"IDLE\r\nDONE", b"IDLE\r\nNOOP", b"GETQUOTA alice", b"LOGOUT",
         b"GETQUOTAROOT INBOX", b"SETQUOTA alice (STORAGE 1)", b"STARTTLS", b"UNAUTHENTICATE", b"FLY", b"IDLE",
         b"AUTHENTICATE PLAIN AGFsaWNlAHNlY3JldA==", b"AUTHENTICATE PLAIN\r\nAGFsaWNlAHNlY3JldA==", b"LOGIN bob secret",
         b"AUTHENTICATE LOGIN YWxpY2U=\r\nc2VjcmV0", b"AUTHENTICATE SCRAM-SHA-1 biwsbj1hbGljZSxyPWFiYw==\r\n*",
         b"AUTHENTICATE X {3}", b"LOGIN alice secret", b"NOOP {3+}\r\nabc", b"x" * 9000, b"NOOP " + b"x" * 70_000,
         b"NOOP " + b"x" * 66_000 + b"{5+}\r\nabcde", b"LOGIN alice {100000+}\r\n" + b"x" * 100_000, b"FOO {70000}",
         b"LIST \"\" {99999999999999}", b"LIST \"\" {9999999999+}", b"")
AFTERWARDS = (b"FETCH 1:* FLAGS", b"FETCH 1:* BODY[]", b"STORE 1:* +FLAGS (a)", b"SEARCH ALL", b"SORT (DATE) UTF-8 ALL",
              b"THREAD REFERENCES UTF-8 ALL", b"UID FETCH 1:* FLAGS", b"NOOP", b"COPY 1:* Sent", b"UID SEARCH 1:*",
              b"IDLE\r\nDONE", b"FETCH 3 (UID ENVELOPE)", b"CLOSE", b"UID STORE 1:* FLAGS ()")
SCRAPS = (b"\r\n", b"\n", b"\r", b"\0", b"\xff", b"DONE\r\n", b"*\r\n", b"{5}\r\n", b"a {3+}\r\nabc", b" \r\n", b"(",
          b'"', b"+ x\r\n", b"* OK x\r\n", b"AGFsaWNlAHNlY3JldA==\r\n", b"a\r\n", b"UID\r\n", b"b FETCH 1 {5}\r\n")


def read_scripts():
    """What the clients say in each script."""
    scripts = []
    for path in sorted(SCRIPTS.glob("*.txt")):
        said = []
        for line in path.read_text().splitlines():
            found = _SAID.fullmatch(line)
            if found is not None:
                text = re.sub(r"\$[a-z]+", "7", found[3])
                said.append((_PLAIN.get(found[1], 1), octets(text) if found[2] else text.encode() + b"\r\n"))
        said = [(which, what) for which, what in said if len(what) <= 5000]
        if said:
            scripts.append(said)
    return scripts


SCRIPTED = read_scripts()


def command(choices):
    """One command, without its tag."""
    one = choices.one
    uid = b"UID " * (choices.below(3) == 0)
    match choices.below(22):
        case 0 | 1 | 2:
            return uid + b"FETCH " + one(SETS) + b" " + one(ITEMS)
        case 3:
            peek = one((b"BODY.PEEK[", b"BODY["))
            return uid + b"FETCH " + one(SETS) + b" " + peek + one(PARTS) + one((b"]", b"]", b"]<0.7>", b"]<5.99999>"))
        case 4 | 5:
            since = one((b"", b"", b"", b"(UNCHANGEDSINCE 2) "))
            how = one((b"FLAGS ", b"+FLAGS ", b"-FLAGS ", b"+FLAGS.SILENT ", b"FLAGS.SILENT "))
            return uid + b"STORE " + one(SETS) + b" " + since + how + one(FLAGS)
        case 6 | 7:
            return uid + b"SEARCH " + one(RETURNS) + one(CHARSETS) + b" ".join(
                one(KEYS) for _ in range(1 + choices.below(3)))
        case 8:
            return uid + b"SORT " + one(RETURNS) + one(SORTS) + b" UTF-8 " + one(KEYS)
        case 9:
            return uid + b"THREAD " + one((b"REFERENCES", b"ORDEREDSUBJECT", b"X")) + b" UTF-8 " + one(KEYS)
        case 10:
            return uid + one((b"COPY ", b"MOVE ")) + one(SETS) + b" " + one(NAMES)
        case 11:
            return append(choices)
        case 12:
            return one((b"SELECT ", b"EXAMINE ")) + one(NAMES[:6]) + one(
                (b"", b"", b" (CONDSTORE)", b" (QRESYNC (1 1))", b" (QRESYNC (1 1 1:9 (1,2 1,2)))", b" (x)"))
        case 13:
            return one((b"CREATE ", b"DELETE ", b"SUBSCRIBE ", b"UNSUBSCRIBE ", b"GETACL ", b"MYRIGHTS ",
                        b"GETQUOTAROOT ")) + one(NAMES)
        case 14:
            return b"RENAME " + one(NAMES) + b" " + one(NAMES)
        case 15:
            return b"LIST " + one(SELECTIONS) + one((b'""', b"foo", b"user")) + b" " + one(PATTERNS) + one(GIVEN)
        case 16:
            return one((b"LSUB ", b"LIST ")) + one((b'""', b"foo/")) + b" " + one(PATTERNS)
        case 17:
            return b"STATUS " + one(NAMES) + b" " + one(STATUSES)
        case 18:
            return b"ENABLE " + one(ENABLED)
        case 19:
            return one((b"SETACL %b %b %b", b"DELETEACL %b %b%.0b", b"LISTRIGHTS %b %b%.0b")) % (
                one(NAMES), one(WHO), one(RIGHTS))
        case 20 if choices.below(2):
            return uid + b"EXPUNGE " + one(SETS)
    return one(PLAIN)


def append(choices):
    """APPEND of some messages, most of them broken."""
    pieces = [b"APPEND ", choices.one(NAMES[:5])]
    for _ in range(choices.one((1, 1, 1, 2, 3))):
        message = choices.one(MAIL) if choices.below(2) else broken(choices)[:20_000]
        flags = choices.one((b"", b"", b" (\\Seen)", b" (\\Deleted x)", b" (\\Recent)"))
        when = choices.one((b"", b"", b'" 1-Feb-1994 00:00:00 +0130"', b'"99-Feb-1994"'))
        size = len(message) + choices.one((0, 0, 0, 0, 0, 0, -1, 1))
        pieces += [flags, b" " + when if when else b"", choices.one((b" ", b" ", b" ~")),
                   choices.one((b"{%d+}\r\n", b"{%d+}\r\n", b"{%d}\r\n")) % max(0, size), message]
    return b"".join(pieces)


def tagged(choices, text):
    """A command as a client sends it."""
    return b"%c%d %b\r\n" % (b"abc"[choices.below(3)], choices.below(99), text)


def written(choices):
    """What is said in a session."""
    if choices.below(3) == 0:
        said = list(choices.one(SCRIPTED))
    else:
        said = [(0, b"a1 LOGIN alice secret\r\n"), (0, b"a2 SELECT INBOX\r\n")]
        if choices.below(2):
            said += [(1, b"a1 LOGIN %b secret\r\n" % choices.one((b"alice", b"alice", b"bob"))),
                     (1, b"a2 SELECT %b\r\n" % choices.one((b"INBOX", b"INBOX", b"user/alice/INBOX")))]
        if choices.below(3) == 0:
            said.insert(1, (0, b"a3 ENABLE " + choices.one(ENABLED) + b"\r\n"))
        both = len(said) > 3
        for _ in range(choices.below(20)):
            said.append((choices.below(2) if both else 0, tagged(choices, command(choices))))
    for _ in range(choices.below(5)):
        at = choices.below(len(said) + 1)
        choices.one(CHANGES)(choices, said, at)
    return said[:MOST]


def insert(choices, said, at):
    """Commands come between."""
    said[at:at] = [(choices.below(2), tagged(choices, command(choices))) for _ in range(1 + choices.below(4))]


def expunge(choices, said, at):
    """One expunges; the other goes on with the numbers that it knows."""
    one = choices.below(2)
    said[at:at] = [(which, tagged(choices, text)) for which, text in (
        (one, b"STORE " + choices.one(SETS[:6]) + b" +FLAGS.SILENT (\\Deleted)"), (one, b"EXPUNGE"),
        (1 - one, choices.one(AFTERWARDS)), (1 - one, choices.one(AFTERWARDS)))]


def scrap(choices, said, at):
    """Something comes between that is no command."""
    said[at:at] = [(choices.below(2), choices.one(SCRAPS))]


CHANGES = (remove, repeat, exchange, spliced(SCRIPTED), insert, insert, expunge, expunge, scrap, spoil, spoil, shorten)


def in_pieces(choices, said):
    """As the network brings it: each by itself, all that one says together (RFC 3501 §5.5), or cut anywhere."""
    how = choices.below(4)
    if how == 0:
        return said
    pieces = []
    for which, octets_ in said:
        if pieces and pieces[-1][0] == which and (how == 1 or choices.below(3)):
            pieces[-1] = which, pieces[-1][1] + octets_
        else:
            pieces.append((which, octets_))
    if how == 2:
        size = 1 + choices.below(200)
        pieces = [(which, octets_[at:at + max(size, len(octets_) // 200)]) for which, octets_ in pieces
                  for at in range(0, len(octets_), max(size, len(octets_) // 200))]
    return pieces
