"""`octavo serve`: the model over HTTP."""

from typing import Annotated

from cyclopts import Parameter

from octavo.cli.options import (
    DEFAULTS,
    CacheOptions,
    Flag,
    ModelOptions,
    RunnerOptions,
    SchedulerOptions,
)
from octavo.config import EngineConfig
from octavo.server.config import ServerConfig

ServerOptions = Annotated[ServerConfig, Parameter(name="*", group="Server")]
_SERVER = ServerConfig()


def serve(
    *,
    quiet: Flag = False,
    server: ServerOptions = _SERVER,
    model: ModelOptions = DEFAULTS.model,
    cache: CacheOptions = DEFAULTS.cache,
    scheduler: SchedulerOptions = DEFAULTS.scheduler,
    runner: RunnerOptions = DEFAULTS.runner,
) -> None:
    """Serve the model over HTTP, with the OpenAI API.

    API keys can also be given in the environment variable OCTAVO_API_KEYS, separated by commas. SIGTERM and
    Ctrl-C let running requests finish; a second one ends them.

    For example:

        octavo serve --port 8080

        OCTAVO_API_KEYS=key-of-ann,key-of-bob octavo serve --host 0.0.0.0

        curl localhost:8000/v1/completions -H 'Content-Type: application/json' -d '{"prompt": "Once upon"}'

    Args:
        quiet: No table on stderr.
    """
    # What loads a model is imported only here, so that --help stays instant.
    from octavo.cli.serving import run_server

    config = EngineConfig(model=model, cache=cache, scheduler=scheduler, runner=runner)
    run_server(config, server, quiet=quiet)
