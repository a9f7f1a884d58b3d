"""Makes the harness beside this file importable, whatever directory pytest is started in."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
