"""The language of Sieve: what RFCs' examples say of messages; the expected side is the RFC's text beside each."""

from datetime import UTC, datetime

import pytest

from store.sieve.compiling import compile_script
from store.sieve.keymatching import wildcards
from store.sieve.language import CAPABILITIES, SIEVE
from store.sieve.receivedmail import ReceivedMail
from store.sieve.scriptlimits import Limits
from store.sieve.scriptoutcome import KEPT
from store.sieve.scriptproblems import ScriptProblem
from store.sieve.scriptrun import Run, run
from store.sieve.surroundings import Envelope, Surroundings
from store.sieve.templates import template

ALL = "require [" + ", ".join(f'"{name}"' for name in CAPABILITIES) + "];\n"

ROADRUNNER = Envelope("coyote@desert.example.org", "roadrunner+tools@acme.example.com")

# Messages like those that the examples of RFC 5228 are about.
A = (b"Date: Tue, 1 Apr 1997 09:06:31 -0800 (PST)\r\nFrom: coyote@desert.example.org\r\n"
     b"To: roadrunner@acme.example.com\r\n"
     b"Subject: I have a present for you\r\n\r\nLook, I'm sorry about the whole anvil thing\r\n")
B = (b"From: youcouldberich!@reply-by-postal-mail.invalid\r\nTo: rube@landru.example.com\r\n"
     b"Date:  Mon, 31 Mar 1997 18:26:10 -0800\r\nSubject: $$$ YOU, TOO, CAN BE A MILLIONAIRE! $$$\r\n\r\n"
     b"YOU MAY HAVE ALREADY WON TEN MILLION DOLLARS\r\n")
PARTS = (b"From: a@example.org\r\nTo: bob+box@example.com\r\nSubject: parts\r\nX-Priority: 3\r\nX-Priority: 5\r\n"
         b"Message-ID: <p@example.org>\r\nMIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n"
         b"preamble\r\n--b\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: base64\r\n\r\n"
         b"SGVsbG8gZsO8ciBhbGxlCg==\r\n--b\r\nContent-Type: text/html\r\n\r\n<b>bold</b>\r\n"
         b"--b\r\nContent-Type: application/octet-stream; name=evil.exe\r\n"
         b"Content-Disposition: attachment; filename=evil.exe\r\n\r\nMZ\r\n--b--\r\n")


def outcome(script, message=A, envelope=ROADRUNNER, surroundings=None, compiled=None, limits=None):
    tree = compile_script(script, SIEVE)
    state = Run(ReceivedMail.of(message), envelope, surroundings or Surroundings(), **(
        {"compiled": compiled} if compiled else {}), **({"limits": limits} if limits else {}))
    return run([tree], state)


def says(test, message=A, **how):
    """What a test says of the message."""
    found = outcome(f'{ALL} if {test} {{ fileinto "yes"; }} else {{ fileinto "no"; }}', message, **how)
    assert found.failure == ""
    return {"yes": True, "no": False}[found.files[0].mailbox]


def boxes(script, message=A, **how):
    return [filed.mailbox for filed in outcome(ALL + script, message, **how).files]


@pytest.mark.parametrize("message, expected", [(A, True), (B, False)])
def test_the_examples_of_rfc_5228(message, expected):
    assert says('header :is ["sender", "from"] "coyote@desert.example.org"', message) is expected          # §2.4.2.1
    assert says('size :under 100K', message)
    assert says('address :is :all "from" "coyote@desert.example.org"', message) is expected
    assert says('header :contains "subject" "MILLIONAIRE"', message) is not expected


