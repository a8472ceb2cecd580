"""`python -m manifestcommit`: the command where no script is installed."""

import sys

from .cli.main import main

sys.exit(main())
