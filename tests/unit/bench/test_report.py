import io
import json

import pytest
from rich.console import Console

from octavo.bench.report import Column, Report, format_value
from octavo.bench.spread import Spread

COLUMNS = (Column("op", "op"), Column("us", "µs", has_range=True), Column("share", "of limit", is_share=True))


def make_report(*, others: float = 0.01) -> Report:
    report = Report(
        "kernels",
        COLUMNS,
        command=["octavo", "bench", "kernels"],
        machine={"processor": "a processor"},
        config={"isa": "generic"},
        limits={"read GB/s": 20.0},
        others=others,
    )
    report.add({"op": "linear", "us": Spread.of([1.0, 2.0, 3.0]), "share": 0.755, "hidden": 1e-7})
    report.add({"op": "norm", "us": Spread.of([4.0]), "share": None})
    return report


def test_json_has_the_documented_fields(tmp_path):
    make_report().write(tmp_path / "out.json")
    found = json.loads((tmp_path / "out.json").read_text())
    assert set(found) == {
        "schema", "benchmark", "command", "time", "machine", "config", "limits", "noise", "rows",
    }  # fmt: skip
    assert found["schema"] == 1
    assert found["noise"] == {"others": 0.01, "limit": 0.08, "clean": True}
    assert found["rows"][0] == {
        "op": "linear",
        "us": {"median": 2.0, "low": 1.0, "high": 3.0, "num_runs": 3},
        "share": 0.755,
        "hidden": 1e-7,
    }
    assert found["rows"][1]["share"] is None


def test_a_busy_run_is_never_called_clean():
    report = make_report(others=0.081)
    assert report.as_json()["noise"]["clean"] is False
    assert report.noise_line.startswith("NOT CLEAN: others took 8.1% of the machine")
    assert make_report(others=0.08).noise_line.startswith("clean")


def test_the_table():
    page = io.StringIO()
    Console(width=100, file=page).print(make_report().table())
    text = page.getvalue()
    assert "2.00 (1.00 … 3.00)" in text
    assert "76%" in text
    assert "–" in text
    assert "read GB/s 20.0" in text


@pytest.mark.parametrize(
    ("value", "column", "text"),
    [
        (None, Column("a", "a"), "–"),
        (0.5, Column("a", "a", is_share=True), "50%"),
        (2.5e-7, Column("a", "a"), "2.5e-07"),
        (Spread.of([1.0, 3.0]), Column("a", "a"), "2.00"),
        ("text", Column("a", "a"), "text"),
    ],
)
def test_cells(value, column, text):
    assert format_value(value, column) == text
