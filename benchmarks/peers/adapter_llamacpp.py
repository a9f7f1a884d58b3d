"""llama.cpp through its C API: continuous batching by hand, the best that its library allows.

The library shares no prefixes between sequences by itself, so a prefix that all prompts have in common is
computed once here and copied (`llama_memory_seq_cp`), as a server built on it could at best. That needs one
K/V buffer for all sequences; where nothing is shared, each sequence has a buffer of its own, which is faster.
"""

import argparse
import ctypes
from pathlib import Path

from protocol import Recorder, serve, take_stdout

BATCH_TOKENS = 2048
UBATCH_TOKENS = 512
MAX_SEQUENCES = 33
CONTEXT_TOKENS = 16_384
SPLIT_TOKENS_PER_SEQUENCE = 512
SHORTEST_SHARED_PREFIX = 16


class LlamaCpp:
    """One model and one context with room for all workloads."""

    def __init__(self, model: str, threads: int) -> None:
        import llama_cpp

        self.api = api = llama_cpp.llama_cpp
        self._silence = api.llama_log_callback(lambda *_: None)
        api.llama_log_set(self._silence, ctypes.c_void_p(0))
        api.llama_backend_init()
        self._model = api.llama_model_load_from_file(model.encode(), api.llama_model_default_params())
        self._unified = self._make_context(CONTEXT_TOKENS, threads, unified=True)
        self._split = self._make_context(MAX_SEQUENCES * SPLIT_TOKENS_PER_SEQUENCE, threads, unified=False)
        self._context = self._unified
        self._vocab_size = api.llama_vocab_n_tokens(api.llama_model_get_vocab(self._model))
        self._batch = api.llama_batch_init(BATCH_TOKENS, 0, 1)
        self.version = llama_cpp.__version__

    def _make_context(self, num_tokens: int, threads: int, *, unified: bool):
        parameters = self.api.llama_context_default_params()
        parameters.n_ctx = num_tokens
        parameters.n_batch, parameters.n_ubatch = BATCH_TOKENS, UBATCH_TOKENS
        parameters.n_seq_max = MAX_SEQUENCES
        parameters.n_threads = parameters.n_threads_batch = threads
        parameters.kv_unified = unified
        context = self.api.llama_init_from_model(self._model, parameters)
        if not context:
            raise RuntimeError("llama.cpp made no context")
        return context

    def run(self, prompts: list[list[int]], output_tokens: int) -> dict[str, object]:
        """All prompts at once, greedily."""
        shared = common_prefix(prompts) if len(prompts) > 1 else 0
        longest = max(map(len, prompts)) + output_tokens
        fits_split = longest <= SPLIT_TOKENS_PER_SEQUENCE and shared < SHORTEST_SHARED_PREFIX
        self._context = self._split if fits_split else self._unified
        self.api.llama_memory_clear(self.api.llama_get_memory(self._context), False)
        recorder = Recorder(len(prompts))
        newest = [0] * len(prompts)

        def decode(rows: list[tuple[int, int, int, bool]]) -> None:
            for sequence, token in self._decode(rows):
                newest[sequence] = token
                recorder.add(sequence)

        for rows in self._prompt_batches(prompts, shared):
            decode(rows)
        while True:
            live = [s for s in range(len(prompts)) if recorder.tokens[s] < output_tokens]
            if not live:
                return recorder.times()
            decode([(newest[s], len(prompts[s]) + recorder.tokens[s] - 1, s, True) for s in live])

    def _prompt_batches(self, prompts: list[list[int]], shared: int):
        """Batches of (token, position, sequence, is last); a shared prefix is computed once and copied."""
        first_rest = 0
        if shared >= SHORTEST_SHARED_PREFIX:
            yield from batches(prompt_rows(prompts[0], 0, 0))
            memory = self.api.llama_get_memory(self._context)
            for sequence in range(1, len(prompts)):
                self.api.llama_memory_seq_cp(memory, 0, sequence, 0, shared)
            first_rest = 1
        start = shared if first_rest else 0
        rest = [
            row
            for sequence in range(first_rest, len(prompts))
            for row in prompt_rows(prompts[sequence], start, sequence)
        ]
        yield from batches(rest)

    def _decode(self, rows: list[tuple[int, int, int, bool]]) -> list[tuple[int, int]]:
        """One call; (sequence, most likely token) of the rows that are the last of their sequence."""
        import numpy as np

        batch = self._batch
        for index, (token, position, sequence, is_last) in enumerate(rows):
            batch.token[index], batch.pos[index] = token, position
            batch.n_seq_id[index], batch.seq_id[index][0] = 1, sequence
            batch.logits[index] = is_last
        batch.n_tokens = len(rows)
        code = self.api.llama_decode(self._context, batch)
        if code:
            raise RuntimeError(f"llama_decode returned {code}")
        chosen = []
        for index, (_, _, sequence, is_last) in enumerate(rows):
            if is_last:
                logits = self.api.llama_get_logits_ith(self._context, index)
                row = np.ctypeslib.as_array(logits, shape=(self._vocab_size,))
                chosen.append((sequence, int(row.argmax())))
        return chosen


def common_prefix(prompts: list[list[int]]) -> int:
    """Tokens that all prompts begin with, leaving each at least one of its own."""
    limit = min(map(len, prompts)) - 1
    differing = (i for i, column in enumerate(zip(*prompts, strict=False)) if len(set(column)) > 1)
    return min(next(differing, limit), limit)


def prompt_rows(prompt: list[int], start: int, sequence: int) -> list[tuple[int, int, int, bool]]:
    """(token, position, sequence, is last) of a prompt's tokens from ``start``."""
    last = len(prompt) - 1
    return [(prompt[position], position, sequence, position == last) for position in range(start, last + 1)]


def batches(rows: list[tuple[int, int, int, bool]]):
    """Pieces of at most a batch."""
    for start in range(0, len(rows), BATCH_TOKENS):
        yield rows[start : start + BATCH_TOKENS]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--threads", type=int, required=True)
    arguments = parser.parse_args()
    answers = take_stdout()
    engine = LlamaCpp(arguments.model, arguments.threads)
    settings = {
        "threads": arguments.threads,
        "n_ctx": CONTEXT_TOKENS,
        "n_batch": BATCH_TOKENS,
        "n_ubatch": UBATCH_TOKENS,
        "kv": "float16; one buffer if prompts share a prefix or are long, else one per sequence",
        "flash_attention": "auto",
    }
    name = f"llama.cpp {Path(arguments.model).name}"
    serve(answers, {"name": name, "version": engine.version, "settings": settings}, engine.run)


if __name__ == "__main__":
    main()
