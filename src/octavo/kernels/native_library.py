"""The native library: finding it, loading it, and its C structs (``native/octavo_native.h``)."""

import ctypes
from collections.abc import Callable
from ctypes import POINTER, c_char_p, c_double, c_float, c_int32, c_int64, c_void_p
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

import octavo.kernels
from octavo.errors import ConfigError, EngineError, KernelUnavailableError, ModelLoadError
from octavo.kernels.weight import Quantization

ABI_VERSION = 8
LIBRARY_NAME = "liboctavo_native.so"

QUANTIZATION_CODES = {quantization: code for code, quantization in enumerate(Quantization)}
"""Numbers of ``octavo::Quantization``, which lists the formats in the same order."""

_BAD_WEIGHT = 2
_MIN_INT32, _MAX_INT32 = -(2**31), 2**31 - 1

ProgressCallback = ctypes.CFUNCTYPE(None, c_int64, c_int64)


def _fields(kind: type, names: str) -> list[tuple[str, type]]:
    """Fields of one C type, in order."""
    return [(name, kind) for name in names.split()]


class CheckedStruct(ctypes.Structure):
    """A C struct that refuses a number its field cannot hold, where ctypes would cut its upper bits off.

    For what is made once. The structs of a step hold addresses and lengths of arrays, which always fit.
    """

    # typing.override needs 3.12
    def __setattr__(self, name: str, value: object) -> None:  # type: ignore[explicit-override]
        super().__setattr__(name, value)
        stored = getattr(self, name)
        if isinstance(stored, int) and stored != value:
            raise ConfigError(
                f"{name} must be between {_MIN_INT32} and {_MAX_INT32} for the native kernels, got {value}"
            )


class KvShapeStruct(CheckedStruct):
    """``OctavoKvShape``"""

    _fields_: ClassVar = _fields(c_int32, "num_layers num_blocks num_kv_heads head_dim block_size dtype")


class WeightStruct(CheckedStruct):
    """``OctavoWeight``"""

    _fields_: ClassVar = [
        *_fields(c_void_p, "bytes"),
        *_fields(c_int64, "num_bytes rows columns"),
        *_fields(c_char_p, "name"),
        *_fields(c_int32, "quantization"),
    ]


class RopeStruct(CheckedStruct):
    """``OctavoRope``"""

    _fields_: ClassVar = [
        *_fields(c_void_p, "frequencies"),
        *_fields(c_double, "magnitude"),
        *_fields(c_int32, "num_frequencies style"),
    ]


class OpStruct(CheckedStruct):
    """``OctavoOp``"""

    _fields_: ClassVar = [
        *_fields(c_int32, "kind out x weight first_part num_parts bias accumulate"),
        *_fields(c_int32, "layer num_heads num_kv_heads head_dim rope query_norm key_norm window router"),
        *_fields(c_int32, "num_experts top_k normalized activation"),
        *_fields(c_float, "scale eps soft_cap"),
    ]


class LowRankStruct(CheckedStruct):
    """``OctavoLowRank``"""

    _fields_: ClassVar = [
        *_fields(c_void_p, "a b"),
        *_fields(c_int32, "linear part rank"),
        *_fields(c_float, "scale"),
    ]


class ProgramStruct(CheckedStruct):
    """``OctavoProgramSpec``"""

    _fields_: ClassVar = [
        ("ops", POINTER(OpStruct)),
        ("slot_widths", POINTER(c_int32)),
        ("weights", POINTER(WeightStruct)),
        ("parts", POINTER(c_int32)),
        ("ropes", POINTER(RopeStruct)),
        *_fields(c_int32, "num_ops num_slots num_weights num_parts num_ropes max_num_tokens max_logit_rows"),
        ("isa", c_char_p),
        ("progress", ProgressCallback),
    ]


class StepStruct(ctypes.Structure):
    """``OctavoStep``"""

    _fields_: ClassVar = [
        *_fields(
            c_void_p, "token_ids positions query_start_loc seq_lens block_tables logit_rows adapter_slots"
        ),
        *_fields(c_int32, "num_tokens num_requests max_blocks_per_request num_logit_rows only_logit_rows"),
    ]


