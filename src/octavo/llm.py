"""`LLM`: offline generation for a list of prompts, under vLLM's names."""

import itertools
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self, TypeVar

from octavo.build import build
from octavo.config import EngineConfig, ResolvedConfig
from octavo.engine.engine import POLL_S
from octavo.engine.prompt import (
    EncodedPrompt,
    Prompt,
    encode_chat,
    encode_prompt,
    list_conversations,
    list_prompts,
    template_variables,
)
from octavo.engine.queue_place import QueuePlace
from octavo.engine.request_check import check_pooling_params, checked_params
from octavo.engine.tokenizer import ChatMessage, Tokenizer
from octavo.errors import CapacityError, InvalidRequestError, QueueFullError
from octavo.interrupt import InterruptFlag
from octavo.lora_request import LoRARequest
from octavo.outputs import EmbeddingRequestOutput, RequestOutput
from octavo.pooling_params import PoolingParams
from octavo.progress import GenerationProgress
from octavo.sampling_params import RequestOutputKind, SamplingParams

Conversation = Sequence[ChatMessage]
T = TypeVar("T")


class _PendingRequest(NamedTuple):
    request_id: str
    prompt: EncodedPrompt
    params: SamplingParams | PoolingParams
    priority: int
    adapter: str | None


LoRARequests = LoRARequest | Sequence[LoRARequest | None] | None
"""For all prompts, or one each."""


