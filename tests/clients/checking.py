"""What the checks of all clients share; standard library only, for it runs in each client's environment."""

import json
import os
import sys
import traceback

BASE_URL = os.environ.get("OCTAVO_URL", "http://127.0.0.1:8000")
MODEL = os.environ.get("OCTAVO_MODEL_NAME", "smollm2-135m")
TOKENIZER = os.environ.get("OCTAVO_TOKENIZER", "")
"""A folder with the model's tokenizer in Hugging Face's form."""

WEATHER_SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 20}, "days": {"type": "integer", "minimum": 1}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
WEATHER_TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather forecast",
        "parameters": WEATHER_SCHEMA,
    },
}
LONG_PROMPT = "List the planets of the solar system, the moons of each, and what they are made of. " * 4


def run_checks(client, *checks):
    """Run every check, print what failed, and a last line of JSON for `run.py`."""
    failed = []
    for check in checks:
        try:
            check()
        except Exception as error:  # a client may raise anything
            failed.append(check.__name__)
            [*_, frame] = [f for f in traceback.extract_tb(error.__traceback__) if "check_" in f.filename]
            told = f"line {frame.lineno}: {type(error).__name__}: {str(error)[:1000]}"
            print(f"--- {client}: {check.__name__}, {told}", file=sys.stderr)
    report(client, len(checks), failed)


def report(client, num_checks, failed, figures=""):
    """Print the line that `run.py` reads, and end."""
    print(json.dumps({"client": client, "checks": num_checks, "failed": failed, "figures": figures}))
    sys.exit(1 if failed else 0)
