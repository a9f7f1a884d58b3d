"""`NativeInterpreter`: a `Program` in native code, a whole step in one call with the GIL released."""

import ctypes
from collections.abc import Callable
from contextlib import ExitStack, closing
from typing import Literal

import numpy as np

from octavo.errors import EngineError
from octavo.kernels.adapter import Adapter, placed_pairs
from octavo.kernels.arrays import FloatArray, IntArray
from octavo.kernels.interpreter import SampledStep, StepInput
from octavo.kernels.native_kv import NativeKVStore
from octavo.kernels.native_library import LowRankStruct, StepStruct, address, as_int32, load_library
from octavo.kernels.native_object import NativeHandle, NativeObject
from octavo.kernels.native_pool import NativePool
from octavo.kernels.native_program import ProgramStructs, Progress
from octavo.kernels.native_sampler import NativeSampler, PreparedSampling
from octavo.kernels.program import Buffer, Program
from octavo.kernels.sampling import SamplingInput
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
        ConfigError: a number is out of range.
        KernelUnavailableError: no native library, or ``isa`` cannot run here.
        EngineError: the program does not fit the cache, or there is not enough memory.
        ModelLoadError: a weight is not finite.
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
        self._vocab_size = program.head.weight.shape[0] if program.head else 0
        structs = ProgramStructs(
            program,
            isa=self.isa,
            max_num_tokens=max_num_tokens,
            max_logit_rows=max_logit_rows,
            progress=progress,
        )
        self._slots = structs.slots
        self._source = program
        self._max_num_tokens = max_num_tokens
        self._num_tokens = 0
        self._prepared: _PreparedStep | None = None
        self._prepared_sampling: PreparedSampling | None = None
        num_threads = available_threads() if num_threads is None else num_threads
        with ExitStack() as opened:
            self._pool = opened.enter_context(closing(NativePool(num_threads, library=self._library)))
            store = NativeKVStore(kv_spec, num_blocks, library=self._library, pool=self._pool)
            self.kv_store = opened.enter_context(closing(store))
            self._program = opened.enter_context(closing(self._create_program(structs)))
            self._close: Callable[[], None] = opened.pop_all().close
        self.sampler = NativeSampler(library=self._library, pool=self._pool, isa=self.isa)

    @property
    def num_threads(self) -> int:
        """Threads that compute, the caller's among them."""
        return self._pool.num_threads

    @property
    def weight_bytes(self) -> int:
        """Memory of the packed weights."""
        with self._program as program:
            return self._library.get("octavo_program_weight_bytes", program.address)

    def share_passes(self, share: bool) -> None:
        """Whether attention reads the blocks that several requests begin with once for all of them.

        It does so at first. No bit depends on it: turning it off is for tests and measurements.
        """
        with self._program as program:
            self._library.get("octavo_program_share_passes", program.address, share)

    def begin_early(self, when: Literal["never", "undisturbed", "always"]) -> None:
        """When `run_and_sample` begins with the step after this one, if it can tell which that will be.

        At first it does unless other processes keep the processors busy. No bit depends on it: another choice
        is for tests and measurements.
        """
        number = ("never", "undisturbed", "always").index(when)
        with self._program as program:
            self._library.get("octavo_program_begin_early", program.address, number)

    @property
    def num_early_steps(self) -> int:
        """Steps since the start that had begun when they were asked for."""
        with self._program as program:
            return self._library.get("octavo_program_num_early_steps", program.address)

    @property
    def num_shared_passes(self) -> int:
        """Runs of partitions of 256 tokens that several requests of the last step read together."""
        with self._program as program:
            return self._library.get("octavo_program_num_shared_passes", program.address)

    def run(self, step: StepInput) -> FloatArray:
        """Run every op for the rows of ``step``.

        Returns:
            Logits [num_logit_rows, vocab_size], float32, valid until the next call of this interpreter.
            Without a head the array is empty.

        Raises:
            EngineError: an array is out of range (a block id, a token id, a position, …), or the interpreter
                is closed; nothing was run.
        """
        with self._program as program:
            prepared = self._prepare(step)
            self._library.call("octavo_program_step", program.address, ctypes.byref(prepared.struct))
            return self._logits_of(prepared, program)

    def run_and_sample(self, step: StepInput, sampling_input: SamplingInput) -> SampledStep:
        """`run`, and a token for each of its logit rows, in one call; the other threads work between calls.

        If at most 8 requests decode, each with one row, none of them needs another block or failed, and
        ``only_logit_rows`` is set, they begin with the step in which each request computes its token. If the
        next call is that step, it joins them; if it is another one, or anything else runs on these threads,
        what they did is forgotten: slots behind the requests' ends may then hold anything.

        Raises:
            ValueError: an array for sampling has another shape than the number of logit rows asks for.
            EngineError: an array is out of range, or the interpreter is closed; no token was sampled.
        """
        with self._program as program:
            prepared, sampling = self._prepare(step), self._prepare_sampling(step, sampling_input)
            self._library.call(
                "octavo_program_step_and_sample",
                program.address,
                ctypes.byref(prepared.struct),
                ctypes.byref(sampling.struct),
            )
            return SampledStep(sampling.output, self._logits_of(prepared, program))

    def logits(self, rows: IntArray) -> FloatArray:
        """The head alone, for other rows of the step that ran last; same validity as `run`'s result.

        Raises:
            EngineError: a row is not one of the step, the step wanted its logit rows only, the next one has
                begun, the program has no head, or the interpreter is closed.
        """
        row_ids = as_int32(rows)
        self._prepared = None  # more rows than ever before have their logits elsewhere from now on
        with self._program as program:
            self._library.call("octavo_program_logits", program.address, address(row_ids), len(row_ids))
            return self._logits(program, len(row_ids))

    def set_adapter(self, slot: int, adapter: Adapter | None) -> None:
        """Put a packed copy of an adapter in a slot that steps may name, or empty the slot.

        Raises:
            EngineError: there is not enough memory, the slot is out of range, or the interpreter is closed.
            ValueError: the adapter does not fit the program.
        """
        pairs = [] if adapter is None else list(placed_pairs(self._source, adapter))
        matrices = [(_float32(placed.pair.a), _float32(placed.pair.b)) for placed in pairs]
        structs = (LowRankStruct * len(pairs))(
            *(
                LowRankStruct(
                    a=address(a),
                    b=address(b),
                    linear=placed.linear,
                    part=placed.part,
                    rank=placed.pair.rank,
                    scale=placed.pair.scale,
                )
                for placed, (a, b) in zip(pairs, matrices, strict=True)
            )
        )
        with self._program as program:
            self._library.call("octavo_program_set_adapter", program.address, slot, structs, len(pairs))

    def read(self, buffer: Buffer) -> FloatArray:
        """A copy of a buffer's rows after the last run [num_tokens, width].

        Only rows that no op of the program reads are sure to be there: others may lie in another form, or
        have given their memory to a later buffer. A buffer that only logit rows went on in begins with those.

        Raises:
            EngineError: the next step has begun, see `run_and_sample`, or the interpreter is closed.
        """
        return self._rows(buffer)[: self._num_tokens].copy()

    def write(self, buffer: Buffer, rows: FloatArray) -> None:
        """Fill an `Input` buffer before a run (tests)."""
        self._rows(buffer)[: len(rows)] = rows

    def close(self) -> None:
        """Give back memory and threads when the call under way is over; calling it again does nothing."""
        self._close()
        self._prepared = None  # whose logits are the program's memory

    def _create_program(self, structs: ProgramStructs) -> NativeObject:
        with self._pool as pool, self.kv_store as kv:
            handle = NativeHandle(
                self._library,
                "program",
                ctypes.byref(structs.struct),
                pool.address,
                kv.address,
                uses=(pool, kv, structs.weights),
            )
        return NativeObject(handle, "interpreter", self._pool.lock)

    def _prepare(self, step: StepInput) -> "_PreparedStep":
        if self._prepared is None or not self._prepared.serves(step):
            self._prepared = _PreparedStep(step)
        return self._prepared

    def _prepare_sampling(self, step: StepInput, sampling_input: SamplingInput) -> PreparedSampling:
        prepared, shape = self._prepared_sampling, (len(step.logit_rows), self._vocab_size)
        if prepared is None or not prepared.serves(sampling_input, shape):
            prepared = self._prepared_sampling = PreparedSampling(sampling_input, shape)
        return prepared

    def _logits_of(self, step: "_PreparedStep", program: NativeHandle) -> FloatArray:
        self._num_tokens = step.struct.num_tokens
        if step.logits is None:
            step.logits = self._logits(program, step.struct.num_logit_rows)
        return step.logits

    def _logits(self, program: NativeHandle, num_rows: int) -> FloatArray:
        if not num_rows or not self._vocab_size:
            return np.empty((num_rows, self._vocab_size), dtype=np.float32)
        data = self._library.get("octavo_program_logits_data", program.address)
        return np.asarray(_Rows(program, data, (num_rows, self._vocab_size)))

    def _rows(self, buffer: Buffer) -> FloatArray:
        with self._program as program:
            data = self._library.get("octavo_program_slot_data", program.address, self._slots[buffer.index])
            if not data:
                raise EngineError("the next step has begun: the rows of the last one are gone")
            return np.asarray(_Rows(program, data, (self._max_num_tokens, buffer.width)))


