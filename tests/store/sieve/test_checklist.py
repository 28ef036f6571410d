"""docs/sieve-checklist.md: what no other test of ours tries of that list; and all tests that it names are there."""

import re

import pytest

from store.filtering import userscripts
from store.sieve.compiling import compile_script
from store.sieve.language import SIEVE
from store.sieve.receivedmail import ReceivedMail
from store.sieve.scriptlimits import Limits
from store.sieve.scriptoutcome import KEPT
from store.sieve.scriptproblems import ScriptProblem
from store.sieve.scriptrun import Run, run
from tests.store.sieve.test_language import ALL, PARTS, ROADRUNNER, A, boxes, costly, outcome, says
from tests.support import ROOT

PAGE = (ROOT / "docs/sieve-checklist.md").read_text()
WHERE = {"language": "tests/store/sieve/test_language.py", "checklist": "tests/store/sieve/test_checklist.py",
         "delivery": "tests/lmtp/test_scripts_of_users.py", "hostile": "tests/lmtp/test_hostile_scripts.py",
         "loops": "tests/lmtp/test_script_loops.py", "random": "tests/store/sieve/test_scripts_at_random.py",
         "lists": "tests/store/filtering/test_externallists.py", "site": "tests/store/filtering/test_userscripts.py"}
ODD = (b"From: \"Coyote, Wile\" <wile@acme.example>\r\nTo: friends: a@x.example, (a comment) b@y.example;\r\n"
       b"Cc: \"quoted local\"@z.example,\r\n <c@z.example>\r\nSubject: =?utf-8?q?Gr=C3=BC=C3=9Fe?= one\r\n two\r\n"
       b"X-Empty:\r\nX-Twice: first\r\nX-Twice: second\r\n\r\ntext\r\n")


@pytest.mark.parametrize("test, expected", [
    # RFC 5228 §2.4.2.2, §5.1, §5.7: groups, comments, quoted strings; folded and encoded fields
    ('address :domain "to" "y.example"', True), ('address :localpart "to" "a"', True),
    ('address :all "from" "wile@acme.example"', True), ('address "from" "Coyote"', False),
    ('address :domain :count "eq" "cc" "2"', True), ('header "subject" "Grüße one two"', True),
    ('exists "x-empty"', True), ('header "x-empty" ""', True), ('header :contains "x-empty" "a"', False),
    ('header "x-twice" "second"', True), ('header :count "eq" ["x-twice", "x-empty", "x-none"] "3"', True),
    ('header "X-TWICE" ["no", "first"]', True),
    # §5.5: of each name there is one; §5.9: neither is so for what is exactly so large
    ('exists ["x-twice", "X-EMPTY"]', True), (f"size :over {len(ODD)}", False), (f"size :under {len(ODD)}", False),
    ("size :under 1K", True), ("size :over 1G", False),
    # §2.7.3, RFC 4790 §9.2, §9.3; RFC 5051
    ('header :comparator "i;ascii-casemap" "subject" "GRÜSSE ONE TWO"', False),
    ('header :comparator "i;unicode-casemap" "subject" "GRÜßE ONE TWO"', True),
    # RFC 5231 §4.2, §5: each value is compared, numbers as numbers
    ('string :value "gt" :comparator "i;ascii-numeric" "10" "9"', True), ('string :value "gt" "10" "9"', False),
    ('string :value "ne" :comparator "i;ascii-numeric" "010" "10"', False),
    # draft-ietf-sieve-regex §2; RFC 5229 §5: of no variable there is the empty string
    ('header :regex :comparator "i;octet" "subject" "^gr"', False), ('string "${none}" ""', True),
    ('string :count "eq" ["a", "", "b"] "2"', True),
])
def test_what_tests_say_of_odd_fields(test, expected):
    assert says(test, ODD) is expected


def test_what_matched_stands_for_wildcards_and_groups():
    """RFC 5229 §3.2; RFC 5173 §5: `body` sets none of them."""
    assert boxes('if header :regex "subject" "(present) for (y..)" { fileinto "${2} ${1} ${0}"; }') == [
        "you present present for you"]
    assert boxes('if header :matches "subject" "I *" {} if header :matches "subject" "x*" {} fileinto "${1}";') == [
        "have a present for you"]                       # a test that says no leaves them
    assert boxes('if header :matches "subject" "I *" {} if body :matches "*" {} fileinto "${1}";') == [
        "have a present for you"]


