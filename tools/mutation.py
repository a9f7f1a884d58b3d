"""Mutation tests of kv/ and their score: the share of seeded faults that the tests notice. Takes long.

    python tools/mutation.py [mutmut's own arguments]

Results are kept in mutants/, so a second run goes on where the first one stopped.
"""

import collections
import subprocess
import sys

# The editable install finds octavo before sys.path is looked at, and would test the unchanged code.
RUN_MUTMUT = """
import sys
sys.meta_path[:] = [f for f in sys.meta_path if not type(f).__module__.startswith("_editable_skbc")]
from mutmut.__main__ import cli
cli()
"""
CAUGHT = ("killed", "timeout", "segfault", "caught by type check")


def mutmut(*arguments: str, stdout: int | None) -> subprocess.CompletedProcess[str]:
    """Run mutmut without the editable install's finder."""
    command = [sys.executable, "-c", RUN_MUTMUT, *arguments]
    return subprocess.run(command, text=True, check=False, stdout=stdout)


def main() -> int:
    """Run, count, print the score and what survived."""
    # Off a terminal its spinner would be thousands of lines.
    run = mutmut("run", *sys.argv[1:], stdout=None if sys.stdout.isatty() else subprocess.DEVNULL)
    if run.returncode:
        return run.returncode
    report = mutmut("results", "--all", "true", stdout=subprocess.PIPE).stdout
    statuses = dict(line.strip().rsplit(": ", 1) for line in report.splitlines() if ": " in line)
    counts = collections.Counter(statuses.values())
    caught, total = sum(counts[status] for status in CAUGHT), sum(counts.values())
    print("\n".join(f"{name}: {status}" for name, status in statuses.items() if status not in CAUGHT))
    print(
        f"mutation score: {caught} of {total} mutants noticed ({100 * caught / max(total, 1):.1f} %)",
        dict(counts),
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