@pytest.mark.parametrize("test, expected", [
    # RFC 5228 §5.7: an empty key is in every field; "is" needs all of it
    ('header :is ["X-Caffeine"] [""]', False), ('header :contains ["X-Caffeine"] [""]', False),
    ('header :contains ["Subject"] [""]', True), ('header :is "subject" "i have a present for you"', True),
    ('header :is :comparator "i;octet" "subject" "i have a present for you"', False),
    ('header :matches "subject" "*present*"', True), ('header :matches "subject" "I ???? a *"', True),
    ('header :matches "subject" "I ??? a *"', False), ('header :matches "subject" "\\\\*"', False),
    # §5.1
    ('address :localpart "from" "coyote"', True), ('address :domain "from" "desert.example.org"', True),
    ('address :domain :contains "from" "example"', True), ('address :all "from" "coyote"', False),
    ('address :user "to" "roadrunner"', True), ('address :detail "to" ""', False),
    # §5.4, RFC 5233 §4
    ('envelope "from" "coyote@desert.example.org"', True), ('envelope :detail "to" "tools"', True),
    ('envelope :user "to" "roadrunner"', True),
    # §5.5, §5.6, §5.8, §5.9
    ('exists ["from", "date"]', True), ('exists ["from", "x-none"]', False), ("not false", True),
    ("allof (true, false)", False), ("anyof (true, false)", True), ("size :over 1", True), ("size :under 1", False),
    # RFC 5231 §6
    ('header :count "eq" "received" "0"', True), ('address :count "gt" ["from", "to"] "1"', True),
    ('header :value "ge" :comparator "i;ascii-numeric" "x-none" "1"', False),
    ('header :value "gt" "subject" "a"', True), ('header :value "lt" :comparator "i;octet" "subject" "a"', True),
    # RFC 4790 §9.1: no digits is infinity
    ('string :value "gt" :comparator "i;ascii-numeric" "x" "9999"', True),
    ('string :is :comparator "i;ascii-numeric" "007abc" "7"', True),
    ('string :is :comparator "i;ascii-numeric" "a" "b"', True),
    # RFC 5260 §4, §5
    ('date :originalzone "date" "hour" "09"', True), ('date :zone "+0000" "date" "hour" "17"', True),
    ('date :originalzone "date" "weekday" "2"', True), ('date :originalzone "date" "date" "1997-04-01"', True),
    ('date :zone "+0000" "date" "iso8601" "1997-04-01T17:06:31+00:00"', True),
    ('date :originalzone "date" "julian" "50539"', True), ('date :originalzone "date" "zone" "-0800"', True),
    ('date :originalzone "date" "std11" "Tue, 01 Apr 1997 09:06:31 -0800"', True),
    ('date "x-none" "year" "1997"', False), ('date :value "ge" :originalzone "date" "month" "04"', True),
    ('currentdate :zone "+0000" "year" "2026"', True), ('currentdate :zone "+0130" "minute" "30"', True),
    # RFC 5183, 5490, 8579, 5435
    ('environment "name" "onecopy"', True), ('environment "x" ""', False), ('mailboxexists "INBOX"', True),
    ('mailboxexists ["INBOX", "none"]', False), ('metadataexists "INBOX" "/shared/comment"', False),
    ('specialuse_exists "\\\\Trash"', False), ('valid_notify_method "mailto:a@example.org"', True),
    ('valid_notify_method ["mailto:a@example.org", "xmpp:a"]', False),
    ('valid_notify_method "mailto:a%0d%0ab@example.org"', False), ('valid_notify_method "mailto://x/a@b"', False),
    ('valid_notify_method "mailto:a%2Bb@example.org"', True),
    ('notify_method_capability "mailto:a@example.org" "online" "maybe"', True),
    # RFC 5235 §2: nobody has looked
    ('spamtest :value "eq" :comparator "i;ascii-numeric" "0"', True), ('virustest "0"', True),
    ('spamtest :percent :count "eq" "0"', True),
    # RFC 5463, draft-ietf-sieve-regex
    ('ihave "fileinto"', True), ('ihave ["fileinto", "x-none"]', False),
    ('header :regex "subject" "^I have (a|the) [a-z]+ for"', True), ('header :regex "subject" "presents+ "', False),
])
def test_what_tests_say(test, expected):
    now = datetime(2026, 11, 27, 12, 0, tzinfo=UTC)
    around = Surroundings(now, {"name": "onecopy"})
    assert says(test, surroundings=around) is expected


