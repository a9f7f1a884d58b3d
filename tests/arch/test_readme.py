"""The Python example of the README runs as it stands."""

import re
from pathlib import Path

import pytest

README = Path(__file__).resolve().parents[2] / "README.md"


@pytest.mark.model
def test_the_example_runs(default_model_path, capsys):
    [example] = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    namespace: dict[str, object] = {}
    exec(compile(example.replace("smollm2-135m", str(default_model_path)), str(README), "exec"), namespace)
    namespace["llm"].close()
    first, second, colours, birds = capsys.readouterr().out.splitlines()
    assert len(first) > 2
    assert len(second) > 2
    assert colours.startswith("0 ")
    assert birds.startswith("16 ")
