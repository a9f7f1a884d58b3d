"""A step that begins before it is asked for gives the bits of one that does not, whatever comes instead."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from harness.adapters import random_pair
from harness.sampling_cases import sampling_input
from harness.steps import UNREADABLE_BLOCK, Part, make_step
from harness.tiny_model import NUM_LAYERS, VOCAB_SIZE, tiny_kv_spec, tiny_program
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.errors import EngineError
from octavo.kernels.adapter import Adapter
from octavo.kernels.interpreter import StepInput
from octavo.kernels.native import NativeInterpreter
from octavo.kernels.program import Linear, Program
from octavo.kernels.sampling import SamplingInput
from octavo.kernels.weight import Quantization
from octavo.kv.spec import KVCacheSpec

BLOCK_SIZE, NUM_BLOCKS = 8, 96
MAX_BLOCKS = 12
ONE = np.zeros(1, np.int32)


@dataclass(eq=False)
class Sequence:
    """A request: its tokens, all but the last one in the cache, and its blocks."""

    token_ids: list[int]
    blocks: list[int]
    num_computed: int = 0
    adapter: int = -1


@dataclass
class Session:
    """Steps of some requests over two interpreters: one begins early, the other one computes by itself."""

    model: Program
    early: NativeInterpreter
    plain: NativeInterpreter
    sequences: list[Sequence] = field(default_factory=list)
    free: list[int] = field(default_factory=lambda: list(range(NUM_BLOCKS)))

    @property
    def both(self) -> tuple[NativeInterpreter, NativeInterpreter]:
        return self.early, self.plain

    def add(self, token_ids: list[int], adapter: int = -1) -> None:
        self.sequences.append(Sequence(token_ids, [], adapter=adapter))

    def drop(self, place: int) -> None:
        self.free += self.sequences.pop(place).blocks

    def step(self, *, only_logit_rows: bool = True) -> StepInput:
        for sequence in self.sequences:
            while len(sequence.blocks) * BLOCK_SIZE < len(sequence.token_ids):
                sequence.blocks.append(self.free.pop())
        parts = [Part(s.num_computed, len(s.token_ids) - s.num_computed) for s in self.sequences]
        tables = np.full((len(parts), MAX_BLOCKS), UNREADABLE_BLOCK, np.int32)
        for table, sequence in zip(tables, self.sequences, strict=True):
            table[: len(sequence.blocks)] = sequence.blocks
        token_ids = [token for s in self.sequences for token in s.token_ids[s.num_computed :]]
        step = make_step(parts, tables, token_ids=token_ids)
        adapters = np.array([s.adapter for s in self.sequences], np.int32)
        adapter_slots = adapters if (adapters >= 0).any() else None
        return replace(step, only_logit_rows=only_logit_rows, adapter_slots=adapter_slots)

    def advance(self, **options) -> None:
        """A step of both; every request gets its token."""
        step = self.step(**options)
        tokens = [it.run_and_sample(step, sampling(step)).output.token_ids.copy() for it in self.both]
        np.testing.assert_array_equal(*tokens)
        for sequence, token in zip(self.sequences, tokens[0].tolist(), strict=True):
            sequence.num_computed = len(sequence.token_ids)
            sequence.token_ids.append(token)

    def check_logits(self) -> None:
        """A step of both by `run`, which may be the one that has begun."""
        step = self.step()
        np.testing.assert_array_equal(*(it.run(step).copy() for it in self.both))

    def check_cache(self) -> None:
        """The K and V of all computed tokens."""
        for sequence in self.sequences:
            for i, block in enumerate(sequence.blocks):
                known = min(max(sequence.num_computed - i * BLOCK_SIZE, 0), BLOCK_SIZE)
                for layer in range(NUM_LAYERS):
                    got, want = (it.kv_store.block(layer, block)[:, :known] for it in self.both)
                    np.testing.assert_array_equal(got, want)


def sampling(step: StepInput) -> SamplingInput:
    """Some rows greedy, and some hot: this model's most likely token is the one that was there."""
    rows = np.arange(len(step.logit_rows))
    return sampling_input(
        len(rows),
        VOCAB_SIZE,
        temperature=np.where(rows % 2, 0.0, 20.0),
        seeds=rows,
        positions=step.seq_lens,
        num_top_logprobs=None,
    )


