"""The program `onecopy`, where an installation begins it; also `python -m onecopy`."""

import sys

from tools.cli.program import main

if __name__ == "__main__":
    sys.exit(main())
