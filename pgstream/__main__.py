"""``python -m pgstream``: the same as the ``pgstream`` command."""

import sys

from pgstream.cli import main

sys.exit(main())
