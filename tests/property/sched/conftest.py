"""Makes the harness of the unit tests importable, whatever directory pytest is started in."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "unit" / "sched"))