def test_fields_are_added_and_removed_in_turn():
    """RFC 5293 §4, §5: each command sees what the one before has left; a field added on top is the first."""
    found = outcome(ALL + 'addheader "X-A" "1"; addheader "X-A" "2"; deleteheader "x-a" "1"; addheader "X-A" "3"; '
                    'if header :index 1 "x-a" "3" { fileinto "first"; } deleteheader "x-a"; '
                    'if not exists "x-a" { fileinto "none"; }', A)
    assert [one.mailbox for one in found.files] == ["first", "none"]
    assert b"X-A: 1" not in found.files[0].edition.whole and b"X-A" not in found.files[1].edition.whole


def together(*scripts):
    state = Run(ReceivedMail.of(A), ROADRUNNER)
    return run([compile_script(ALL + script, SIEVE) for script in scripts], state)


def test_several_scripts_run_as_one():
    """What the first has said holds in the second: mailboxes once, flags; variables are each script's own."""
    assert [one.mailbox for one in together('fileinto "a";', 'fileinto "a"; fileinto "b";').files] == ["a", "b"]
    assert [one.flags for one in together('addflag "x";', 'addflag "y"; keep;').files] == [("x", "y")]
    assert [one.mailbox for one in together("stop;", "discard;").files] == [KEPT]
    assert [one.mailbox for one in together('set "a" "b";', 'fileinto "x${a}";').files] == ["x"]
    assert together('fileinto "a";', 'reject "no";').failure            # RFC 5429 §2.3


@pytest.mark.parametrize("address, is_one", [
    ("bob@example.org", True), ("Bob <bob@example.org>", True), ("bob@", False), ("a@b.example, c@d.example", False),
    ("", False), ("bob", False)])
def test_addresses_of_redirect(address, is_one):
    """RFC 5228 §4.2, §2.4.2.3: one mailbox, whatever stands before it."""
    script = f'redirect "{address}";'
    if is_one:
        assert [one.address for one in outcome(script).redirects] == ["bob@example.org"]
    else:
        with pytest.raises(ScriptProblem):
            compile_script(script, SIEVE)


def test_a_script_that_is_no_utf8_is_refused():
    """RFC 5228 §2.1: a name of a mailbox cannot be anything else, either."""
    with pytest.raises(ScriptProblem, match="UTF-8") as raised:
        userscripts.check(b'require "fileinto";\nfileinto "a\xff\xfe";')
    assert raised.value.place.line == 2


def test_parts_within_parts():
    """RFC 5703 §3.1, §4.2: loops go over the parts of a part; addresses of parts are looked at, too."""
    assert boxes('foreverypart { if address :mime :anychild :domain "from" "example.org" { fileinto "found"; } }',
                 PARTS) == ["found"]
    assert boxes('foreverypart { if header :mime :type "content-type" "text" { fileinto "text"; break; } }', PARTS) == [
        "text"]
    assert boxes('foreverypart { if header :mime :subtype "content-type" "html" '
                 '{ extracttext :upper "t"; fileinto "${t}"; } }', PARTS)[0].startswith("<B>BOLD</B>")


def test_names_that_are_not_there_cost_steps():
    """Thousands are looked for at each test, and a test can stand in loops."""
    names = ",".join(f'"x{number}"' for number in range(3500))
    costly(f'foreverypart {{ if header [{names}] "a" {{ }} if exists [{names}] {{ }} }}', PARTS,
           limits=Limits(steps=20_000))


def test_the_page_names_tests_that_there_are():
    named = re.findall(r"(\w+): ((?:`test_\w+`(?:, )?)+)", PAGE)
    assert len(named) > 100
    for where, tests in named:
        text = (ROOT / WHERE[where]).read_text()
        for test in re.findall(r"`(test_\w+)`", tests):
            assert f"def {test}(" in text, (where, test)
