"""The documentation: generated pages are up to date, links lead somewhere, no private addresses."""

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def test_the_command_line_page_is_what_help_prints():
    spec = importlib.util.spec_from_file_location("cli_reference", ROOT / "tools" / "cli_reference.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.TARGET.read_text() == module.reference(), "run `make docs`"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page):
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_files_that_the_architecture_page_names_exist():
    text = (ROOT / "docs" / "architecture.md").read_text()
    named = set(re.findall(r"`((?:[a-z_]+/)+[a-z_0-9]+\.(?:py|h|cpp))`", text))
    assert named
    assert [
        name for name in named if not any((ROOT / top / name).exists() for top in ("", "src/octavo"))
    ] == []


def test_every_decision_record_is_listed():
    folder = ROOT / "docs" / "adr"
    listed = (folder / "README.md").read_text()
    assert [file.name for file in folder.glob("0*.md") if f"({file.name})" not in listed] == []