def adapter(model: Program, seed: int) -> Adapter:
    """Changes one linear."""
    linear = next(op for op in model.ops if isinstance(op, Linear))
    weight = linear.parts[0]
    return Adapter({weight: random_pair(np.random.default_rng(seed), weight, rank=2)})


@contextmanager
def session(num_threads: int = 2, kv_spec: KVCacheSpec | None = None) -> Iterator[Session]:
    spec = kv_spec or tiny_kv_spec(block_size=BLOCK_SIZE, dtype="float16")
    model = tiny_program(np.random.default_rng(0), quantization=Quantization.Q4_1)
    early, plain = (
        NativeInterpreter(model, spec, NUM_BLOCKS, max_num_tokens=64, max_logit_rows=9, num_threads=threads)
        for threads in (num_threads, 1)
    )
    early.begin_early("always")
    plain.begin_early("never")
    try:
        yield Session(model, early, plain)
    finally:
        early.close()
        plain.close()


ACTIONS = ["token", "position", "adapter", "drop", "add", "copy", "read", "write", "run", "sampler"]
"""What may come between two steps, beside nothing."""


@settings(max_examples=60, deadline=None)
@given(
    data=st.data(),
    num_threads=st.sampled_from([2, 3, 5]),
    kv_dtype=st.sampled_from(["float32", "float16", "int8"]),
)
def test_whatever_comes_instead_the_bits_are_the_same(data, num_threads, kv_dtype):
    with session(num_threads, tiny_kv_spec(block_size=BLOCK_SIZE, dtype=kv_dtype)) as s:
        for slot in range(2):
            for it in s.both:
                it.set_adapter(slot, adapter(s.model, slot))
        s.add([1, 2, 3])
        for action in data.draw(st.lists(st.sampled_from(["", "", *ACTIONS]), min_size=4, max_size=24)):
            place = data.draw(st.integers(0, len(s.sequences) - 1))
            sequence = s.sequences[place]
            if action == "token":
                sequence.token_ids[-1] = data.draw(st.integers(0, VOCAB_SIZE - 1))
            elif action == "position" and sequence.num_computed > 1:  # the same token, one place before
                sequence.num_computed -= 1
                del sequence.token_ids[-2]
            elif action == "adapter":
                sequence.adapter = data.draw(st.integers(-1, 1))
            elif action == "drop" and len(s.sequences) > 1:
                s.drop(place)
            elif action == "add" and len(s.sequences) < 4:
                s.add(data.draw(st.lists(st.integers(0, VOCAB_SIZE - 1), min_size=1, max_size=9)))
            elif action == "copy" and sequence.blocks:
                source, sequence.blocks[-1] = sequence.blocks[-1], s.free.pop()
                for it in s.both:
                    it.kv_store.copy_blocks([(source, sequence.blocks[-1])])
            elif action == "read" and sequence.blocks:
                s.early.kv_store.block(0, sequence.blocks[-1])
            elif action == "write" and sequence.blocks and kv_dtype != "int8":  # those are rounded again
                for it in s.both:
                    it.kv_store.write_block(0, s.free[0], it.kv_store.block(0, sequence.blocks[0]))
            elif action == "sampler":  # of a larger vocabulary, so that the threads' own memory grows
                logits = np.zeros((1, data.draw(st.sampled_from([VOCAB_SIZE, 300_000]))), np.float32)
                s.early.sampler.logprobs(logits, ONE, 1)
            elif action == "run":
                s.check_logits()
            for _ in range(2):
                s.advance(only_logit_rows=data.draw(st.integers(0, 9)) > 0)
        s.check_cache()


def test_steps_that_follow_are_begun_and_used():
    with session() as s:
        s.add([1, 2, 3])
        s.add([4])
        for _ in range(20):
            s.advance()
        # The prompts' step tells nothing, nor one after which a request's blocks are full: 8, 16 tokens.
        assert s.early.num_early_steps == 19 - 1 - 4
        assert s.plain.num_early_steps == 0


def test_nothing_is_begun_where_it_cannot_be_known_what_follows():
    with session() as s:
        s.add([1, 2, 3])
        s.advance()  # a prompt
        s.advance(only_logit_rows=False)  # somebody may ask for more of it
        assert s.early.num_early_steps == 0


