"""kvlint: its model of vLLM's prefix cache predicts our own counters, and token counts agree."""

import json
import re
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from checking import BASE_URL, LONG_PROMPT, TOKENIZER, report

TOPICS = ("tides", "moons", "comets", "winds", "bread", "glass")


def conversations():
    """Sessions that grow turn by turn, under two system prompts."""
    for system in (LONG_PROMPT, "You are terse. " * 20):
        for topic in TOPICS:
            messages = [{"role": "system", "content": system}]
            for turn in range(4):
                messages.append(
                    {"role": "user", "content": f"Tell me fact number {turn} about {topic}. " * 3}
                )
                yield {"messages": list(messages)}
                messages.append(
                    {"role": "assistant", "content": f"Fact {turn} about {topic} is well known. " * 2}
                )


def main():
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log.jsonl"
        log.write_text("".join(json.dumps(request) + "\n" for request in conversations()))
        command = [
            str(Path(sys.executable).with_name("kvlint")), "validate", str(log), "--model", TOKENIZER,
            "--server", BASE_URL, "--verbose",
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    print(done.stdout, done.stderr, file=sys.stderr)
    rates = re.findall(r"(\d+\.\d+)\s*%", done.stdout)
    is_compared = done.returncode == 0 and len(rates) > 1
    figures = f"simulated {rates[0]} %, measured {rates[1]} %" if is_compared else ""
    report(f"kvlint {version('kvlint')}", 1, [] if is_compared else ["see above"], figures)


if __name__ == "__main__":
    main()
