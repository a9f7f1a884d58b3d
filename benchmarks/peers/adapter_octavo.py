"""Octavo as one of the engines: its `Engine`, driven step by step in this process."""

import argparse
import dataclasses

from protocol import serve, take_stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--kv-dtype", help="number format of the KV cache; Octavo's default if omitted")
    parser.add_argument("--threads", type=int, required=True)
    arguments = parser.parse_args()
    answers = take_stdout()

    import octavo
    from octavo.bench.limits import measure_limits, measure_round_trip
    from octavo.bench.serving import step_weight_bytes
    from octavo.bench.timeline import run_prompts
    from octavo.build import build
    from octavo.config import EngineConfig

    options = {"model": arguments.model, "num_threads": arguments.threads, "kv_cache_memory": "1GiB"}
    if arguments.kv_dtype:
        options["kv_dtype"] = arguments.kv_dtype
    built = build(EngineConfig.from_options(options))
    settings = dataclasses.asdict(built.config)
    settings["model"] = built.model.path.name
    settings["step_weight_bytes"] = step_weight_bytes(built.model.program)

    def run(prompts: list[list[int]], output_tokens: int) -> dict[str, object]:
        round_trip = measure_round_trip(num_threads=arguments.threads)
        timeline = run_prompts(built.engine, prompts, output_tokens)
        return {
            "round_trip": round_trip,
            "wall": timeline.wall,
            "first": timeline.first_tokens,
            "end": [times[-1] for times in timeline.token_times],
            "tokens": [len(times) for times in timeline.token_times],
            "cached_tokens": timeline.num_cached_tokens,
        }

    def run_or_probe(prompts: list[list[int]], output_tokens: int) -> dict[str, object]:
        """No prompts at all ask for the machine's limits instead."""
        if prompts:
            return run(prompts, output_tokens)
        return {"limits": measure_limits(isa=built.config.isa, num_threads=arguments.threads)._asdict()}

    description = {
        "name": f"octavo {built.model.path.name}, {built.config.kv_dtype} K/V",
        "version": octavo.__version__,
        "settings": settings,
    }
    serve(answers, description, run_or_probe)
    built.engine.close()


if __name__ == "__main__":
    main()
