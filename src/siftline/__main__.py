"""`python -m siftline` is the command `siftline`."""

import sys

from siftline.cli import main

if __name__ == "__main__":
    sys.exit(main())
