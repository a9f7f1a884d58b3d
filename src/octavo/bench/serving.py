"""`octavo bench throughput` and `latency`: requests through the whole engine, model and all."""

from collections.abc import Callable, Iterator

from octavo.bench.noise import Meter
from octavo.bench.report import Column
from octavo.bench.spread import Spread, percentile
from octavo.bench.timeline import Timeline, run_prompts
from octavo.bench.workloads import W3, W4, W4_512, Workload
from octavo.build import Built
from octavo.errors import ConfigError
from octavo.kernels.program import Linear, Logits, Program

THROUGHPUT_COLUMNS = (
    Column("workload", "workload", is_number=False),
    Column("output_tokens_per_second", "output tok/s", has_range=True),
    Column("total_tokens_per_second", "all tok/s"),
    Column("seconds", "s"),
    Column("first_token_ms", "TTFT ms"),
    Column("cached_tokens", "cached"),
    Column("others", "others", is_share=True),
)
LATENCY_COLUMNS = (
    Column("measure", "measure", is_number=False),
    Column("milliseconds", "ms", has_range=True),
    Column("tokens_per_second", "tok/s"),
    Column("of_read_bandwidth", "of bandwidth", is_share=True),
    Column("others", "others", is_share=True),
)
WARM_UP = Workload(name="warm-up", num_requests=2, prompt_tokens=64, output_tokens=8, seed=7)

RepetitionHook = Callable[[str], None]
"""Told what is about to be measured; the place to wait for a quiet machine."""


def throughput(
    built: Built, workload: Workload, *, repetitions: int, before: RepetitionHook
) -> dict[str, object]:
    """One row: the workload, all of it submitted at once, several times with fresh tokens.

    Raises:
        ConfigError: the workload does not fit the model.
    """
    timelines, others = measure(built, workload, repetitions=repetitions, before=before)
    prompt_tokens = workload.num_requests * (workload.shared_tokens + workload.prompt_tokens)
    return {
        "workload": workload.name,
        "size": workload.size,
        "output_tokens_per_second": Spread.of([t.tokens_per_second for t in timelines]),
        "total_tokens_per_second": Spread.of([(t.num_tokens + prompt_tokens) / t.wall for t in timelines]),
        "seconds": Spread.of([t.wall for t in timelines]),
        "first_token_ms": Spread.of([1e3 * percentile(t.first_tokens, 0.5) for t in timelines]),
        "cached_tokens": Spread.of([float(t.num_cached_tokens) for t in timelines]),
        "others": max(others),
    }


def latency(
    built: Built, *, repetitions: int, read_bandwidth: float | None, before: RepetitionHook
) -> Iterator[dict[str, object]]:
    """Rows of one stream alone: first token, inter-token percentiles, prefill of two lengths.

    Args:
        read_bandwidth: of the machine [bytes/s]; a step of decoding reads every weight once.
    """
    streams, others = measure(built, W3, repetitions=repetitions, before=before)
    first = Spread.of([1e3 * t.first_tokens[0] for t in streams])
    yield {"measure": "first token", "size": W3.size, "milliseconds": first, "others": max(others)}
    for share in (0.5, 0.9, 0.99):
        gaps = Spread.of([percentile(t.inter_token, share) for t in streams])
        row: dict[str, object] = {
            "measure": f"inter-token p{100 * share:.0f}",
            "size": W3.size,
            "milliseconds": gaps.scaled(1e3),
            "tokens_per_second": gaps.inverse(1.0),
            "others": max(others),
        }
        if share == 0.5 and read_bandwidth:
            row["of_read_bandwidth"] = step_weight_bytes(built.model.program) / gaps.median / read_bandwidth
        yield row
    for workload in (W4_512, W4):
        timelines, others = measure(built, workload, repetitions=repetitions, before=before)
        seconds = Spread.of([t.first_tokens[0] for t in timelines])
        yield {
            "measure": f"prefill {workload.prompt_tokens:,}",
            "size": workload.size,
            "milliseconds": seconds.scaled(1e3),
            "tokens_per_second": seconds.inverse(workload.prompt_tokens),
            "others": max(others),
        }


def measure(
    built: Built, workload: Workload, *, repetitions: int, before: RepetitionHook
) -> tuple[list[Timeline], list[float]]:
    """Each repetition's timeline, and the share of the machine that others took meanwhile.

    Raises:
        ConfigError: the workload does not fit the model.
    """
    longest = workload.shared_tokens + workload.prompt_tokens + workload.output_tokens
    if longest > built.config.max_model_len:
        raise ConfigError(
            f"workload {workload.name} has sequences of {longest} tokens, max_model_len is "
            f"{built.config.max_model_len}; choose a smaller workload or raise max_model_len"
        )
    vocab_size = built.model.spec.vocab_size
    run_prompts(built.engine, WARM_UP.prompts(0, vocab_size=vocab_size), WARM_UP.output_tokens)
    timelines, others = [], []
    for repetition in range(repetitions):
        before(f"{workload.name}, repetition {repetition + 1} of {repetitions}")
        with Meter() as meter:
            prompts = workload.prompts(repetition, vocab_size=vocab_size)
            timelines.append(run_prompts(built.engine, prompts, workload.output_tokens))
        others.append(meter.others)
    return timelines, others


def step_weight_bytes(program: Program) -> int:
    """Bytes of the matrices that a step of one token reads, as they lie in the file: each once."""
    weights = {}
    for op in program.ops:
        if isinstance(op, Linear):
            weights.update({id(part): part.raw.nbytes for part in op.parts})
        elif isinstance(op, Logits):
            weights[id(op.weight)] = op.weight.raw.nbytes
    return sum(weights.values())
