"""`AccessTrace`: requests written down so that their load can be replayed later, and not what they said.

One JSON object per line, in the format of public request traces: when it came, how long prompt and output
were, and an id for each full block of the prompt. Two prompts that begin with the same blocks, and could
share them, have the same ids there; ids say nothing else, since they are keyed with a salt that is never
written down.
"""

import hashlib
import json
import logging
import os
import secrets
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from octavo.engine.request_record import FinishedRequest
from octavo.errors import ConfigError
from octavo.kv.hashing import BlockHash
from octavo.server.request_log import cause_of_end

logger = logging.getLogger(__name__)

MAX_BYTES = 2**30
"""At which a trace ends."""
_ID_BYTES = 6
"""48 bits: exact in every JSON reader; twenty million blocks before two are likely to share one by chance."""


class AccessTrace:
    """Writes a trace file. A file that is there already is renamed by its age, never overwritten.

    Args:
        path: where to.
        block_size: tokens per block.
        clock: the engine's [s]; timestamps count from now on.
        salt: keys the ids; drawn if omitted.

    Raises:
        ConfigError: the file cannot be written.
    """

    def __init__(
        self,
        path: Path,
        block_size: int,
        *,
        clock: Callable[[], float] = time.monotonic,
        salt: bytes | None = None,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._path = path
        self._block_size = block_size
        self._start = clock()
        self._salt = secrets.token_bytes(32) if salt is None else salt
        self._bytes_left = max_bytes
        try:
            _move_away(path)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except OSError as error:
            raise ConfigError(
                f"access_trace is {path}, which cannot be written: {error.strerror}; give a file in a folder "
                f"that can be"
            ) from None
        self._file = os.fdopen(descriptor, "w", encoding="ascii")

    def write(self, finished: FinishedRequest) -> None:
        """Write one request, if there is room for it."""
        if self._bytes_left <= 0:
            return
        line = json.dumps(self._row(finished), separators=(",", ":")) + "\n"
        self._bytes_left -= len(line)
        if self._bytes_left > 0:
            self._file.write(line)
            return
        self._file.flush()
        logger.warning("the access trace %s is full; what follows is not written", self._path)

    def close(self) -> None:
        """Write what is left."""
        self._file.close()

    def _row(self, finished: FinishedRequest) -> dict[str, object]:
        return {
            "timestamp": round(1000 * (finished.arrived_at - self._start)),
            "input_length": finished.num_prompt_tokens,
            "output_length": finished.num_output_tokens,
            "block_size": self._block_size,
            "hash_ids": [self._id(block_hash) for block_hash in finished.block_hashes],
            "cached_tokens": finished.num_cached_tokens,
            "cause": cause_of_end(finished),
        }

    def _id(self, block_hash: BlockHash) -> int:
        digest = hashlib.blake2b(block_hash, key=self._salt, digest_size=_ID_BYTES).digest()
        return int.from_bytes(digest, "big")


def _move_away(path: Path) -> None:
    """Keep an earlier trace under a name with the time of its last change."""
    if path.is_file():
        changed = datetime.fromtimestamp(path.stat().st_mtime, UTC)
        path.rename(path.with_name(f"{path.name}.{changed:%Y%m%dT%H%M%S%f}"))
