"""`octavo generate`: one or more prompts, answered once."""

import dataclasses
import json as json_format

from octavo.cli.options import (
    DEFAULTS,
    GENERATE_DEFAULTS,
    CacheOptions,
    Flag,
    GenerateOptions,
    ModelOptions,
    RunnerOptions,
    SchedulerOptions,
)
from octavo.config import EngineConfig


def generate(
    *prompts: str,
    raw: Flag = False,
    json: Flag = False,
    quiet: Flag = False,
    model: ModelOptions = DEFAULTS.model,
    cache: CacheOptions = DEFAULTS.cache,
    scheduler: SchedulerOptions = DEFAULTS.scheduler,
    runner: RunnerOptions = DEFAULTS.runner,
    sampling: GenerateOptions = GENERATE_DEFAULTS,
) -> None:
    """Answer one or more prompts: tokens stream to stdout, everything about them goes to stderr.

    Several prompts are computed together and printed in order. Prompts that begin alike share the blocks of
    their common beginning.

    For example:

        octavo generate "What is a library?"

        octavo generate --raw "Once upon a time" --n 3 --temperature 0.8 --seed 7

        octavo generate --json --quiet --logprobs 2 "Two plus two is" | head -c 300

        cat letter.txt | octavo generate --max-tokens 200 --model ./my-model.gguf

    Args:
        prompts: What to answer; all of stdin if there is none.
        raw: Continue the text as it stands instead of answering it through the model's chat template.
        json: One JSON object per prompt on stdout, when all is done.
        quiet: No tables on stderr.
    """
    # What loads a model is imported only here, so that --help stays instant.
    from octavo.cli.generation import generate_outputs
    from octavo.cli.terminal import write_text

    config = EngineConfig(model=model, cache=cache, scheduler=scheduler, runner=runner)
    outputs = generate_outputs(config, prompts, sampling, raw=raw, streams=not json, quiet=quiet)
    if json:
        for output in outputs:
            write_text(json_format.dumps(dataclasses.asdict(output), ensure_ascii=False) + "\n")