@pytest.mark.parametrize("test, expected", [
    # RFC 5173 §4, §5
    ('body :contains "für alle"', True), ('body :raw :contains "SGVsbG8"', True), ('body :contains "SGVsbG8"', False),
    ('body :content "text/html" :contains "bold"', True), ('body :content "text/html" :contains "Hello"', False),
    ('body :content "text" :contains ["Hello"]', True), ('body :content "" :contains "MZ"', True),
    ('body :content "multipart" :contains "preamble"', True), ('body :contains "MZ"', False),
    # RFC 5260 §6
    ('header :index 1 "x-priority" "3"', True), ('header :index 2 "x-priority" "3"', False),
    ('header :index 1 :last "x-priority" "5"', True), ('header :index 3 "x-priority" "5"', False),
    # RFC 5703 §4
    ('header :mime :anychild :contenttype "content-type" "text/html"', True),
    ('header :mime :contenttype "content-type" "text/html"', False),
    ('header :mime :anychild :param "filename" "content-disposition" "evil.exe"', True),
    ('header :mime :anychild :type "content-type" "application"', True),
    ('exists :mime :anychild "content-disposition"', True), ('exists :mime "content-disposition"', False),
])
def test_what_tests_say_of_parts(test, expected):
    assert says(test, PARTS) is expected


def test_variables():
    """RFC 5229 §3, §4: what wildcards stood for, modifiers by their precedence, unknown ones are empty."""
    assert boxes('if header :matches "subject" "I * a * for *" { fileinto "${1}/${2}/${3}/${0}"; }') == [
        "have/present/you/I have a present for you"]
    assert boxes('if header :matches "subject" "*e*" { fileinto "${1}|${2}"; }') == ["I hav| a present for you"]
    assert boxes('set :lower :upperfirst "x" "juMBlEd lETteRS"; fileinto "${x}";') == ["Jumbled letters"]
    assert boxes('set :quotewildcard "x" "Rock*"; fileinto "${x}";') == ["Rock\\*"]
    assert boxes('set :length "x" "abc"; fileinto "${X}${none}${9}";') == ["3"]
    assert boxes('set "a" "${"; fileinto "&${a}nd${\'}${not a name}";') == ["&${nd${'}${not a name}"]
    assert boxes('set :encodeurl "x" "a b&c"; fileinto "${x}";') == ["a%20b%26c"]


def test_encoded_characters():
    """RFC 5228 §2.4.2.4."""
    assert boxes('fileinto "${hex:24 24}${unicode:40}${hex:40}${hex:4}x${hex: }";') == ["$$@@\x04x${hex: }"]
    for bad in ("${unicode:d800}", "${unicode:110000}", "${hex:ff}"):
        with pytest.raises(ScriptProblem):
            compile_script(f'{ALL} fileinto "{bad}";', SIEVE)


def test_flags():
    """RFC 5232 §3, §4, §5."""
    def flags(script):
        return outcome(ALL + script).files[0].flags
    assert flags('setflag "\\\\seen $Work"; addflag ["\\\\FLAGGED"]; removeflag "$work"; keep;') == (
        "\\Seen", "\\Flagged")
    assert flags('addflag "a"; keep :flags "b c";') == ("b", "c")
    assert flags('setflag "v" "x y"; addflag "v" "z"; removeflag "v" "y"; keep :flags "${v}";') == ("x", "z")
    assert flags('addflag ["bad(", "\\\\nosuch", "ok"];') == ("ok",)
    assert says('hasflag "x"') is False
    assert boxes('addflag ["A", "B"]; if hasflag :contains "a" { fileinto "1"; } '
                 'if hasflag :count "ge" "2" { keep; }') == ["1", KEPT]


def test_keeping():
    """RFC 5228 §2.10: the implicit keep, and a mailbox that gets a message once."""
    assert boxes("") == [KEPT]
    assert boxes("discard;") == []
    assert boxes('fileinto "a"; fileinto "b"; fileinto "a";') == ["a", "b"]
    assert boxes('fileinto :copy "a";') == ["a", KEPT]
    assert boxes('redirect "x@example.org";') == []
    assert boxes('redirect :copy "x@example.org";') == [KEPT]
    assert boxes("stop; discard;") == [KEPT]
    assert boxes("discard; keep;") == [KEPT]


def test_a_failure_keeps_the_message_and_does_nothing_else():
    """RFC 5228 §2.10.6."""
    for script in ('fileinto "a"; error "no";', 'redirect "x@example.org"; set "a" "("; '
                   'if header :regex "subject" "${a}" { stop; }', 'fileinto "a"; redirect "${x}";',
                   'keep; reject "no";', 'reject "no"; vacation "x";'):
        found = outcome(ALL + script)
        assert [filed.mailbox for filed in found.files] == [KEPT] and found.failure and not found.redirects


