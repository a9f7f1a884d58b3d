"""Resolve requirements/*.lock anew: every package with its version and hashes, no index address.

uv resolves for all platforms at once. It is fetched into a throw-away environment: it is no dependency.
"""

import subprocess
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCKS = {"dev.lock": ["--group", "dev"], "runtime.lock": []}
OPTIONS = [
    "--universal", "--python-version", "3.11", "--generate-hashes", "--no-emit-index-url", "--no-annotate",
    "--upgrade", "--quiet", "--custom-compile-command", "make lock",
]  # fmt: skip


def check(lock: Path) -> None:
    """Every package is pinned and hashed, and no address slipped in.

    Raises:
        SystemExit: the file breaks one of these rules.
    """
    lines = lock.read_text(encoding="utf-8").splitlines()
    if any("://" in line or line.startswith("-") for line in lines):
        raise SystemExit(f"{lock}: names an address or an option")
    for number, line in enumerate(lines):
        is_package = line and not line.startswith((" ", "#"))
        if is_package and ("==" not in line or "--hash=sha256:" not in lines[number + 1]):
            raise SystemExit(f"{lock}: {line} is not pinned with a hash")


def main() -> None:
    """Write and check both locks."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        tools = Path(folder, "bin")
        subprocess.run([tools / "pip", "install", "--quiet", "uv"], check=True)
        for name, extra in LOCKS.items():
            target = Path("requirements", name)
            command = [
                str(tools / "uv"),
                "pip",
                "compile",
                *OPTIONS,
                *extra,
                "pyproject.toml",
                "-o",
                str(target),
            ]
            subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
            check(ROOT / target)
            print(f"wrote {target}")


if __name__ == "__main__":
    main()
