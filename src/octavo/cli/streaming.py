"""Driving an engine from the command line: steps run, text is printed as it comes, the cache is watched."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from octavo.engine.choice import choice_ids
from octavo.engine.engine import Engine
from octavo.interrupt import InterruptFlag
from octavo.kv.manager import KVCacheManager
from octavo.outputs import CompletionOutput, RequestOutput


@dataclass(slots=True)
class CacheTrace:
    """What the cache held while requests ran."""

    block_tables: dict[str, list[int]] = field(default_factory=dict)
    """Each continuation's block table, as it was last seen; blocks go back the moment a request ends."""
    peak_blocks: int = 0
    """Most blocks in use after any step."""
    shared_blocks: int = 0
    """Most blocks that several tables held at once."""
    unfilled_slots: int = 0
    """Slots of held blocks without a token in them, when most blocks were in use."""

    def observe(self, kv: KVCacheManager, num_tokens: Mapping[str, int]) -> None:
        """Look at the cache between two steps.

        Args:
            num_tokens: known tokens by the id of each continuation.
        """
        num_holders: Counter[int] = Counter()
        num_unfilled = 0
        for request_id, count in num_tokens.items():
            if (table := kv.req_to_blocks.get(request_id)) is None:
                continue
            block_ids = table.block_ids
            self.block_tables[request_id] = block_ids
            num_holders.update(block_ids)
            num_unfilled += max(len(block_ids) * kv.block_size - count, 0)
        if len(num_holders) >= self.peak_blocks:
            self.peak_blocks, self.unfilled_slots = len(num_holders), num_unfilled
        self.shared_blocks = max(self.shared_blocks, sum(n > 1 for n in num_holders.values()))


@dataclass(slots=True)
class Timing:
    """When things happened [s, of one monotonic clock]."""

    start: float
    first_token: float | None = None
    end: float | None = None

    @property
    def seconds_to_first_token(self) -> float:
        """TTFT of the first request to get there; the whole time if none did."""
        return (self.first_token or self.end or self.start) - self.start

    @property
    def seconds_after_first_token(self) -> float:
        """From then to the end."""
        return (self.end or self.start) - (self.first_token or self.end or self.start)


@dataclass(slots=True)
class Run:
    """What became of a set of requests."""

    outputs: dict[str, RequestOutput]
    cache: CacheTrace
    timing: Timing

    @property
    def num_generated_tokens(self) -> int:
        """Over all requests and continuations."""
        return sum(len(choice.token_ids) for output in self.outputs.values() for choice in output.outputs)


def run_requests(
    engine: Engine,
    kv: KVCacheManager,
    request_ids: Sequence[str],
    *,
    on_update: Callable[[dict[str, RequestOutput]], None],
    clock: Callable[[], float] = time.perf_counter,
) -> Run:
    """Step until every request has ended.

    Args:
        request_ids: added to the engine before, in the order in which to report them.
        on_update: called after each step with the outputs so far by request id.

    Raises:
        KeyboardInterrupt: Ctrl-C, after the step under way; all requests are aborted.
    """
    run = Run({}, CacheTrace(), Timing(clock()))
    latest: dict[str, RequestOutput] = {}
    with InterruptFlag() as interrupt:
        try:
            while engine.has_unfinished_requests:
                latest.update((output.request_id, output) for output in engine.step())
                run.outputs = {name: latest[name] for name in request_ids if name in latest}
                if run.timing.first_token is None and run.num_generated_tokens:
                    run.timing.first_token = clock()
                run.cache.observe(kv, _known_tokens(run.outputs))
                on_update(run.outputs)
                interrupt.raise_if_set()
        except BaseException:
            engine.abort_all()
            raise
    run.timing.end = clock()
    return run


def _known_tokens(outputs: Mapping[str, RequestOutput]) -> dict[str, int]:
    """Prompt and output tokens of each continuation."""
    return {
        choice_id: len(output.prompt_token_ids) + len(choice.token_ids)
        for request_id, output in outputs.items()
        for choice_id, choice in zip(choice_ids(request_id, len(output.outputs)), output.outputs, strict=True)
    }


class InOrderPrinter:
    """Prints continuations one after the other although they are generated side by side.

    The first streams; each further one begins, with what it has by then, when the one before is complete.

    Args:
        order: (request id, continuation) in the order in which to print.
        write: takes a piece of text.
        begin: called with the index in ``order`` before each continuation's text.
    """

    def __init__(
        self,
        order: Sequence[tuple[str, int]],
        *,
        write: Callable[[str], None],
        begin: Callable[[int], None] = lambda _index: None,
    ) -> None:
        self._order = order
        self._write = write
        self._begin = begin
        self._current = -1
        self._num_printed = 0
        self._advance()

    def update(self, outputs: dict[str, RequestOutput]) -> None:
        """Print what is new."""
        for choice in self._printable(outputs):
            if len(choice.text) > self._num_printed:
                self._write(choice.text[self._num_printed :])
                self._num_printed = len(choice.text)
            if not choice.finished():
                return
            self._write("\n")
            self._advance()

    def _printable(self, outputs: dict[str, RequestOutput]) -> Iterator[CompletionOutput]:
        while self._current < len(self._order):
            request_id, index = self._order[self._current]
            if request_id not in outputs:
                return
            yield outputs[request_id].outputs[index]

    def _advance(self) -> None:
        self._current += 1
        self._num_printed = 0
        if self._current < len(self._order):
            self._begin(self._current)
