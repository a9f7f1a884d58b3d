"""`octavo doctor`: is this machine all right, and if not, what helps?"""

import sys

from octavo.errors import EngineError


def doctor() -> None:
    """Check the machine, the native kernels and the default model; exits with 1 if something is broken.

    The kernels are checked by running a tiny random model on them and on the numpy reference.
    """
    # What is examined is imported only here, so that --help stays instant.
    from octavo.cli.checkup import checkup, report
    from octavo.cli.terminal import stdout_console

    checks = checkup()
    stdout_console().print(report(checks))
    broken = [check for check in checks if check.way_out]
    if broken:
        sys.stdout.flush()
        raise EngineError("; ".join(f"{check.name}: {check.way_out}" for check in broken))
