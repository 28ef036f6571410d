"""onecopy spark generate"""

import sys

from tools.cli.invocation import Invocation
from tools.cli.output import print_json
from tools.exits import Failure
from tools.spark.generate.generator import Shape, generate


def run(invocation: Invocation) -> int:
    """onecopy spark generate"""
    arguments = invocation.arguments
    shape = Shape(arguments.messages, arguments.users, arguments.references, arguments.seed, arguments.small)
    person = sys.stderr.isatty()

    def show(what: str, done: int, total: int) -> None:
        print(f"\r\x1b[K{what} {done} of {total}", end="", file=sys.stderr, flush=True)

    try:
        records = generate(arguments.folder, shape, processes=arguments.processes,
                       progress=show if person else lambda what, done, total: None)
    except OSError as error:
        raise Failure(f"cannot make a store in {arguments.folder}: {error.strerror}") from error
    finally:
        if person:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    if arguments.json:
        print_json({"messages": shape.messages, "users": shape.users, "records": records})
    else:
        print(f"{shape.messages} messages, {records} records, {shape.users} users in {arguments.folder}")
    return 0
