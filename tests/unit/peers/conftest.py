"""The scripts in benchmarks/peers import one another by name."""

import sys
from pathlib import Path

import pytest

PEERS = Path(__file__).resolve().parents[3] / "benchmarks" / "peers"


@pytest.fixture(autouse=True)
def peers_on_the_path(monkeypatch):
    monkeypatch.syspath_prepend(str(PEERS))
    yield PEERS
    for name in ("summary", "run", "engine_process", "protocol", "adapter_llamacpp"):
        sys.modules.pop(name, None)
