"""`NativeInterpreter`: a `Program` in native code, a whole step in one call with the GIL released."""

import ctypes

import numpy as np

from octavo.errors import EngineError
from octavo.kernels.interpreter import FloatArray, IntArray, StepInput
from octavo.kernels.native_kv import NativeKVStore
from octavo.kernels.native_library import StepStruct, address, as_int32, load_library
from octavo.kernels.native_pool import NativePool
from octavo.kernels.native_program import ProgramStructs, Progress
from octavo.kernels.native_sampler import NativeSampler
from octavo.kernels.program import Buffer, Program
from octavo.kernels.select import available_threads, choose_isa
from octavo.kv.spec import KVCacheSpec


class NativeInterpreter:
    """Runs one program over one cache; implements `octavo.kernels.interpreter.Interpreter`.

    Args:
        num_blocks: usable KV blocks; the null block comes on top.
        max_num_tokens: most rows of a step.
        max_logit_rows: rows of logits to have room for from the start; more are allowed and make more room.
        num_threads: threads that compute, the caller's among them; by default all that this process may use.
        isa: an instruction set by name, or ``auto`` for the best that runs here.
        progress: called with (bytes ready, bytes in all) while the weights are packed.

    Raises:
        KernelUnavailableError: no native library, or ``isa`` cannot run here.
        EngineError: the program does not fit the cache, or there is not enough memory.
    """

    def __init__(
        self,
        program: Program,
        kv_spec: KVCacheSpec,
        num_blocks: int,
        *,
        max_num_tokens: int,
        max_logit_rows: int,
        num_threads: int | None = None,
        isa: str = "auto",
        progress: Progress | None = None,
    ) -> None:
        self._library = load_library()
        self.isa = choose_isa(isa)
        self._program = program
        self._vocab_size = program.head.weight.shape[0] if program.head else 0
        self._structs = ProgramStructs(
            program,
            isa=self.isa,
            max_num_tokens=max_num_tokens,
            max_logit_rows=max_logit_rows,
            progress=progress,
        )
        self._max_num_tokens = max_num_tokens
        self._num_tokens = 0
        self._handle: int | None = None
        self._pool = NativePool(num_threads or available_threads(), library=self._library)
        self.sampler = NativeSampler(library=self._library, pool=self._pool, isa=self.isa)
        self.kv_store = NativeKVStore(kv_spec, num_blocks, library=self._library, pool=self._pool)
        try:
            self._handle = self._library.create(
                "octavo_program_create",
                ctypes.byref(self._structs.struct),
                self._pool.handle,
                self.kv_store.handle,
            )
        except EngineError:
            self.close()
            raise

    @property
    def num_threads(self) -> int:
        """Threads that compute, the caller's among them."""
        return self._pool.num_threads

    @property
    def weight_bytes(self) -> int:
        """Memory of the packed weights."""
        return self._library.get("octavo_program_weight_bytes", self._open_handle())

    def run(self, step: StepInput) -> FloatArray:
        """Run every op for the rows of ``step``.

        Returns:
            Logits [num_logit_rows, vocab_size], float32, valid until the next call of this interpreter.
            Without a head the array is empty.

        Raises:
            EngineError: an array is out of range (a block id, a token id, a position, …); nothing was run.
        """
        handle = self._open_handle()
        arrays = _checked_arrays(step)
        struct = StepStruct(
            **{name: address(array) for name, array in arrays.items()},
            num_tokens=len(step.token_ids),
            num_requests=len(step.seq_lens),
            max_blocks_per_request=arrays["block_tables"].shape[1],
            num_logit_rows=len(step.logit_rows),
        )
        self._library.call("octavo_program_step", handle, ctypes.byref(struct))
        self._num_tokens = len(step.token_ids)
        return self._logits(len(step.logit_rows))

    def logits(self, rows: IntArray) -> FloatArray:
        """The head alone, for other rows of the step that ran last; same validity as `run`'s result.

        Raises:
            EngineError: a row is not one of the step, or the program has no head.
        """
        row_ids = as_int32(rows)
        self._library.call("octavo_program_logits", self._open_handle(), address(row_ids), len(row_ids))
        return self._logits(len(row_ids))

    def read(self, buffer: Buffer) -> FloatArray:
        """A copy of a buffer's rows after the last run [num_tokens, width]."""
        return self._rows(buffer)[: self._num_tokens].copy()

    def write(self, buffer: Buffer, rows: FloatArray) -> None:
        """Fill an `Input` buffer before a run (tests)."""
        self._rows(buffer)[: len(rows)] = rows

    def close(self) -> None:
        """Give back memory and threads; calling it again does nothing."""
        if self._handle:
            self._library.get("octavo_program_destroy", self._handle)
            self._handle = None
        self.kv_store.close()
        self._pool.close()

    def _open_handle(self) -> int:
        if self._handle is None:
            raise EngineError("the interpreter is closed")
        return self._handle

    def _logits(self, num_rows: int) -> FloatArray:
        if not num_rows or not self._vocab_size:
            return np.empty((num_rows, self._vocab_size), dtype=np.float32)
        data = self._library.get("octavo_program_logits_data", self._handle)
        return _view(data, num_rows, self._vocab_size)

    def _rows(self, buffer: Buffer) -> FloatArray:
        slot = self._structs.slots[buffer.index]
        data = self._library.get("octavo_program_slot_data", self._open_handle(), slot)
        return _view(data, self._max_num_tokens, buffer.width)


def _checked_arrays(step: StepInput) -> dict[str, IntArray]:
    """The step's arrays in the type that the library reads, their lengths consistent."""
    names = ("token_ids", "positions", "query_start_loc", "seq_lens", "block_tables", "logit_rows")
    arrays = {name: as_int32(getattr(step, name)) for name in names}
    num_requests = len(arrays["seq_lens"])
    if len(arrays["positions"]) != len(arrays["token_ids"]):
        raise EngineError(f"{len(arrays['token_ids'])} tokens, but {len(arrays['positions'])} positions")
    if len(arrays["query_start_loc"]) != num_requests + 1 or len(arrays["block_tables"]) != num_requests:
        raise EngineError(
            f"{num_requests} sequence lengths need {num_requests + 1} query starts and {num_requests} block "
            f"tables, got {len(arrays['query_start_loc'])} and {len(arrays['block_tables'])}"
        )
    return arrays


def _view(data: int, num_rows: int, width: int) -> FloatArray:
    pointer = ctypes.cast(data, ctypes.POINTER(ctypes.c_float))
    return np.ctypeslib.as_array(pointer, shape=(num_rows, width))
