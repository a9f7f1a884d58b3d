"""The comparison with the goldens in benchmarks/accuracy.py."""

import importlib.util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "benchmarks" / "accuracy.py"


@pytest.fixture
def accuracy():
    spec = importlib.util.spec_from_file_location("accuracy", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_errors_and_agreement_over_all_positions(accuracy):
    goldens = [
        {"ids": [5, 6], "continuation": [7], "token_logprob": [None, -1.0, -2.0], "top_ids": [[6], [7], [8]]},
        {"ids": [5], "continuation": [9], "token_logprob": [None, -3.0], "top_ids": [[9], [1]]},
    ]
    assert accuracy.sequences(goldens) == [[5, 6, 7], [5, 9]]
    scores = [accuracy.Scores([-1.5, -2.0], [6, 7, 0]), accuracy.Scores([-2.0], [9, 1])]
    result = accuracy.compare(goldens, scores)
    assert result.mean_error == pytest.approx(0.5)
    assert result.largest_error == 1.0
    assert result.top1 == pytest.approx(0.8)
    assert result.num_positions == 3
    assert "| us | 0.5000 | " in accuracy.table({"us": result})