class LLM:
    """A model, loaded, and everything needed to generate with it.

        llm = LLM(model="smollm2-135m", block_size=16, num_threads=4)
        outputs = llm.generate(["Hello", "Good night"], SamplingParams(temperature=0, max_tokens=32))
        print(outputs[0].outputs[0].text)

    One thread at a time: what another one asks for meanwhile is refused with `CapacityError`, `close`
    included. `AsyncEngine` serves many callers.

    Args:
        model: a .gguf file, a Hugging Face folder, a name on the hub, or the short name of the default model;
            what has a name is fetched if need be.
        options: every option of `EngineConfig`'s parts, by name.

    Attributes:
        config: what the engine really runs with.

    Raises:
        ConfigError: an option does not exist, or does not fit the model or the machine.
        ModelLoadError: the model cannot be found, read or fetched.
    """

    def __init__(self, model: str | Path | None = None, **options: object) -> None:
        chosen = {} if model is None else {"model": str(model)}
        built = build(EngineConfig.from_options({**chosen, **options}))
        self.config: ResolvedConfig = built.config
        self._engine = built.engine
        self._default_sampling_params = built.default_sampling_params
        self._request_numbers = itertools.count()
        self._in_use = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool = True,
        priority: Sequence[int] | None = None,
        lora_request: LoRARequests = None,
    ) -> list[RequestOutput]:
        """Continue prompts; all of them are computed together, as far as the configuration allows.

        Args:
            prompts: text, ``{"prompt": text}``, ``{"prompt_token_ids": ids}``, or a list of these.
            sampling_params: for all prompts, or one each; `get_default_sampling_params()` if omitted.
            use_tqdm: show a progress bar on standard error.
            priority: one per prompt, lower first, under the priority policy.
            lora_request: adapter for all prompts, or one each; loaded first, if it is not there.

        Returns:
            One output per prompt, in the order of the prompts.

        Raises:
            RequestError: a prompt or a parameter is at fault; nothing of this call goes on.
            CapacityError: another thread is using this LLM.
            KeyboardInterrupt: Ctrl-C; nothing of this call goes on, and the LLM can be used again.
        """
        tokenizer = self._engine.tokenizer
        encoded = [encode_prompt(prompt, tokenizer) for prompt in list_prompts(prompts)]
        params = self._params(sampling_params, len(encoded))
        return self._run_all(encoded, params, use_tqdm, priority=priority, lora_request=lora_request)

    def chat(  # noqa: PLR0913  # vLLM's parameters
        self,
        messages: Conversation | Sequence[Conversation],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool = True,
        chat_template: str | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        tools: Sequence[Mapping[str, object]] | None = None,
        chat_template_kwargs: Mapping[str, object] | None = None,
        lora_request: LoRARequests = None,
    ) -> list[RequestOutput]:
        """Answer conversations, written out by the model's chat template.

        Args:
            messages: one conversation, a list of ``{"role": …, "content": …}``, or a list of conversations.
                A content is text, or a list of parts ``{"type": "text", "text": …}``.
            sampling_params: for all conversations, or one each; `get_default_sampling_params()` if omitted.
            use_tqdm: show a progress bar on standard error.
            chat_template: jinja2 text to use instead of the model's own template.
            add_generation_prompt: open the assistant's turn.
            continue_final_message: let the model go on with the last message instead of answering it; needs
                ``add_generation_prompt=False``.
            tools: descriptions of functions, for templates that take them.
            chat_template_kwargs: further variables of the template.
            lora_request: as in `generate`.

        Raises:
            RequestError: the template refuses a conversation, or a parameter is at fault.
            CapacityError: another thread is using this LLM.
            KeyboardInterrupt: as in `generate`.
        """
        variables = template_variables(chat_template_kwargs, tools)
        prompts = [
            encode_chat(
                conversation,
                self._engine.tokenizer,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=continue_final_message,
                chat_template=chat_template,
                **variables,
            )
            for conversation in list_conversations(messages)
        ]
        params = self._params(sampling_params, len(prompts))
        return self._run_all(prompts, params, use_tqdm, lora_request=lora_request)

    def embed(
        self,
        prompts: Prompt | Sequence[Prompt],
        pooling_params: PoolingParams | Sequence[PoolingParams] | None = None,
        *,
        use_tqdm: bool = True,
    ) -> list[EmbeddingRequestOutput]:
        """The embeddings of prompts: each the mean of the last hidden states of its tokens.

        Args:
            prompts: as for `generate`.
            pooling_params: for all prompts, or one each; `PoolingParams()` if omitted.
            use_tqdm: show a progress bar on standard error.

        Raises:
            EngineError: an embedding could not be computed; for the others see `generate`.
        """
        encoded = [encode_prompt(prompt, self._engine.tokenizer) for prompt in list_prompts(prompts)]
        chosen = PoolingParams() if pooling_params is None else pooling_params
        params = _one_each("pooling_params", chosen, len(encoded))
        for each in params:
            check_pooling_params(each)
        return [EmbeddingRequestOutput.of(output) for output in self._run_all(encoded, params, use_tqdm)]

    def get_tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        return self._engine.tokenizer

    def get_default_sampling_params(self) -> SamplingParams:
        """The parameters of calls that give none: what the model's files recommend, else `SamplingParams()`.

        `SamplingParams.clone` makes others of them.
        """
        return self._default_sampling_params

    def reset_prefix_cache(self) -> bool:
        """Forget all cached prefixes.

        Raises:
            CapacityError: another thread is using this LLM.
        """
        with self._alone():
            return self._engine.reset_prefix_cache()

    def add_lora(self, lora_request: LoRARequest) -> bool:
        """Load an adapter; returns whether it was not there before.

        Raises:
            AdapterError: its files do not fit the model, or its name is taken.
            CapacityError: no more adapters may be loaded, or another thread is using this LLM.
        """
        with self._alone():
            return self._engine.add_lora(lora_request)

    def remove_lora(self, lora_name: str) -> None:
        """Unload an adapter.

        Raises:
            AdapterError: there is none of this name.
            CapacityError: another thread is using this LLM.
        """
        with self._alone():
            self._engine.adapters.remove(lora_name)

    def close(self) -> None:
        """Give back memory and threads; calling it again does nothing.

        Raises:
            CapacityError: another thread is using this LLM.
        """
        with self._alone():
            self._engine.close()

    @contextmanager
    def _alone(self) -> Iterator[InterruptFlag]:
        """Keep other threads out. Ctrl-C is held back first, so that nothing stays locked."""
        with InterruptFlag() as interrupt:
            if not self._in_use.acquire(blocking=False):
                raise CapacityError(
                    "another thread is using this LLM; wait for it, give each thread an LLM of its own, or "
                    "use AsyncEngine"
                )
            try:
                yield interrupt
            finally:
                self._in_use.release()

    def _params(
        self, sampling_params: SamplingParams | Sequence[SamplingParams] | None, count: int
    ) -> list[SamplingParams]:
        chosen = self.get_default_sampling_params() if sampling_params is None else sampling_params
        return [_final_only(each) for each in _one_each("sampling_params", chosen, count)]

    def _run_all(
        self,
        prompts: Sequence[EncodedPrompt],
        params: Sequence[SamplingParams | PoolingParams],
        use_tqdm: bool,
        *,
        priority: Sequence[int] | None = None,
        lora_request: LoRARequests = None,
    ) -> list[RequestOutput]:
        priorities = _one_each("priority", 0 if priority is None else priority, len(prompts))
        loras = _one_each("lora_request", lora_request, len(prompts))
        adapters = [None if lora is None else lora.lora_name for lora in loras]
        requests = [
            _PendingRequest(str(next(self._request_numbers)), *parts)
            for parts in zip(prompts, params, priorities, adapters, strict=True)
        ]
        with self._alone() as interrupt, GenerationProgress(len(requests), enabled=use_tqdm) as progress:
            for lora in loras:
                if lora is not None:
                    self._engine.add_lora(lora)
            finished = self._run(requests, progress, interrupt)
        return [finished[request.request_id] for request in requests]

    def _run(
        self, requests: Sequence[_PendingRequest], progress: GenerationProgress, interrupt: InterruptFlag
    ) -> dict[str, RequestOutput]:
        finished: dict[str, RequestOutput] = {}
        pending = deque(requests)
        num_tokens_before = self._engine.num_output_tokens
        try:
            while pending or self._engine.has_unfinished_requests:
                self._add_some(pending)
                if not self._engine.has_work:  # grammars are being compiled
                    time.sleep(POLL_S)
                finished.update((output.request_id, _accepted(output)) for output in self._engine.step())
                progress.update(len(finished), self._engine.num_output_tokens - num_tokens_before)
                interrupt.raise_if_set()
        except BaseException:
            self._engine.abort_all()
            raise
        return finished

    def _add_some(self, pending: deque[_PendingRequest]) -> None:
        """Add requests until all are added or the queue is full; the rest is added when it has room."""
        while pending:
            request = pending[0]
            token_ids, text, cache_salt = request.prompt
            try:
                self._engine.add_request(
                    request.request_id,
                    token_ids,
                    request.params,
                    prompt=text,
                    place=QueuePlace(request.priority),
                    cache_salt=cache_salt,
                    adapter=request.adapter,
                )
            except QueueFullError:
                if not self._engine.has_unfinished_requests:
                    raise  # it will never have room for this one
                return
            pending.popleft()


def _accepted(output: RequestOutput) -> RequestOutput:
    """The output, if its request was not refused after it was added."""
    if output.refusal is not None:
        raise output.refusal
    return output


def _final_only(params: SamplingParams) -> SamplingParams:
    """The same parameters for somebody who looks at nothing before it is finished."""
    return replace(checked_params(params), output_kind=RequestOutputKind.FINAL_ONLY)


def _one_each(name: str, value: T | Sequence[T], count: int) -> list[T]:
    """``value`` for each prompt, if it is not a list with one entry per prompt already."""
    if not isinstance(value, Sequence):
        return [value] * count
    if len(value) != count:
        raise InvalidRequestError(
            f"{name} has {len(value)} entries for {count} prompts; give one each, or one for all", param=name
        )
    return list(value)
