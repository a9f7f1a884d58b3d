"""Puts `kv_harness` on the path: what the cache's tests share."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