class _Rows:
    """Rows of float32 in the memory of a program, which lives as long as an array made of this.

    Args:
        program: whose memory it is.
        data: where it begins.
        shape: [num_rows, width]
    """

    def __init__(self, program: NativeHandle, data: int, shape: tuple[int, int]) -> None:
        self._program = program
        typestr = np.dtype(np.float32).str
        self.__array_interface__ = {"data": (data, False), "shape": shape, "typestr": typestr, "version": 3}


def _float32(matrix: FloatArray) -> FloatArray:
    return np.ascontiguousarray(matrix, dtype=np.float32)


class _PreparedStep:
    """A step's arrays in the types that the library reads, which `struct` points into.

    Attributes:
        struct: what the library takes.
        logits: where its answer is, once it was run.

    Raises:
        EngineError: the lengths of the arrays contradict each other.
    """

    def __init__(self, source: StepInput) -> None:
        self.logits: FloatArray | None = None
        self._source = source
        self._arrays = _checked_arrays(source)
        # A copy of an array would not show what the array holds the next time.
        self._has_copies = any(array is not getattr(source, name) for name, array in self._arrays.items())
        self.struct = StepStruct(
            **{name: address(array) for name, array in self._arrays.items()},
            num_tokens=len(source.token_ids),
            num_requests=len(source.seq_lens),
            max_blocks_per_request=self._arrays["block_tables"].shape[1],
            num_logit_rows=len(source.logit_rows),
            only_logit_rows=source.only_logit_rows,
        )

    def serves(self, source: StepInput) -> bool:
        """Whether it can be used again, perhaps with other numbers in the arrays."""
        return source is self._source and not self._has_copies


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
    if step.adapter_slots is not None:
        arrays["adapter_slots"] = as_int32(step.adapter_slots)
        if len(arrays["adapter_slots"]) != num_requests:
            raise EngineError(f"{num_requests} requests, but {len(arrays['adapter_slots'])} adapter slots")
    return arrays