def test_ihave_guards_what_is_not_there():
    """RFC 5463 §4."""
    script = 'require "ihave"; if ihave "vnd.none" { nosuch :tag "x"; } elsif ihave "fileinto" { fileinto "y"; }'
    assert [filed.mailbox for filed in outcome(script).files] == ["y"]
    assert outcome('require "ihave"; nosuch;').failure


def test_include():
    """RFC 6609: scripts have variables of their own; `global` shares them; `return` ends one; circles fail."""
    scripts = {
        ("child", False): 'set "a" "theirs"; global "g"; set "g" "shared"; fileinto "${a}"; return; discard;',
        ("site", True): 'fileinto "site";', ("self", False): 'include "self";'}

    def compiled(name, site):
        text = scripts.get((name, site))
        return None if text is None else compile_script(ALL + text, SIEVE)

    def found(script):
        return outcome(ALL + script, compiled=compiled)

    assert [one.mailbox for one in found(
        'global "g"; set "a" "mine"; include "child"; include :global "site"; '
        'fileinto "${a} ${g} ${global.g}";').files] == ["theirs", "site", "mine shared shared"]
    assert found('include "self";').failure
    assert found('include "none";').failure and not found('include :optional "none";').failure
    twice = found('include :once "child"; include :once "child"; keep;')
    assert [one.mailbox for one in twice.files] == ["theirs", KEPT]


def test_editheader():
    """RFC 5293: later tests and actions see the change, earlier actions do not; Received stays."""
    found = outcome(ALL + 'keep; addheader "X-New" "Grüße"; if exists "x-new" { fileinto "a"; } '
                    'deleteheader :matches "subject" "*present*"; if not exists "subject" { fileinto "b"; }')
    first, second, third = found.files
    assert first.edition.unchanged
    assert second.edition.added == b"X-New: =?utf-8?b?R3LDvMOfZQ==?=\r\n" and second.edition.whole is None
    assert third.edition.whole.startswith(b"X-New: ") and b"Subject" not in third.edition.whole
    assert third.edition.whole.endswith(A.partition(b"\r\n\r\n")[2])
    assert outcome(ALL + 'deleteheader "received"; deleteheader "auto-submitted";', b"Received: x\r\n\r\n"
                   ).files[0].edition.unchanged
    found = outcome(ALL + 'deleteheader :index 1 "x-priority"; keep;', PARTS)
    assert found.files[0].edition.whole == PARTS.replace(b"X-Priority: 3\r\n", b"")
    assert outcome(ALL + 'addheader :last "X-End" "1";').files[0].edition.whole.partition(b"\r\n\r\n")[0].endswith(
        b"X-End: 1")
    injected = outcome(ALL + 'addheader "X-A" "a\r\nBcc: b";').files[0].edition.added
    assert injected == b"X-A: a Bcc: b\r\n"


def test_parts_are_replaced_enclosed_and_extracted():
    """RFC 5703 §3, §5, §6, §7."""
    found = outcome(ALL + 'foreverypart { if header :mime :param "filename" :matches "content-disposition" "*.exe" '
                    '{ replace "gone"; break; } }', PARTS).files[0].edition.whole
    assert b"MZ" not in found and b"charset=utf-8\r\nContent-Transfer-Encoding: 8bit\r\n\r\ngone\r\n--b--" in found
    assert found.startswith(PARTS.partition(b"\r\n\r\n")[0])
    whole = outcome(ALL + 'replace :subject "new" "text";', PARTS).files[0].edition.whole
    assert whole.endswith(b"\r\n\r\ntext") and b"Subject: new\r\n" in whole and b"multipart" not in whole
    enclosed = outcome(ALL + 'enclose :subject "wrapped" :headers "to" "look";', A).files[0].edition.whole
    assert b"Subject: wrapped\r\n" in enclosed and enclosed.count(A) == 1 and b"message/rfc822" in enclosed
    assert boxes('foreverypart { if header :mime :contenttype "content-type" "text/plain" '
                 '{ extracttext :first 5 "t"; } } fileinto "${t}";', PARTS) == ["Hello"]
    for script in ('foreverypart :name "a" { break :name "b"; }', 'foreverypart { break :name "a"; }',
                   'break :name "a";', 'foreverypart :name "a" { break; } break :name "a";'):
        assert outcome(ALL + script, PARTS).failure
    assert boxes('set "n" "o"; foreverypart :name "${n}" { break :name "o"; } keep;', PARTS) == [KEPT]
    assert boxes('foreverypart :name "o" { foreverypart { break :name "o"; } fileinto "never"; }', PARTS) == [KEPT]