class LogprobsStruct(ctypes.Structure):
    """``OctavoLogprobs``"""

    _fields_: ClassVar = _fields(c_void_p, "logprobs ranks top_token_ids top_logprobs failed")


class SamplingStruct(ctypes.Structure):
    """``OctavoSampling``"""

    _fields_: ClassVar = [
        *_fields(c_void_p, "logits"),
        *_fields(c_int32, "num_rows vocab_size num_top num_penalty_rows"),
        *_fields(c_void_p, "temperature top_k top_p min_p seeds choice_indices positions"),
        *_fields(c_void_p, "repetition_penalty frequency_penalty presence_penalty"),
        *_fields(c_void_p, "penalty_rows output_counts prompt_tokens"),
        *_fields(c_void_p, "bias_starts bias_token_ids bias_values banned_starts banned_token_ids"),
        *_fields(c_void_p, "allowed_rows allowed_tokens"),
        *_fields(c_int32, "num_biases num_banned num_allowed_rows"),
        *_fields(c_void_p, "token_ids"),
        ("out", LogprobsStruct),
    ]


_HANDLE = c_void_p
_NEW_HANDLE = POINTER(c_void_p)
_PROTOTYPES: dict[str, tuple[Any, list[Any]]] = {
    "octavo_abi_version": (c_int32, []),
    "octavo_last_error": (c_char_p, []),
    "octavo_compiled_isas": (c_char_p, []),
    "octavo_available_isas": (c_char_p, []),
    "octavo_pool_create": (c_int32, [c_int32, _NEW_HANDLE]),
    "octavo_pool_destroy": (None, [_HANDLE]),
    "octavo_kv_create": (c_int32, [POINTER(KvShapeStruct), _NEW_HANDLE]),
    "octavo_kv_destroy": (None, [_HANDLE]),
    "octavo_kv_num_bytes": (c_int64, [_HANDLE]),
    "octavo_kv_read_block": (c_int32, [_HANDLE, _HANDLE, c_int32, c_int32, c_void_p]),
    "octavo_kv_write_block": (c_int32, [_HANDLE, _HANDLE, c_int32, c_int32, c_void_p]),
    "octavo_kv_copy_blocks": (c_int32, [_HANDLE, _HANDLE, c_void_p, c_int64]),
    "octavo_program_create": (c_int32, [POINTER(ProgramStruct), _HANDLE, _HANDLE, _NEW_HANDLE]),
    "octavo_program_destroy": (None, [_HANDLE]),
    "octavo_program_step": (c_int32, [_HANDLE, POINTER(StepStruct)]),
    "octavo_program_step_and_sample": (c_int32, [_HANDLE, POINTER(StepStruct), POINTER(SamplingStruct)]),
    "octavo_program_logits": (c_int32, [_HANDLE, c_void_p, c_int32]),
    "octavo_program_logits_data": (c_void_p, [_HANDLE]),
    "octavo_program_slot_data": (c_void_p, [_HANDLE, c_int32]),
    "octavo_program_weight_bytes": (c_int64, [_HANDLE]),
    "octavo_program_set_adapter": (c_int32, [_HANDLE, c_int32, POINTER(LowRankStruct), c_int32]),
    "octavo_program_adapter_bytes": (c_int64, [_HANDLE]),
    "octavo_program_share_passes": (None, [_HANDLE, c_int32]),
    "octavo_program_begin_early": (None, [_HANDLE, c_int32]),
    "octavo_program_num_early_steps": (c_int64, [_HANDLE]),
    "octavo_program_num_shared_passes": (c_int32, [_HANDLE]),
    "octavo_sample": (c_int32, [_HANDLE, c_char_p, POINTER(SamplingStruct)]),
    "octavo_logprobs": (c_int32, [_HANDLE, c_char_p, POINTER(SamplingStruct)]),
    "octavo_probe": (
        c_int32,
        [_HANDLE, c_char_p, c_int32, c_void_p, c_int64, c_int64, POINTER(c_int64)],
    ),
}


