"""Puts the benchmarks of the server on the path."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[3] / "benchmarks" / "http"))