def test_vacation_and_notify():
    """RFC 5230 §4, RFC 6131 §2, RFC 5435 §3, RFC 8580."""
    answer = outcome(ALL + 'vacation :days 0 :subject "s" :from "me@example.org" :addresses ["a@b.example"] '
                     ':fcc "Sent" "text";').answer
    assert (answer.seconds, answer.subject, answer.sender, answer.addresses) == (
        86400, "s", "me@example.org", ("a@b.example",))
    assert answer.copy.mailbox == "Sent"
    assert outcome(ALL + 'vacation :seconds 30 "x";').answer.seconds == 30
    assert outcome(ALL + 'vacation "x"; vacation "y";').failure
    same = [outcome(ALL + f'vacation {how} "x";').answer.handle for how in ("", ":days 3", ':subject "s"')]
    assert same[0] == same[1] != same[2]
    notice, = outcome(ALL + 'notify :importance "1" :message "hi" "mailto:x@example.org";').notices
    assert (notice.method, notice.importance, notice.message) == ("mailto:x@example.org", 1, "hi")


class Lists(Surroundings):
    """coyote is in one list; of the other nothing is known."""

    def has_list(self, name):
        return name == "tag:example.com,2026:desert"

    def in_list(self, name, address):
        return self.has_list(name) and address == "coyote@desert.example.org"


@pytest.mark.parametrize("test, expected", [
    ('header :list "from" "tag:example.com,2026:desert"', True),
    ('header :list ["x-none", "from"] ["tag:example.com,2026:none", "tag:example.com,2026:desert"]', True),
    ('header :list "to" "tag:example.com,2026:desert"', False),
    ('header :list "subject" "tag:example.com,2026:desert"', False),
    ('header :list :comparator "i;octet" "from" "tag:example.com,2026:desert"', True),
    ('address :list "from" "tag:example.com,2026:desert"', True),
    ('address :list :domain "from" "tag:example.com,2026:desert"', False),
    ('envelope :list "from" "tag:example.com,2026:desert"', True),
    ('envelope :list "to" "tag:example.com,2026:desert"', False),
    ('string :list "Wile E. <coyote@desert.example.org>, x@y.example" "tag:example.com,2026:desert"', True),
    ('string :list "coyote" "tag:example.com,2026:desert"', False),
    ('valid_ext_list "tag:example.com,2026:desert"', True),
    ('valid_ext_list ["tag:example.com,2026:desert", "tag:example.com,2026:none"]', False),
])
def test_lists(test, expected):
    """RFC 6134 §2.2, §2.4: a value is a member of one of the lists; all of them are there."""
    assert says(test, surroundings=Lists()) is expected
    assert not says(test)                               # a site that has none


def test_what_a_list_matched_can_be_used():
    assert boxes('if header :list "from" "tag:example.com,2026:desert" { fileinto "${0}"; }', surroundings=Lists()) == [
        "coyote@desert.example.org"]


def test_the_directory_is_asked_so_often_and_not_more():
    keys = ",".join(['"tag:example.com,2026:none"'] * 60)
    costly(f'if header :list "from" [{keys}] {{ }}', A)
    costly(f"if valid_ext_list [{keys}] {{ }}", A)


def test_duplicate():
    """RFC 7352 §3: what was seen before; it is remembered when the script has run."""
    class Around(Surroundings):
        def seen(self, key):
            return key == "\0<p@example.org>"
    assert says("duplicate", PARTS, surroundings=Around())
    assert not says('duplicate :handle "other"', PARTS, surroundings=Around())
    assert not says("duplicate", A)                                  # no Message-ID
    found = outcome(ALL + 'if duplicate :seconds 60 { discard; }', PARTS)
    assert [(one.key, one.seconds) for one in found.seen] == [("\0<p@example.org>", 60)]


