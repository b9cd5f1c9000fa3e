"""`python -m pycomm`: the command line."""

import sys

from pycomm.cli import main

if __name__ == "__main__":
    sys.exit(main())
