"""onecopy check"""

import attrs

from store.check import check
from tools.commands import Invocation, Parsers
from tools.output import print_json


def add(parser: Parsers) -> None:
    """Make the parsers."""
    made = parser("check", check_store, "check all that must hold in the store; exit status 1 if something does not")
    made.add_argument("--json", action="store_true")


def check_store(invocation: Invocation) -> int:
    """onecopy check"""
    with invocation.store() as store:
        findings = check(store)
    if invocation.arguments.json:
        print_json([attrs.asdict(finding) for finding in findings])
    else:
        for finding in findings:
            print(f"{finding.where}: {finding.what} (repair: onecopy {finding.repair})")
        if not findings:
            print("nothing wrong was found")
    return 1 if findings else 0
