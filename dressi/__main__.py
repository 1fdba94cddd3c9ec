"""``python -m dressi``."""

import sys

from dressi.cli import main

sys.exit(main())