@pytest.mark.parametrize(("num_threads", "num_requests"), [(1, 1), (2, 9)])
def test_nothing_is_begun_for_one_thread_or_many_rows(num_threads, num_requests):
    with session(num_threads) as s:
        for i in range(num_requests):
            s.add([i])
        for _ in range(6):
            s.advance()
        assert s.early.num_early_steps == 0


def test_adapters_change_between_a_step_and_the_one_that_has_begun():
    with session() as s:
        for it in s.both:
            it.set_adapter(0, adapter(s.model, 0))
            it.set_adapter(1, adapter(s.model, 1))
        s.add([1, 2, 3], adapter=0)
        s.add([1, 2, 3])
        s.advance()
        s.advance()
        num_early_steps = s.early.num_early_steps
        s.advance()
        assert s.early.num_early_steps == num_early_steps + 1
        s.sequences[0].adapter = 1
        s.advance()
        for it in s.both:
            it.set_adapter(1, adapter(s.model, 2))
        s.advance()
        assert s.early.num_early_steps == num_early_steps + 1
        s.check_logits()
        s.check_cache()


def test_blocks_change_between_a_step_and_the_one_that_has_begun():
    with session() as s:
        for i in range(2):
            s.add([i + 1] * (BLOCK_SIZE + 2))
        s.advance()
        s.advance()
        num_early_steps = s.early.num_early_steps
        a, b = s.sequences
        a.blocks[0], b.blocks[0] = b.blocks[0], a.blocks[0]
        s.advance()
        assert s.early.num_early_steps == num_early_steps
        s.check_logits()
        s.check_cache()


def test_rows_of_a_step_are_gone_once_the_next_one_has_begun():
    with session() as s:
        s.add([1, 2, 3])
        s.advance()
        s.advance()
        calls = (lambda: s.early.logits(ONE), lambda: s.early.read(s.model.head.x))
        for call in calls:
            with pytest.raises(EngineError, match="the next step has begun"):
                call()
        with pytest.raises(EngineError, match="token id 1000000"):  # after a step that is refused as well
            s.early.run(replace(s.step(), token_ids=np.array([1_000_000], np.int32)))
        for call in calls:
            with pytest.raises(EngineError, match="the next step has begun"):
                call()
        s.check_logits()
        np.testing.assert_array_equal(s.early.logits(ONE), s.plain.logits(ONE))


def test_a_failed_row_keeps_its_logits():
    with session() as s:
        s.add([1, 2, 3])
        s.advance()
        step = s.step()
        banned = sampling_input(
            1, VOCAB_SIZE, positions=step.seq_lens, banned=[range(VOCAB_SIZE)], num_top_logprobs=None
        )
        answers = [it.run_and_sample(step, banned) for it in s.both]
        assert [answer.output.logprobs.failed.tolist() for answer in answers] == [[True], [True]]
        np.testing.assert_array_equal(answers[0].logits, answers[1].logits)
        s.early.logits(ONE)  # is not refused: nothing has begun


def test_arrays_that_are_filled_anew_do_not_change_what_has_begun():
    with session() as s:
        s.add([1, 2, 3])
        s.advance()
        step = s.step()
        for it in s.both:
            it.run_and_sample(step, sampling(step))
        for array in (step.token_ids, step.positions, step.seq_lens, step.block_tables):
            array[:] = 0
        s.sequences[0].num_computed += 1
        s.sequences[0].token_ids.append(5)
        s.advance()


def test_another_thread_may_go_on():
    with session() as s:
        s.add([1, 2, 3])
        for _ in range(8):
            thread = threading.Thread(target=s.advance)
            thread.start()
            thread.join()
        assert s.early.num_early_steps > 3
        s.check_cache()


def test_it_may_be_closed_after_a_step_has_begun():
    for _ in range(20):
        with session(4) as s:
            s.add([1, 2, 3])
            s.advance()
            s.advance()


def test_two_interpreters_begin_early_side_by_side():
    with session() as a, session() as b:
        for s in (a, b):
            s.add([1, 2, 3])
        for _ in range(6):
            a.advance()
            b.advance()
        a.check_cache()
        b.check_cache()
