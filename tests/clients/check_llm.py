"""Simon Willison's llm, told of the server by ``extra-openai-models.yaml``."""

import json
import os
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from checking import BASE_URL, MODEL, run_checks

FOLDER = Path(tempfile.mkdtemp(prefix="octavo-llm-"))
MODELS = f"""\
- model_id: octavo
  model_name: {MODEL}
  api_base: {BASE_URL}/v1
  supports_schema: true
  supports_tools: true
- model_id: octavo-text
  model_name: {MODEL}
  api_base: {BASE_URL}/v1
  completion: true
"""


def llm(*arguments):
    environment = {**os.environ, "LLM_USER_PATH": str(FOLDER), "OPENAI_API_KEY": "none"}
    command = [str(Path(sys.executable).with_name("llm")), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def prompt(*arguments, model="octavo"):
    return llm("-m", model, "-o", "temperature", "0", "-o", "max_tokens", "30", *arguments)


def the_model_is_listed():
    assert "OpenAI Chat: octavo" in llm("models")


def prompts():
    text = prompt("Name three colours.")
    assert text.strip()
    assert prompt("--no-stream", "Name three colours.") == text
    assert prompt("-s", "Be brief.", "Name three colours.").strip()


def a_conversation_goes_on():
    prompt("My name is Ada.")
    assert prompt("-c", "What is my name?").strip()
    log = json.loads(llm("logs", "list", "-n", "1", "--json"))
    assert log[0]["input_tokens"] > 0 < log[0]["output_tokens"]


def completions():
    assert prompt("The sky is", model="octavo-text").strip()


def schemas():
    colour = {"type": "string", "enum": ["red", "blue"]}
    schema = {"type": "object", "properties": {"c": colour}, "required": ["c"], "additionalProperties": False}
    assert json.loads(prompt("--schema", json.dumps(schema), "A colour?"))["c"] in ("red", "blue")


def tools_are_offered():
    assert prompt("--functions", "def one() -> int:\n    'Return 1'\n    return 1", "Hello") is not None


if __name__ == "__main__":
    (FOLDER / "extra-openai-models.yaml").write_text(MODELS)
    run_checks(
        f"llm {version('llm')}",
        the_model_is_listed, prompts, a_conversation_goes_on, completions, schemas, tools_are_offered,
    )  # fmt: skip