BAD = [
    "keep", "keep;;", "if true keep;", "if { }", "else { }", "if true { } elsif { }", "require;",
    'keep; require "copy";', 'require "none";', 'fileinto "x";', "discard 1;", 'keep "x";', "stop :x;", "redirect;",
    'redirect "no address";', 'redirect ["a@b.example", "c@d.example"];', "size :over 1;", "if size 1 { }",
    "if size :over :under 1 { }", 'if header "x" { }', 'if header :is :contains "a" "b" { }',
    'if header "a:b" "c" { }', 'if header :comparator "none" "a" "b" { }', 'if address "subject" "x" { }',
    "if not { }", "if not true, false { }", "if allof { }", "if anyof () { }", "if true { stop; ", "/* open",
    'keep "open', "99999999999999999999 ;", 'require ["relational"]; if header :value "zz" "a" "b" { }',
    'require "regex"; if header :regex "a" "' + "(b?)" * 33 + '" { }',
    'require "regex"; if header :regex "a" "(" { }', 'require "index"; if header :last "a" "b" { }',
    'require "date"; if date "date" "fortnight" "1" { }', 'require "date"; if currentdate :zone "CET" "hour" "1" { }',
    'require "variables"; set "1x" "y";', 'require "variables"; set "x" "${other.y}";',
    'require "include"; include "";', 'require "enotify"; notify "xmpp:x";',
    'require "vacation"; vacation :days 1 :days 2 "x";', 'require "envelope"; if envelope "helo" "x" { }',
    'require ["fileinto", "mailboxid", "special-use"]; fileinto :mailboxid "M1-1" :specialuse "\\\\Junk" "x";',
    'require "vacation"; vacation :mailboxid "M1-1" "x";',
    'if header :list "from" "x" { }', 'if valid_ext_list "x" { }', 'redirect :list "x@example.org";',
    'require "extlists"; redirect :list "tag:example.com,2026:all";', 'require "extlists"; if exists :list "from" { }',
    'require ["extlists", "date"]; if date :list "date" "year" "x" { }',
    'require "extlists"; if header :list :is "a" "b" { }',
    'require "comparator-i;ascii-numeric"; if header :contains :comparator "i;ascii-numeric" "a" "b" { }',
]


@pytest.mark.parametrize("script", BAD)
def test_what_is_no_script(script):
    with pytest.raises(ScriptProblem):
        compile_script(script, SIEVE)


def test_problems_say_where():
    with pytest.raises(ScriptProblem) as raised:
        compile_script('keep;\n  if header :foo "a" "b" { }', SIEVE)
    assert str(raised.value) == "line 2, column 13: header takes no :foo"


@pytest.mark.parametrize("script", [
    "keep;\n" * 10_001, "if not " + "not " * 40 + "true { }", "if true {" * 40 + "}" * 40, "# " + "x" * (64 << 10)])
def test_limits_of_a_script(script):
    with pytest.raises(ScriptProblem):
        compile_script(script, SIEVE)


@pytest.mark.parametrize("script, limits", [
    ("keep;" * 50, Limits(steps=20)), ('if header :contains "subject" ["a", "b"] { keep; }', Limits(octets=9)),
    ("".join(f'set "v{n}" "x";' for n in range(20)), Limits(variables=10)),
    ("".join(f'redirect "a{n}@example.org";' for n in range(9)), Limits()),
    ("".join(f'fileinto "{n}";' for n in range(90)), Limits()),
    ('notify "mailto:a@example.org";' * 9, Limits())])
def test_limits_of_a_run(script, limits):
    found = outcome(ALL + script, PARTS, limits=limits)
    assert found.failure and [filed.mailbox for filed in found.files] == [KEPT]


def test_a_variable_that_grows_is_cut_off():
    found = outcome(ALL + 'set "a" "0123456789"; ' + 'set "a" "${a}${a}${a}${a}"; ' * 20 + 'fileinto "${a}";')
    assert not found.failure and len(found.files[0].mailbox) <= 1000


