"""Pages of mapped weights are given back; everything else is left alone."""

import mmap
from pathlib import Path

import numpy as np

from octavo.kernels.mapped_pages import MappedPages
from octavo.kernels.weight import Quantization, Weight

NUM_FLOATS = 2**20


def resident_bytes(path: Path) -> int:
    """Of the mappings of a file in this process."""
    lines = Path("/proc/self/smaps").read_text().splitlines()
    start = next(i for i, line in enumerate(lines) if line.endswith(str(path)))
    [resident] = [line for line in lines[start : start + 10] if line.startswith("Rss:")]
    return int(resident.split()[1]) * 1024


def weight_of(raw: np.ndarray) -> Weight:
    return Weight("w", (NUM_FLOATS,), Quantization.F32, raw)


def test_released_pages_are_read_again_when_they_are_used(tmp_path):
    path = tmp_path / "weights"
    path.write_bytes(np.arange(NUM_FLOATS, dtype=np.float32).tobytes())
    with path.open("rb") as file:
        mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    raw = np.frombuffer(memoryview(mapping)[:], np.uint8)
    reports = []
    report = MappedPages([weight_of(raw)]).released_by(lambda done, total: reports.append((done, total)))
    assert raw.view(np.float32).sum() > 0
    assert resident_bytes(path) == NUM_FLOATS * 4
    report(1, 2)
    assert reports == [(1, 2)]
    assert resident_bytes(path) == 0
    assert raw.view(np.float32)[-1] == NUM_FLOATS - 1


def test_private_memory_keeps_its_content():
    raw = np.arange(NUM_FLOATS, dtype=np.float32).view(np.uint8)
    MappedPages([weight_of(raw), weight_of(raw[:])]).released_by(None)(1, 1)
    assert raw.view(np.float32)[-1] == NUM_FLOATS - 1
