"""`LLM`: offline generation for a list of prompts, under vLLM's names."""

import itertools
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self, TypeVar

from octavo.build import build
from octavo.config import EngineConfig, ResolvedConfig
from octavo.engine.prompt import EncodedPrompt, Prompt, encode_chat, encode_prompt
from octavo.engine.tokenizer import ChatMessage, Tokenizer
from octavo.errors import InvalidRequestError, QueueFullError
from octavo.interrupt import InterruptFlag
from octavo.outputs import RequestOutput
from octavo.progress import GenerationProgress
from octavo.sampling_params import SamplingParams

Conversation = Sequence[ChatMessage]
T = TypeVar("T")


class _PendingRequest(NamedTuple):
    request_id: str
    prompt: EncodedPrompt
    params: SamplingParams
    priority: int


class LLM:
    """A model, loaded, and everything needed to generate with it.

        llm = LLM(model="smollm2-135m", block_size=16, num_threads=4)
        outputs = llm.generate(["Hello", "Good night"], SamplingParams(temperature=0, max_tokens=32))
        print(outputs[0].outputs[0].text)

    Not thread-safe; `AsyncEngine` serves many callers.

    Args:
        model: a .gguf file, or the short name of the default model, which is fetched if need be.
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
        self._request_numbers = itertools.count()

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
    ) -> list[RequestOutput]:
        """Continue prompts; all of them are computed together, as far as the configuration allows.

        Args:
            prompts: text, ``{"prompt": text}``, ``{"prompt_token_ids": ids}``, or a list of these.
            sampling_params: for all prompts, or one each; `SamplingParams()` if omitted.
            use_tqdm: show a progress bar on standard error.
            priority: one per prompt, lower first, under the priority policy.

        Returns:
            One output per prompt, in the order of the prompts.

        Raises:
            RequestError: a prompt or a parameter is at fault; nothing of this call goes on.
            KeyboardInterrupt: Ctrl-C; nothing of this call goes on, and the LLM can be used again.
        """
        many = [prompts] if isinstance(prompts, str | Mapping) else list(prompts)
        tokenizer = self._engine.tokenizer
        return self._generate(
            [encode_prompt(prompt, tokenizer) for prompt in many], sampling_params, use_tqdm, priority
        )

    def chat(
        self,
        messages: Conversation | Sequence[Conversation],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool = True,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, object]] | None = None,
        chat_template_kwargs: Mapping[str, object] | None = None,
    ) -> list[RequestOutput]:
        """Answer conversations, written out by the model's chat template.

        Args:
            messages: one conversation, a list of ``{"role": …, "content": …}``, or a list of conversations.
            sampling_params: for all conversations, or one each; `SamplingParams()` if omitted.
            use_tqdm: show a progress bar on standard error.
            add_generation_prompt: open the assistant's turn.
            tools: descriptions of functions, for templates that take them.
            chat_template_kwargs: further variables of the template.

        Raises:
            RequestError: the template refuses a conversation, or a parameter is at fault.
        """
        variables = {**(chat_template_kwargs or {}), **({} if tools is None else {"tools": tools})}
        prompts = [
            encode_chat(
                conversation,
                self._engine.tokenizer,
                add_generation_prompt=add_generation_prompt,
                **variables,
            )
            for conversation in _conversations(messages)
        ]
        return self._generate(prompts, sampling_params, use_tqdm, None)

    def get_tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        return self._engine.tokenizer

    def reset_prefix_cache(self) -> bool:
        """Forget all cached prefixes."""
        return self._engine.reset_prefix_cache()

    def close(self) -> None:
        """Give back memory and threads; calling it again does nothing."""
        self._engine.close()

    def _generate(
        self,
        prompts: Sequence[EncodedPrompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None,
        use_tqdm: bool,
        priority: Sequence[int] | None,
    ) -> list[RequestOutput]:
        params = _one_each("sampling_params", sampling_params or SamplingParams(), len(prompts))
        priorities = _one_each("priority", 0 if priority is None else priority, len(prompts))
        requests = [
            _PendingRequest(str(next(self._request_numbers)), *parts)
            for parts in zip(prompts, params, priorities, strict=True)
        ]
        with GenerationProgress(len(requests), enabled=use_tqdm) as progress:
            finished = self._run(requests, progress)
        return [finished[request.request_id] for request in requests]

    def _run(
        self, requests: Sequence[_PendingRequest], progress: GenerationProgress
    ) -> dict[str, RequestOutput]:
        finished: dict[str, RequestOutput] = {}
        pending = deque(requests)
        with InterruptFlag() as interrupt:
            try:
                while pending or self._engine.has_unfinished_requests:
                    self._add_some(pending)
                    for output in self._engine.step():
                        progress.update(output)
                        if output.finished:
                            finished[output.request_id] = output
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
                    priority=request.priority,
                    cache_salt=cache_salt,
                )
            except QueueFullError:
                if not self._engine.has_unfinished_requests:
                    raise  # it will never have room for this one
                return
            pending.popleft()


def _conversations(messages: Conversation | Sequence[Conversation]) -> list[Conversation]:
    """One conversation is a list of messages, several are a list of lists."""
    is_one = all(isinstance(message, Mapping) for message in messages)
    conversations = [messages] if is_one else list(messages)
    if not all(conversations):
        raise InvalidRequestError("a conversation needs at least one message", param="messages")
    return conversations  # type: ignore[return-value]  # as was just found out


def _one_each(name: str, value: T | Sequence[T], count: int) -> list[T]:
    """``value`` for each prompt, if it is not a list with one entry per prompt already."""
    if not isinstance(value, Sequence):
        return [value] * count
    if len(value) != count:
        raise InvalidRequestError(
            f"{name} has {len(value)} entries for {count} prompts; give one each, or one for all", param=name
        )
    return list(value)
