"""`octavo.sched` is pure Python."""

import subprocess
import sys

PROGRAM = """
import pkgutil, sys
import octavo.sched
for module in pkgutil.iter_modules(octavo.sched.__path__):
    __import__(f"octavo.sched.{module.name}")
print(sorted({name.partition(".")[0] for name in sys.modules} - set(sys.stdlib_module_names)))
"""


def test_loads_nothing_but_the_standard_library():
    command = [sys.executable, "-S", "-c", PROGRAM]
    environment = {"PYTHONPATH": ":".join(path for path in sys.path if path.endswith("src"))}
    result = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert result.stdout.strip() == "['__main__', 'octavo']"
