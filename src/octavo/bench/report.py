"""`Report`: what a benchmark found, as a table for people and JSON for programs.

The JSON object has ``schema``, ``benchmark``, ``command``, ``time``, ``machine``, ``config``, ``limits``,
``noise`` and ``rows``. A repeated measurement is an object with ``median``, ``low``, ``high``, ``num_runs``.
"""

import datetime
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from rich import box
from rich.table import Table

from octavo.bench.noise import QUIET_SHARE
from octavo.bench.spread import Spread, significant

SCHEMA = 1


class Column(NamedTuple):
    """Where a value of a row is shown."""

    key: str
    title: str
    is_number: bool = True
    is_share: bool = False
    """Shown in per cent."""
    has_range: bool = False
    """Shown with the range of its measurements; JSON always has it."""
    wraps: bool = False
    """Gives way where the terminal is narrow."""


@dataclass(slots=True)
class Report:
    """Rows of values by name, and everything needed to read them."""

    benchmark: str
    columns: Sequence[Column]
    command: Sequence[str]
    machine: Mapping[str, Any]
    config: Mapping[str, Any]
    """The resolved configuration."""
    limits: Mapping[str, float] = field(default_factory=dict)
    """What the machine allows, measured in the same run, by name with its unit."""
    others: float = 0.0
    """Share of the machine that other processes took."""
    rows: list[dict[str, Any]] = field(default_factory=list)

    def add(self, row: Mapping[str, Any]) -> None:
        """Append a row."""
        self.rows.append(dict(row))

    @property
    def is_clean(self) -> bool:
        """Whether the others took little enough for the figures to count."""
        return self.others <= QUIET_SHARE

    @property
    def noise_line(self) -> str:
        """One line about the others."""
        share = f"others took {self.others:.1%} of the machine"
        if self.is_clean:
            return f"clean: {share}"
        return f"NOT CLEAN: {share}, more than {QUIET_SHARE:.0%}; do not quote these figures"

    def as_json(self) -> dict[str, Any]:
        """Plain values only."""
        return {
            "schema": SCHEMA,
            "benchmark": self.benchmark,
            "command": list(self.command),
            "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "machine": dict(self.machine),
            "config": dict(self.config),
            "limits": dict(self.limits),
            "noise": {"others": self.others, "limit": QUIET_SHARE, "clean": self.is_clean},
            "rows": [{key: _plain(value) for key, value in row.items()} for row in self.rows],
        }

    def write(self, path: Path) -> None:
        """Write the JSON, indented."""
        path.write_text(json.dumps(self.as_json(), ensure_ascii=False, indent=1) + "\n", encoding="utf-8")

    def table(self) -> Table:
        """For the terminal."""
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, caption=self._caption(), caption_justify="left")
        for column in self.columns:
            table.add_column(
                column.title, justify="right" if column.is_number else "left", no_wrap=not column.wraps
            )
        for row in self.rows:
            table.add_row(*(format_value(row.get(column.key), column) for column in self.columns))
        return table

    def _caption(self) -> str:
        limits = [f"{name} {significant(value)}" for name, value in self.limits.items()]
        return "\n".join([", ".join(limits), self.noise_line] if limits else [self.noise_line])


def format_value(value: object, column: Column) -> str:
    """A cell: a share in per cent, a small number with an exponent, a dash for nothing."""
    if value is None:
        return "–"
    if isinstance(value, Spread):
        return value.format() if column.has_range else significant(value.median)
    if isinstance(value, float):
        if column.is_share:
            return f"{value:.0%}"
        return f"{value:.1e}" if 0 < abs(value) < 1e-3 else significant(value)
    return str(value)


def _plain(value: object) -> object:
    return value._asdict() if isinstance(value, Spread) else value
