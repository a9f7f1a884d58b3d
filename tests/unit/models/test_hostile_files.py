"""Every hostile file is refused in one line, within a second of CPU time and in bounded memory."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hostile_files import HOSTILE_FILES, HOSTILE_TEMPLATES, with_template

LOADER = Path(__file__).parents[2] / "fixtures" / "limited_loading.py"
LONGEST_MESSAGE = 1_000


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory, tiny_folder) -> dict[str, str]:
    """What came of each file, by its name."""
    whole = tiny_folder(num_layers=1)
    paths = {
        name: str(file.make(tmp_path_factory.mktemp("hostile"), whole))
        for name, file in HOSTILE_FILES.items()
    }
    templates = {
        name: str(with_template(tmp_path_factory.mktemp("template"), source))
        for name, (source, _) in HOSTILE_TEMPLATES.items()
    }
    everything = {"a whole folder": str(whole), **paths, **templates}
    result = subprocess.run(
        [sys.executable, str(LOADER)],
        input=json.dumps([*everything.values()]),
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )
    return dict(zip(everything, json.loads(result.stdout), strict=True))


def check(outcome: str, kinds: tuple[str, ...], expected: str) -> None:
    kind, _, message = outcome.partition(": ")
    assert kind in kinds, outcome[:500]
    assert message.isprintable()
    assert len(message) < LONGEST_MESSAGE
    assert re.search(expected, message), message


@pytest.mark.parametrize("name", HOSTILE_FILES)
def test_a_file_is_refused_in_one_line(outcomes, name):
    check(outcomes[name], ("ModelLoadError", "ModelNotFoundError"), HOSTILE_FILES[name].message)


@pytest.mark.parametrize("name", HOSTILE_TEMPLATES)
def test_a_template_is_refused_in_one_line(outcomes, name):
    check(outcomes[name], ("InvalidRequestError",), HOSTILE_TEMPLATES[name][1])


def test_a_whole_model_is_loaded_within_the_same_limits(outcomes):
    assert outcomes["a whole folder"] == "loaded"
