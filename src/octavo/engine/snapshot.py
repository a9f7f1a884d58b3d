"""`EngineSnapshot`: everything that is counted about an engine, at one moment, safe to read anywhere."""

from collections.abc import Mapping
from typing import NamedTuple

from octavo.engine.histogram import HistogramCounts
from octavo.kv.census import BlockCensus


class EngineCounts(NamedTuple):
    """Counted since the engine was built."""

    num_steps: int
    num_failed_steps: int
    num_preemptions: int
    num_query_tokens: int
    """Looked for in the prefix cache at first admissions."""
    num_hit_tokens: int
    num_prompt_tokens: int
    """Of prompts that were computed to their end, or found."""
    num_cached_prompt_tokens: int
    num_generation_tokens: int


class EngineSnapshot(NamedTuple):
    """Published by the engine's thread as a whole; nothing in it ever changes."""

    num_running: int
    num_waiting: int
    is_paused: bool
    num_unfilled_slots: int
    """Token slots that running requests hold and have no token for."""
    blocks: BlockCensus
    counts: EngineCounts
    finished: Mapping[str, int]
    """Continuations by finish reason."""
    aborted: Mapping[str, int]
    """Requests by `AbortCause`."""
    histograms: Mapping[str, HistogramCounts]
    """By name in `octavo.engine.telemetry.HISTOGRAM_BOUNDS`."""
