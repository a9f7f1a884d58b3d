"""An engine for one command, from the start-up table to its end."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from octavo.build import Built, build
from octavo.cli.startup import startup_table
from octavo.cli.terminal import stderr_console
from octavo.config import EngineConfig
from octavo.errors import ConfigError
from octavo.models.default_model import resolve_model_path


@contextmanager
def session(config: EngineConfig, *, quiet: bool) -> Iterator[Built]:
    """Build an engine, say what was built on stderr, and give everything back at the end.

    Raises:
        ConfigError: the configuration fits neither the model nor the machine, or names no chat template.
        ModelLoadError: the model cannot be found, read or fetched.
    """
    built = start_engine(config, quiet=quiet)
    try:
        yield built
    finally:
        built.engine.close()


def start_engine(config: EngineConfig, *, quiet: bool) -> Built:
    """Build an engine and say what was built on stderr; whoever calls this closes it.

    Raises:
        ConfigError: the configuration fits neither the model nor the machine, or names no chat template.
        ModelLoadError: the model cannot be found, read or fetched.
    """
    template = config.model.chat_template
    if template is not None and not Path(template).is_file():
        raise ConfigError(f"--chat-template {template}: no such file; give a jinja2 file, or leave it out")
    resolve_model_path(  # a download is no part of the start-up time
        config.model.model, revision=config.model.revision, offline=config.model.offline
    )
    start = time.perf_counter()
    built = build(config)
    if not quiet:
        stderr_console().print(startup_table(built, seconds=time.perf_counter() - start))
    return built
