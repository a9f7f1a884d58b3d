"""Whatever happens to others, a request's tokens are its own, and in the end every block is free.

The runner keeps prefixes where K/V would be and checks every read (`ShadowRunner`), so a wrong block table, a
stale block or a prefix found too early fails here as well.
"""

import codecs
import zlib

import hypothesis.strategies as st
from engine_fakes import EOS, VOCAB_SIZE, ByteTokenizer, make_engine
from hypothesis import given, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from octavo.engine.choice import choice_ids
from octavo.engine.queue_place import QueuePlace
from octavo.engine.stop_strings import StopStringScanner
from octavo.errors import ContextLengthError, StepError
from octavo.kv.invariants import check_invariants
from octavo.sampling_params import SamplingParams

SUFFIXES = ["", "#0", "#1", "#0#1", "##0", "#"]
"""Of request ids: they look like those of other requests' continuations."""
PREFIXES = [list(b"shared"), list(b"shared prefix"), list(b"another prefix of more blocks"), [1]]


def script(request_id, position):
    """A token that depends on the request and the position alone; the end comes for one in eleven."""
    token = zlib.crc32(f"{request_id} {position}".encode()) % (VOCAB_SIZE + 24)
    return EOS if token >= VOCAB_SIZE else token


def expected(choice_id, params, room):
    """(tokens, text, finish reason) of a continuation that nobody disturbs."""
    tokenizer, tokens = ByteTokenizer(), []
    scanner_text = b""
    while True:
        token = script(choice_id, len(tokens))
        tokens.append(token)
        if token == EOS:
            return tokens, _until_stop(scanner_text, params)[0], "stop"
        if not tokenizer.is_special(token):
            scanner_text += tokenizer.token_bytes(token)
        text, found = _until_stop(scanner_text, params, final=False)
        if found:
            return tokens, text, "stop"
        if len(tokens) == min(params.max_tokens, room):
            return tokens, _until_stop(scanner_text, params)[0], "length"


def _until_stop(raw, params, *, final=True):
    text = codecs.getincrementaldecoder("utf-8")("replace").decode(raw, final)
    scanner = StopStringScanner(params.stop)
    scanned = scanner.push(text)
    if scanned.stop_string is not None:
        return scanned.text, scanned.stop_string
    return scanned.text + scanner.flush(), None


class EngineMachine(RuleBasedStateMachine):
    @initialize(
        num_blocks=st.sampled_from([12, 16, 40]),
        budget=st.sampled_from([5, 16, 64]),
        max_num_seqs=st.sampled_from([1, 3, 8]),
        policy=st.sampled_from(["fcfs", "priority"]),
    )
    def build(self, num_blocks, budget, max_num_seqs, policy):
        self.fails = False
        self.fake = make_engine(
            self.next_token,
            num_blocks=num_blocks,
            max_model_len=48,
            max_num_batched_tokens=budget,
            max_num_seqs=max_num_seqs,
            scheduling_policy=policy,
        )
        self.engine = self.fake.engine
        self.asked: dict[str, tuple[list[int], SamplingParams]] = {}
        self.outputs = {}
        self.num_added = 0

    def next_token(self, request_id, position):
        if self.fails:
            self.fails = False
            raise StepError("by decree")
        return script(request_id, position)

    @rule(
        prefix=st.sampled_from(PREFIXES),
        rest=st.lists(st.integers(0, 3), max_size=6),
        n=st.sampled_from([1, 1, 2, 3]),
        max_tokens=st.integers(1, 20),
        stop=st.sampled_from([(), ("e",), ("the", "OP!")]),
        priority=st.integers(0, 2),
    )
    def add(self, prefix, rest, n, max_tokens, stop, priority):
        name = f"r{self.num_added // len(SUFFIXES)}{SUFFIXES[self.num_added % len(SUFFIXES)]}"
        self.num_added += 1
        params = SamplingParams(n=n, max_tokens=max_tokens, stop=stop)
        try:
            self.engine.add_request(name, prefix + rest, params, place=QueuePlace(priority))
        except ContextLengthError:
            return
        self.asked[name] = (prefix + rest, params)

    @rule(steps=st.integers(1, 4))
    def step(self, steps):
        for _ in range(steps):
            for output in self.engine.step():
                self.take(output)

    @precondition(lambda self: self.engine.has_unfinished_requests)
    @rule()
    def fail_a_step(self):
        self.fails = True
        self.step(1)
        self.fails = False
        self.step(1)  # two failures in a row would be the end

    @precondition(lambda self: self.asked.keys() - self.outputs.keys())
    @rule(data=st.data())
    def abort(self, data):
        running = sorted(name for name in self.asked if not self.is_finished(name))
        if running:
            name = data.draw(st.sampled_from(running))
            self.outputs[name] = self.engine.abort(name)
            self.check_prefix(name)

    @rule()
    def preempt_all(self):
        self.fake.scheduler.preempt_all()

    @rule()
    def reset_prefix_cache(self):
        done = self.engine.reset_prefix_cache()
        assert done == (self.fake.kv.num_free_blocks == self.fake.kv.num_blocks)

    @invariant()
    def the_cache_is_sound(self):
        check_invariants(self.fake.kv)

    @invariant()
    def front_and_scheduler_agree_on_what_is_under_way(self):
        assert self.engine.has_unfinished_requests == bool(self.engine.request_ids)

    def teardown(self):
        for _ in range(3000):
            if not self.engine.has_unfinished_requests:
                break
            self.step(1)
        assert not self.engine.has_unfinished_requests
        assert self.fake.kv.num_free_blocks == self.fake.kv.num_blocks
        for name in self.asked:
            assert self.is_finished(name)

    def is_finished(self, name):
        return name in self.outputs and self.outputs[name].finished

    def take(self, output):
        before = self.outputs.get(output.request_id)
        if before is not None:
            for old, new in zip(before.outputs, output.outputs, strict=True):
                assert new.text.startswith(old.text)
        self.outputs[output.request_id] = output
        self.check_prefix(output.request_id)

    def check_prefix(self, name):
        """Every continuation is, so far, what it would be alone."""
        prompt, params = self.asked[name]
        for choice in self.outputs[name].outputs:
            choice_id = choice_ids(name, params.n)[choice.index]
            tokens, text, reason = expected(choice_id, params, 48 - len(prompt))
            assert choice.token_ids == tokens[: len(choice.token_ids)]
            if choice.finish_reason in ("stop", "length"):
                assert (choice.token_ids, choice.text, choice.finish_reason) == (tokens, text, reason)


EngineMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestEngine = EngineMachine.TestCase


@given(st.dictionaries(st.text("a#01", max_size=6), st.integers(1, 12), max_size=8))
def test_no_two_requests_share_a_choice_id(num_choices):
    ids = [choice_id for name, n in num_choices.items() for choice_id in choice_ids(name, n)]
    assert len(set(ids)) == len(ids)
