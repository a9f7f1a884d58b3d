"""Octavo: an LLM inference engine whose KV cache is paged.

    from octavo import LLM, SamplingParams

    llm = LLM(model="smollm2-135m")
    print(llm.generate("What is a library?", SamplingParams(max_tokens=64))[0].outputs[0].text)

Names are imported when they are first used: ``import octavo`` itself loads next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from octavo.build import build_engine as build_engine
    from octavo.config import CacheConfig as CacheConfig
    from octavo.config import EngineConfig as EngineConfig
    from octavo.config import ModelConfig as ModelConfig
    from octavo.config import RunnerConfig as RunnerConfig
    from octavo.config import SchedulerConfig as SchedulerConfig
    from octavo.engine.async_engine import AsyncEngine as AsyncEngine
    from octavo.kv.receipt import CacheReceipt as CacheReceipt
    from octavo.kv.receipt import MissReason as MissReason
    from octavo.llm import LLM as LLM
    from octavo.lora_request import LoRARequest as LoRARequest
    from octavo.outputs import CompletionOutput as CompletionOutput
    from octavo.outputs import EmbeddingOutput as EmbeddingOutput
    from octavo.outputs import EmbeddingRequestOutput as EmbeddingRequestOutput
    from octavo.outputs import Logprob as Logprob
    from octavo.outputs import RequestOutput as RequestOutput
    from octavo.pooling_params import PoolingParams as PoolingParams
    from octavo.sampling_params import RequestOutputKind as RequestOutputKind
    from octavo.sampling_params import SamplingParams as SamplingParams
    from octavo.structured_outputs import StructuredOutputsParams as StructuredOutputsParams

_ERRORS = (
    "AdapterError",
    "CapacityError",
    "ConfigError",
    "ContextLengthError",
    "DrainingError",
    "EngineDeadError",
    "EngineError",
    "InvalidRequestError",
    "InvariantError",
    "KernelUnavailableError",
    "ModelLoadError",
    "ModelNotFoundError",
    "OctavoError",
    "QueueFullError",
    "QueueShareError",
    "QueueTimeoutError",
    "RequestError",
    "StepError",
    "UnsupportedFeatureError",
)
_MODULES = {
    "AsyncEngine": "octavo.engine.async_engine",
    "CacheConfig": "octavo.config",
    "CacheReceipt": "octavo.kv.receipt",
    "CompletionOutput": "octavo.outputs",
    "EmbeddingOutput": "octavo.outputs",
    "EmbeddingRequestOutput": "octavo.outputs",
    "EngineConfig": "octavo.config",
    "LLM": "octavo.llm",
    "LoRARequest": "octavo.lora_request",
    "Logprob": "octavo.outputs",
    "MissReason": "octavo.kv.receipt",
    "ModelConfig": "octavo.config",
    "PoolingParams": "octavo.pooling_params",
    "RequestOutput": "octavo.outputs",
    "RequestOutputKind": "octavo.sampling_params",
    "RunnerConfig": "octavo.config",
    "SamplingParams": "octavo.sampling_params",
    "SchedulerConfig": "octavo.config",
    "StructuredOutputsParams": "octavo.structured_outputs",
    "build_engine": "octavo.build",
} | dict.fromkeys(_ERRORS, "octavo.errors")
"""Where each public name lives."""

__all__ = sorted(["__version__", *_MODULES])  # one list of names is enough


def __getattr__(name: str) -> object:
    if name == "__version__":
        from octavo.version import octavo_version

        return octavo_version()
    if name not in _MODULES:
        raise AttributeError(f"module 'octavo' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
