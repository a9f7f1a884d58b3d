"""schemathesis: requests made from /openapi.json, right and wrong; none of them may end in a server error."""

import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from checking import BASE_URL, report

SECONDS = os.environ.get("OCTAVO_SCHEMATHESIS_SECONDS", "120")
CHECKS = "not_a_server_error,content_type_conformance,response_schema_conformance"


def main():
    command = [
        str(Path(sys.executable).with_name("st")), "run", f"{BASE_URL}/openapi.json", "--checks", CHECKS,
        "--max-time", SECONDS, "--phases", "coverage,fuzzing", "--continue-on-failure",
        "--request-timeout", "60", "--exclude-path", "/reset_prefix_cache", "--workers", "2",
        "--suppress-health-check", "all", "--warnings", "off",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1500)
    print(done.stdout[-20_000:], file=sys.stderr)
    # What schemathesis could not generate is told as an error of its own, and is no failure of the server.
    found = re.search(r"\d+ generated.*", done.stdout)
    failed = [] if found and "failed" not in found[0] else ["see above"]
    report(f"schemathesis {version('schemathesis')}", 1, failed, found[0] if found else "")


if __name__ == "__main__":
    main()
