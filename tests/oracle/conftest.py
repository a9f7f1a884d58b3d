"""Puts this folder on the path, so that every test here can import `harness` and `tolerances` by name.

pytest runs with ``--import-mode=importlib``, which adds no folder of its own.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
