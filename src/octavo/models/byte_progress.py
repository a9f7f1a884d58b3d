"""`byte_progress`: a bar on standard error for what takes a while and is counted in bytes."""

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn


def byte_progress(*, enabled: bool) -> Progress:
    """A bar that goes away in the end on a terminal: one that stands still would stay above an error."""
    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        console=console,
        transient=console.is_terminal,
        disable=not enabled,
    )
