"""What a benchmark ran on, as plain values for its report."""

import os
import platform
from pathlib import Path
from typing import Any

import octavo
from octavo.cgroup import field, lines
from octavo.kernels.select import available_isas, available_threads

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


def describe_machine() -> dict[str, Any]:
    """Processor, caches, memory and software."""
    memory_kib = field(Path("/proc/meminfo"), "MemTotal:")
    return {
        "processor": processor_name(),
        "architecture": platform.machine(),
        "processors": os.cpu_count(),
        "threads": available_threads(),
        "isas": list(available_isas()),
        "last_level_cache_bytes": last_level_cache(),
        "memory_bytes": None if memory_kib is None else memory_kib * 1024,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "octavo": str(octavo.__version__),
    }


def processor_name(path: Path = Path("/proc/cpuinfo")) -> str:
    """As the system calls it."""
    for line in lines(path):
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Model"):
            return value.strip()
    return platform.processor() or "unknown"


def last_level_cache(folder: Path = _CACHES) -> int:
    """Bytes of the largest cache; 32 MiB where the system does not say."""
    sizes = [
        int(text[:-1]) * 1024
        for file in folder.glob("index*/size")
        for text in lines(file)
        if text.endswith("K")
    ]
    return max(sizes, default=32 * 2**20)
