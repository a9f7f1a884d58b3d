"""What `octavo doctor` looks at."""

import os
import platform
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from rich import box
from rich.table import Table
from rich.text import Text

import octavo
from octavo.cli.self_test import TOLERANCE, largest_difference
from octavo.errors import OctavoError
from octavo.kernels.select import NativeSupport, available_threads, native_support
from octavo.models.cache_folder import cache_folder
from octavo.models.default_model import DEFAULT_MODEL, find_cached
from octavo.runner.memory import format_memory_size, free_memory

HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
CPU_INFO = Path("/proc/cpuinfo")
LITTLE_MEMORY = 512 * 2**20
"""Less free memory than this is too little for the default model and a useful cache [bytes]."""
DEPENDENCIES = ("numpy", "tokenizers", "jinja2", "rich", "cyclopts")


class Check(NamedTuple):
    """One thing that was looked at."""

    name: str
    finding: str
    way_out: str = ""
    """What helps if it is broken; empty if it is not."""


def checkup() -> list[Check]:
    """Look at everything; nothing is changed and nothing is downloaded."""
    native = native_support()
    return [
        Check("octavo", f"{octavo.__version__}, Python {platform.python_version()}, {platform.system()}"),
        Check("libraries", ", ".join(f"{name} {version(name)}" for name in DEPENDENCIES)),
        Check("processor", f"{_processor()}, {platform.machine()}"),
        _native_check(native),
        Check(
            "threads", f"{available_threads()} (of {os.cpu_count()}; affinity mask and cgroup quota counted)"
        ),
        _memory_check(free_memory()),
        Check("huge pages", _huge_pages()),
        *_self_tests(native.isas, largest_difference),
        _model_check(),
    ]


def report(checks: list[Check]) -> Table:
    """Finding by finding, the broken ones marked."""
    table = Table(box=box.SIMPLE, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(style="cyan", no_wrap=True)
    table.add_column()
    for check in checks:
        mark = Text("✗", style="bold red") if check.way_out else Text("✓", style="green")
        table.add_row(mark, check.name, Text(check.finding))
    return table


def _native_check(native: NativeSupport) -> Check:
    if native.problem:
        return Check("kernels", native.problem, "run `make setup`, or install a wheel")
    return Check("kernels", f"native {native.isas[0]} chosen; available: {', '.join(native.isas)}")


def _memory_check(free_bytes: int) -> Check:
    finding = f"{format_memory_size(free_bytes)} free (cgroup limits counted)"
    way_out = "" if free_bytes >= LITTLE_MEMORY else "free some memory, or raise the container's limit"
    return Check("memory", finding, way_out)


def _self_tests(isas: tuple[str, ...], difference: Callable[[str], float]) -> Iterator[Check]:
    """The native kernels against the reference, for every instruction set that runs here."""
    for isa in isas:
        name = f"self-test {isa}"
        try:
            found = difference(isa)
        except OctavoError as error:
            yield Check(name, str(error), "build again with `make clean setup`")
            continue
        finding = f"logits differ from the reference's by at most {found:.1e} ({TOLERANCE:.0e} is allowed)"
        yield Check(
            name, finding, "" if found <= TOLERANCE else "do not use it; please report this processor"
        )


def _model_check() -> Check:
    path = find_cached(DEFAULT_MODEL, cache_folder())
    if path is None:
        return Check("model", f"{DEFAULT_MODEL.name} is not here yet; `octavo fetch` downloads it")
    return Check("model", f"{DEFAULT_MODEL.name} is here: {path}")


def _processor() -> str:
    try:
        lines = CPU_INFO.read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith(("model name", "Model"))]
    return names[0] if names else platform.processor() or sys.platform


def _huge_pages() -> str:
    """Which policy is chosen, as in ``always [madvise] never``."""
    try:
        choices = HUGE_PAGES.read_text(encoding="utf-8").split()
    except OSError:
        return "not available here; a little slower, nothing else"
    chosen = next((choice.strip("[]") for choice in choices if choice.startswith("[")), "unknown")
    return f"{chosen}; used where asked for" if chosen != "never" else "turned off; a little slower"
