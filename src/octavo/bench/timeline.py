"""`Timeline`: when each token of a set of requests came, and running them on an engine."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from octavo.engine.engine import Engine
from octavo.sampling_params import RequestOutputKind, SamplingParams


@dataclass(frozen=True, slots=True)
class Timeline:
    """Times in seconds since all requests were submitted."""

    wall: float
    """Until the last request ended."""
    token_times: list[list[float]]
    """[num_requests][num_tokens]; tokens that came together have one time."""
    num_cached_tokens: int = 0
    """Prompt tokens that the prefix cache served, over all requests."""

    @property
    def first_tokens(self) -> list[float]:
        """TTFT of each request."""
        return [times[0] for times in self.token_times]

    @property
    def inter_token(self) -> list[float]:
        """Times between neighbouring tokens, of all requests (ITL)."""
        return [after - before for times in self.token_times for before, after in pairwise(times)]

    @property
    def num_tokens(self) -> int:
        """Generated, over all requests."""
        return sum(map(len, self.token_times))

    @property
    def tokens_per_second(self) -> float:
        """Of output."""
        return self.num_tokens / self.wall


def run_prompts(engine: Engine, prompts: Sequence[Sequence[int]], output_tokens: int) -> Timeline:
    """Submit all prompts at once and generate exactly ``output_tokens`` for each, greedily.

    Args:
        prompts: token ids [num_requests][num_tokens].

    Raises:
        ContextLengthError: a request does not fit.
    """
    sampling = SamplingParams(
        temperature=0.0,
        max_tokens=output_tokens,
        min_tokens=output_tokens,
        ignore_eos=True,
        output_kind=RequestOutputKind.DELTA,
    )
    times: dict[str, list[float]] = {str(number): [] for number in range(len(prompts))}
    cached = dict.fromkeys(times, 0)
    start = time.perf_counter()
    for request_id, prompt in zip(times, prompts, strict=True):
        engine.add_request(request_id, prompt, sampling)
    while engine.has_unfinished_requests:
        outputs = engine.step()
        now = time.perf_counter() - start
        for output in outputs:
            times[output.request_id] += [now] * len(output.outputs[0].token_ids)
            cached[output.request_id] = output.num_cached_tokens or 0
    return Timeline(time.perf_counter() - start, list(times.values()), sum(cached.values()))
