"""``python -m lamina``."""

import sys

from lamina.cli import main

sys.exit(main())
