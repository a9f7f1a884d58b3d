"""An engine without a model: a scripted runner, and a tokenizer for which a byte is a token."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import pytest

from octavo.config import SchedulerConfig
from octavo.engine.core import EngineCore
from octavo.engine.engine import Engine
from octavo.engine.scripted_runner import ScriptedRunner
from octavo.kv.hashing import BlockHasher
from octavo.kv.manager import KVCacheManager
from octavo.sched.scheduler import Scheduler

END = 256
BLOCK_SIZE = 8
NUM_BLOCKS = 64


class ByteTokenizer:
    """Implements `octavo.engine.tokenizer.Tokenizer`: token n is byte n, token 256 ends a turn."""

    vocab_size = 257
    bos_token_id = None
    eos_token_ids = frozenset({END})
    chat_template_source = None

    def encode(self, text: str, *, add_special_tokens: bool = True, parse_special: bool = False) -> list[int]:
        return list(text.encode())

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        return b"".join(map(self.token_bytes, token_ids)).decode(errors="replace")

    def token_bytes(self, token_id: int) -> bytes:
        return bytes([token_id]) if token_id < END else b""

    def is_special(self, token_id: int) -> bool:
        return token_id == END

    def apply_chat_template(
        self,
        messages: Sequence[Mapping[str, str]],
        *,
        add_generation_prompt: bool = True,
        chat_template: str | None = None,
        **variables: object,
    ) -> str:
        turns = "".join(f"{message['role'][0].upper()}:{message['content']}\n" for message in messages)
        return turns + "A:"


class Parts(NamedTuple):
    engine: Engine
    kv: KVCacheManager


@pytest.fixture
def make_engine() -> Callable[..., Parts]:
    """Make an engine whose every answer is ``answer``, a token per step."""

    def make(answer: str = "yes", *, num_blocks: int = NUM_BLOCKS) -> Parts:
        tokens = [*answer.encode(), END]
        kv = KVCacheManager(num_blocks=num_blocks, block_size=BLOCK_SIZE)
        scheduler = Scheduler(SchedulerConfig(max_num_batched_tokens=64), kv, max_model_len=512)
        runner = ScriptedRunner(lambda _request_id, position: tokens[position], num_blocks=num_blocks)
        engine = Engine(
            EngineCore(scheduler, runner), ByteTokenizer(), block_hasher=BlockHasher(BLOCK_SIZE, bytes(32))
        )
        return Parts(engine, kv)

    return make
