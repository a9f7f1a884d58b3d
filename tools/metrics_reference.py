"""Write the table of metrics in docs/observability.md from the code. A test fails while the two differ."""

import re
from pathlib import Path

from octavo.server.metrics import METRICS, MetricSpec

TARGET = Path(__file__).resolve().parent.parent / "docs" / "observability.md"
_BEGIN = "<!-- metrics: written by `make docs` -->\n"
_END = "<!-- end of metrics -->\n"


def _row(spec: MetricSpec) -> str:
    labels = ", ".join(f"`{label}`" for label in spec.labels)
    return f"| `{spec.exposed_name}` | {spec.kind} | {labels} | {spec.documentation} |\n"


def page() -> str:
    """The whole page, with the table as it should be."""
    table = "| name | type | labels | what |\n|---|---|---|---|\n" + "".join(map(_row, METRICS))
    text = TARGET.read_text(encoding="utf-8")
    return re.sub(f"{_BEGIN}.*{_END}", lambda _: _BEGIN + "\n" + table + "\n" + _END, text, flags=re.DOTALL)


def main() -> None:
    """Write the page."""
    TARGET.write_text(page(), encoding="utf-8")
    print(f"wrote {TARGET.name}")


if __name__ == "__main__":
    main()
