"""`octavo chat`: a conversation in the terminal."""

from octavo.cli.options import (
    CHAT_DEFAULTS,
    DEFAULTS,
    CacheOptions,
    ChatOptions,
    Flag,
    ModelOptions,
    RunnerOptions,
    SchedulerOptions,
)
from octavo.config import EngineConfig


def chat(
    *,
    system: str | None = None,
    quiet: Flag = False,
    model: ModelOptions = DEFAULTS.model,
    cache: CacheOptions = DEFAULTS.cache,
    scheduler: SchedulerOptions = DEFAULTS.scheduler,
    runner: RunnerOptions = DEFAULTS.runner,
    sampling: ChatOptions = CHAT_DEFAULTS,
) -> None:
    r"""Talk with the model. Each turn finds the turns before it in the prefix cache.

    In the conversation /reset forgets everything said, /help lists these words, /quit or /exit ends.
    Ctrl-C stops an answer; at the prompt it ends the conversation. Lines from a pipe are taken as turns.

    For example:

        octavo chat --system "You answer in one sentence."

        printf 'Hello!\nWhat did I just say?\n' | octavo chat --seed 1

    Args:
        system: What the model is told before the conversation.
        quiet: No tables and no count of cached tokens on stderr.
    """
    # What loads a model is imported only here, so that --help stays instant.
    from octavo.cli.conversation import converse

    config = EngineConfig(model=model, cache=cache, scheduler=scheduler, runner=runner)
    converse(config, sampling, system=system, quiet=quiet)