class _Function(NamedTuple):
    """A function of the library."""

    function: Callable[..., Any]
    int32_places: list[int]
    """Arguments of 32 bits, which ctypes would cut from a longer number."""


class NativeLibrary:
    """The loaded library. Calls release the GIL; those that can fail go through `call`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._functions: dict[str, _Function] = {}
        try:
            self._library = ctypes.CDLL(str(path))
            for name, (result, arguments) in _PROTOTYPES.items():
                function = getattr(self._library, name)
                function.restype, function.argtypes = result, arguments
                int32_places = [place for place, kind in enumerate(arguments) if kind is c_int32]
                self._functions[name] = _Function(function, int32_places)
            version = int(self._library.octavo_abi_version())
        except (OSError, AttributeError) as error:
            raise KernelUnavailableError(
                f"the native library {path} does not load ({error}); rebuild it with `make setup`"
            ) from error
        if version != ABI_VERSION:
            raise KernelUnavailableError(
                f"the native library {path} has interface version {version}, this package needs "
                f"{ABI_VERSION}; rebuild it with `make setup`"
            )

    def call(self, name: str, *arguments: object) -> None:
        """Call a function that returns an error code.

        Raises:
            EngineError: the code is not 0, and the message is the library's; or a number needs over 32 bits.
            ModelLoadError: the code says that the model's weights are at fault.
        """
        function, int32_places = self._functions[name]
        for place in int32_places:
            value = arguments[place]
            if isinstance(value, int) and not _MIN_INT32 <= value <= _MAX_INT32:
                raise EngineError(f"{name} takes numbers of 32 bits, got {value}")
        code = function(*arguments)
        if code != 0:
            error = ModelLoadError if code == _BAD_WEIGHT else EngineError
            raise error(self._library.octavo_last_error().decode())

    def create(self, name: str, *arguments: object) -> int:
        """Call a function that makes a handle and return the handle."""
        handle = c_void_p()
        self.call(name, *arguments, ctypes.byref(handle))
        if handle.value is None:
            raise EngineError(f"{name} made no handle")
        return handle.value

    def get(self, name: str, *arguments: object) -> int:
        """Call a function that cannot fail and return its number or address (0 for none)."""
        return int(self._functions[name].function(*arguments) or 0)

    def isas(self, which: str) -> tuple[str, ...]:
        """Names of the instruction sets, the best first; ``which`` is ``compiled`` or ``available``."""
        names: bytes = self._functions[f"octavo_{which}_isas"].function()
        return tuple(names.decode().split(","))


@cache
def load_library() -> NativeLibrary:
    """The library of this installation.

    An editable installation spreads the package over two folders, so every folder of the package is searched.

    Raises:
        KernelUnavailableError: it was not built, or it does not fit this package.
    """
    folders = [Path(folder) for folder in octavo.kernels.__path__]
    for folder in folders:
        if (folder / LIBRARY_NAME).exists():
            return NativeLibrary(folder / LIBRARY_NAME)
    raise KernelUnavailableError(
        f"the native library {LIBRARY_NAME} is not in {', '.join(map(str, folders))}; build it with "
        f"`make setup`, or choose the reference kernels"
    )


def address(array: npt.NDArray[Any]) -> int:
    """Where a C-contiguous array's elements lie; 0 for an empty one."""
    return int(array.ctypes.data) if array.size else 0


def as_int32(values: npt.ArrayLike) -> npt.NDArray[np.int32]:
    """The values as a C-contiguous int32 array, the same one if it already is.

    Raises:
        EngineError: a value does not fit.
    """
    array = np.asarray(values)
    if array.dtype != np.int32 and array.size:
        smallest, largest = array.min(), array.max()
        if smallest < _MIN_INT32 or largest > _MAX_INT32:
            raise EngineError(f"numbers must fit 32 bits, got {smallest} … {largest}")
    return np.ascontiguousarray(array, dtype=np.int32)
