"""onecopy spark generate"""

from tools.cli.invocation import Invocation
from tools.cli.output import print_json
from tools.cli.progressbar import changing_bar
from tools.exits import Failure
from tools.spark.generate.generator import Shape, generate


def run(invocation: Invocation) -> int:
    """onecopy spark generate"""
    arguments = invocation.arguments
    shape = Shape(arguments.messages, arguments.users, arguments.references, arguments.seed, arguments.small)
    try:
        with changing_bar() as show:
            records = generate(arguments.folder, shape, processes=arguments.processes, progress=show)
    except OSError as error:
        raise Failure(f"cannot make a store in {arguments.folder}: {error.strerror}") from error
    if arguments.json:
        print_json({"messages": shape.messages, "users": shape.users, "records": records})
    else:
        print(f"{shape.messages} messages, {records} records, {shape.users} users in {arguments.folder}")
    return 0
