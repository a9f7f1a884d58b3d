"""Puts the cache's test modules on the path: `cache_model` here, `kv_harness` beside the unit tests."""

import sys
from pathlib import Path

sys.path += [str(Path(__file__).parent), str(Path(__file__).parents[2] / "unit" / "kv")]
