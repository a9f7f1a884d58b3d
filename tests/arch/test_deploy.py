"""What is in deploy/ agrees with the code: metric names, options, make targets."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

from octavo.server.config import ServerConfig
from octavo.server.metrics import METRICS, Kind

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"


def load_tool(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def series():
    """Every name that can be asked for, and its labels."""
    names = {}
    for spec in METRICS:
        parts = ("_bucket", "_sum", "_count") if spec.kind is Kind.HISTOGRAM else ("",)
        for part in parts:
            names[spec.exposed_name + part] = {"model_name", *spec.labels}
    return names


def dashboard_queries():
    panels = json.loads((DEPLOY / "grafana-dashboard.json").read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel.get("targets", [])]


def alert_queries():
    return re.findall(r"^\s+expr: (.*)$", (DEPLOY / "alerts.yml").read_text(), flags=re.MULTILINE)


def test_there_are_queries():
    assert len(dashboard_queries()) > 30
    assert len(alert_queries()) == (DEPLOY / "alerts.yml").read_text().count("alert: ")


@pytest.mark.parametrize("query", [*dashboard_queries(), *alert_queries()])
def test_a_query_asks_for_what_there_is(query):
    known = series()
    asked = re.findall(r"(?:vllm|octavo):\w+", query)
    assert asked or query.startswith("sum(process_resident_memory_bytes{")
    assert set(asked) <= set(known)
    labels = {label for name in asked for label in known[name]} | {"le", "instance", "job"}
    selected = {name for group in re.findall(r"\{(.*?)\}", query) for name in re.findall(r"(\w+)[=!]", group)}
    grouped = {name.strip() for group in re.findall(r"by \((.*?)\)", query) for name in group.split(",")}
    assert selected | grouped <= labels


@pytest.mark.parametrize("spec", METRICS, ids=lambda spec: spec.name)
def test_a_metric_of_our_own_is_on_the_dashboard(spec):
    if spec.name.startswith("octavo:") and not spec.name.endswith("_info"):
        assert any(spec.exposed_name in query for query in dashboard_queries())


def test_the_table_of_metrics_is_what_the_code_has():
    module = load_tool("metrics_reference")
    assert module.TARGET.read_text() == module.page(), "run `make docs`"


def test_the_unit_names_options_and_environment_that_there_are():
    unit = (DEPLOY / "octavo.service").read_text()
    options = {f"--{name.replace('_', '-')}" for name in ServerConfig.__dataclass_fields__} | {"--model"}
    named = set(re.findall(r"(?<![\w-])--[a-z-]+", unit)) - {"--system", "--home-dir", "--now"}
    assert named <= options
    assert "Type=notify" in unit


def test_the_image_is_built_as_make_builds():
    image = (DEPLOY / "Dockerfile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    assert {target for line in re.findall(r"RUN make (.*)", image) for target in line.split()} == {"wheel"}
    assert "wheel" in targets
    check = (ROOT / "tools" / "wheel_check.py").read_text()
    for words in ("--require-hashes", "runtime.lock", "--no-deps"):
        assert words in image
        assert words in check
