"""`octavo`: the commands, and what happens to their errors.

Commands are named by module path and imported when used, so that `octavo --help` costs nothing.

Exit codes: 0; 1 for an error; 2 for a wrong command line, configuration or prompt; 130 for Ctrl-C; 141 when
the reader of a pipe went away. An error of Octavo's own kind is one line on stderr; a bug (`InvariantError`)
is a trace.
"""

import sys
from collections.abc import Sequence

from cyclopts import App, CycloptsError

from octavo.cli.terminal import discard_stdout, prepare_streams, print_error, stderr_console
from octavo.errors import (
    ConfigError,
    InvariantError,
    KernelUnavailableError,
    ModelNotFoundError,
    OctavoError,
    RequestError,
)
from octavo.version import octavo_version

EXIT_ERROR = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141

_USAGE_ERRORS = (ConfigError, RequestError, ModelNotFoundError, KernelUnavailableError)
"""What another command line would mend: an option, a prompt, a path, or kernels that cannot run here."""

_HELP = (
    "Run a language model through a paged KV cache: the same bits whatever else runs, "
    "and no prefix computed twice."
)

_EPILOGUE = """Try:

    octavo generate "What is a library?"   answer once, token by token
    octavo chat                            talk; turns reuse earlier ones
    octavo serve                           answer over HTTP, as the OpenAI API does
    octavo explain                         see the cache work, without a model
    octavo doctor                          is this machine all right?
"""

COMMANDS = {
    "generate": "Continue or answer one or more prompts.",
    "chat": "Talk with the model; each turn reuses the cached turns before it.",
    "serve": "Serve the model over HTTP, with the OpenAI API.",
    "explain": "Draw the paged KV cache at work, step by step. Needs no model.",
    "doctor": "Check the machine, the native kernels and the default model.",
    "bench": "Measure kernels, throughput and latency on this machine.",
    "models": "List the models in the caches, fetch them and remove them.",
    "inspect": "Say what a model is and what it costs, before any weight is read.",
    "fetch": "Download the default model, once, with a checksum.",
}
"""Each command, in module ``octavo.cli.<name>``, and its line in the list of commands."""


def make_app() -> App:
    """The command line as cyclopts sees it."""
    app = App(
        name="octavo",
        help=_HELP,
        help_epilogue=_EPILOGUE,
        help_format="plaintext",
        version=octavo_version,
        suppress_keyboard_interrupt=False,
        error_console=stderr_console(),
    )
    for name, summary in COMMANDS.items():
        app.command(f"octavo.cli.{name}:{name}", name=name, help=summary)
    return app


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code."""
    try:
        prepare_streams()
        make_app()(list(arguments), exit_on_error=False, result_action="return_value")
        sys.stdout.flush()
    except CycloptsError:
        return EXIT_USAGE  # cyclopts has printed it
    except KeyboardInterrupt:
        stderr_console().print("\ninterrupted")
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        discard_stdout()
        return EXIT_BROKEN_PIPE
    except InvariantError:
        raise
    except (OctavoError, OSError) as error:
        print_error(str(error))
        _end_stdout()
        return EXIT_USAGE if isinstance(error, _USAGE_ERRORS) else EXIT_ERROR
    return 0


def _end_stdout() -> None:
    """What was printed before an error is worth having; but stdout itself may be what failed."""
    try:
        sys.stdout.flush()
    except OSError:
        discard_stdout()


def main() -> None:
    """Entry point of the `octavo` script."""
    sys.exit(run(sys.argv[1:]))