def test_stars_cost_no_more_than_the_text_is_long():
    """`*a*a*a*...` on a text of a's takes no time that grows with the power of its stars."""
    message = b"Subject: " + b"a" * 50_000 + b"\r\n\r\n"
    assert not says('header :matches "subject" "' + "*a" * 1000 + '*b"', message)


def costly(script, message, **how):
    """The run ends by its limits, after few steps of the processor: counted, not timed."""
    found = outcome(ALL + script, message, **how)
    assert "more than" in found.failure, found.failure


MANY_FIELDS = b"X:\r\n" * 4000 + b"\r\n"


@pytest.mark.parametrize("script, message", [
    ('if header :contains "x" [' + ",".join(['"a"'] * 15_000) + "] { keep; }", MANY_FIELDS),
    ("if header [" + ",".join(['"x"'] * 15_000) + '] "a" { keep; }', MANY_FIELDS),
    ("if address [" + ",".join(['"from"'] * 8000) + '] "a" { keep; }', b"From: <a@example.org>\r\n" * 4000 + b"\r\n"),
    ('if date "date" "year" "1" {}' * 1500, b"Date: Tue, 1 Apr 1997 09:06:31 -0800\r\n" * 3000 + b"\r\n"),
    ('if header :matches "subject" "*' + "?a" * 2000 + '?b*" {}' + ' if header :matches "subject" "*' + "?a" * 2000
     + '?c*" {}', b"Subject: " + b"a" * 100_000 + b"\r\n\r\n"),
    ('if header :matches "subject" "*' + "?a" * 2000 + '?b*" {}', b"Subject: " + b"a" * 20_000 + b"\r\n\r\n"),
    ('if header :regex "subject" "(a?b?){250}c" {}', b"Subject: " + b"a" * 200_000 + b"\r\n\r\n"),
    ('if body :raw :contains "x" {}' * 1500, b"Subject: x\r\n\r\n" + b"y" * 200_000),
    ('set "a" "' + "x" * 4000 + '"; set "b" "' + "${a}" * 16 + '"; if string ["' + '${b}","' * 6000 + '"] "a" {}', A),
], ids=["keys", "names", "addresses", "dates", "marks", "a piece with many marks", "an expression", "body", "strings"])
def test_what_costs_much_is_ended_by_the_limits(script, message):
    costly(script, message)


@pytest.mark.parametrize("test, message", [
    ("header", MANY_FIELDS), ("address", b"From: <a@example.org>\r\n" * 4000 + b"\r\n")])
def test_fields_are_put_together_only_until_the_limit(faults, test, message):
    """8,000 names of 4,000 fields each are 32 million values, which one user's script would keep in memory."""
    asked = 0

    def values(found, mail, name):
        nonlocal asked
        asked += 1
        return found(mail, name)

    faults.around(ReceivedMail, "texts" if test == "header" else "values", values)
    names = ",".join(['"x"' if test == "header" else '"from"'] * 8000)
    costly(f'if {test} [{names}] "a" {{ keep; }}', message)
    assert 1 <= asked < 500


def test_references_make_no_more_than_a_string_holds():
    """16,000 references to a text of 64,000 characters are a gigabyte when they are put together."""
    asked = 0

    def value(_name):
        nonlocal asked
        asked += 1
        return "x" * 1000

    assert len(template("${a}" * 10_000).expanded(value, 5000)) == 5000 and asked < 10


def test_question_marks_stand_for_one_character_each():
    assert wildcards("abcdef", "a??d*") == [(0, 6), (1, 2), (2, 3), (4, 6)]
    assert wildcards("xxabcyy", "*?b?*y") == [(0, 7), (0, 2), (2, 3), (4, 5), (5, 6)]
    assert wildcards("a\0\0b", "a\0?b") == [(0, 4), (2, 3)] and wildcards("ab", "a??") is None
    assert wildcards("x.b", r"?\?b") is None and wildcards("x?b", r"?\?b") == [(0, 3), (0, 1)]


def test_a_message_is_not_written_again_without_end():
    """Each edition that is filed stays in memory until the delivery ends."""
    message = b"".join(b"X-%d: a\r\n" % at for at in range(30)) + b"\r\n" + b"x" * 200_000
    script = "".join(f'deleteheader "x-{at}"; fileinto :copy "m{at}"; ' for at in range(30))
    costly(script, message, limits=Limits(rewritten=400_000))
