"""``/v1/completions``: texts or token ids, continued."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from json.encoder import encode_basestring_ascii

from fastapi import APIRouter, Request, Response

from octavo.errors import InvalidRequestError, UnsupportedFeatureError
from octavo.outputs import CompletionOutput, Logprobs, RequestOutput
from octavo.sampling_params import SamplingParams
from octavo.server.chunks import ChunkText
from octavo.server.echo import ChoiceText, EchoedPrompt
from octavo.server.generation import Call, begin_call
from octavo.server.limits import check_num_choices
from octavo.server.logprobs import CompletionLogprobsBuilder, prompt_logprobs
from octavo.server.prompts import encode_inputs, list_inputs
from octavo.server.protocol.completion import Completion, CompletionChoice, CompletionRequest
from octavo.server.protocol.error import ErrorResponse
from octavo.server.sampling import sampling_params
from octavo.server.usage import UsageCounter

DEFAULT_MAX_TOKENS = 16
router = APIRouter(tags=["generation"])


@router.post(
    "/v1/completions",
    response_model=None,
    responses={
        200: {"model": Completion, "description": "The texts; with `stream`, events of the same form"},
        "4XX": {"model": ErrorResponse},
        "5XX": {"model": ErrorResponse},
    },
)
async def create_completion(body: CompletionRequest, request: Request) -> Response:
    """Continue texts."""
    call = begin_call(request, body, "cmpl")
    _refuse_unsupported(body)
    params = _params(body, call.state.model.default_sampling_params)
    inputs = list_inputs(body.prompt, param="prompt")
    check_num_choices(len(inputs), params.n, call.state.config.max_choices)
    encode = partial(
        encode_inputs,
        inputs,
        call.state.tokenizer,
        limit=call.state.text_limit,
        param="prompt",
        add_special_tokens=body.add_special_tokens,
        parse_special=body.parse_special,
    )
    prompts = await asyncio.to_thread(encode)
    return await call.respond(body, prompts, params, CompletionReply(call, body, params.n))


def _refuse_unsupported(body: CompletionRequest) -> None:
    if body.suffix:
        raise UnsupportedFeatureError(
            "suffix is not supported: the models served here continue texts and fill no gaps; leave it out",
            param="suffix",
        )
    if body.best_of is not None and body.best_of != (body.n or 1):
        raise UnsupportedFeatureError(
            "best_of is not supported; ask for n continuations with logprobs and choose", param="best_of"
        )
    if body.stream and body.prompt_logprobs is not None:
        raise InvalidRequestError(
            "prompt_logprobs is not there with stream; echo with logprobs is", param="prompt_logprobs"
        )


def _params(body: CompletionRequest, defaults: SamplingParams) -> SamplingParams:
    echoed = body.logprobs if body.echo else None
    asked = [count for count in (body.prompt_logprobs, echoed) if count is not None]
    max_tokens = DEFAULT_MAX_TOKENS if body.max_tokens is None else body.max_tokens
    return sampling_params(
        body,
        defaults,
        max_tokens=1 if _is_echo_only(body) else max_tokens,
        logprobs=body.logprobs,
        prompt_logprobs=max(asked, default=None),
    )


def _is_echo_only(body: CompletionRequest) -> bool:
    """Whether only the prompt's log-probabilities are wanted. The engine always generates a token."""
    return bool(body.echo) and body.max_tokens == 0


class CompletionReply:
    """The texts of one request, whole or in chunks.

    Args:
        call: whose answer it is.
        body: what was asked for.
        n: continuations of each prompt.
    """

    def __init__(self, call: Call, body: CompletionRequest, n: int) -> None:
        self._call = call
        self._body = body
        self._n = n
        self._usage = UsageCounter(tells_receipts=bool(body.cache_receipt))
        self._chunks = ChunkText(call.head("text_completion"), body.stream_options, usage=self._usage)
        self._texts: dict[int, ChoiceText] = {}
        self._prompt_logprobs: dict[int, Sequence[Logprobs | None]] = {}
        self._held: dict[int, list[CompletionOutput]] = {}

    def whole(self, outputs: Sequence[RequestOutput]) -> Completion:
        """The body of an answer in one piece."""
        choices: list[CompletionChoice] = []
        for prompt_index, output in enumerate(map(self._kept, outputs)):
            self._usage.add(prompt_index, output)
            self._prompt_logprobs[prompt_index] = output.prompt_logprobs or ()
            choices += [self._choice(prompt_index, output, choice) for choice in output.outputs]
        return Completion(**self._call.head("text_completion"), choices=choices, usage=self._usage.usage())

    def part(self, prompt_index: int, output: RequestOutput) -> str:
        """The chunks that tell what is new."""
        output = self._kept(output)
        self._usage.add(prompt_index, output)
        if output.prompt_logprobs is not None:
            self._prompt_logprobs[prompt_index] = output.prompt_logprobs
        choices = self._held.pop(prompt_index, []) + output.outputs
        if self._echoes_logprobs and prompt_index not in self._prompt_logprobs:
            # They come with the first continuation's first token; another one's may be there before.
            self._held[prompt_index] = choices
            return ""
        return "".join([self._chunk(prompt_index, output, choice) for choice in choices])

    def last(self) -> str:
        """The usage, if it was asked for."""
        return self._chunks.last()

    @property
    def _echoes_logprobs(self) -> bool:
        return bool(self._body.echo) and self._body.logprobs is not None

    def _kept(self, output: RequestOutput) -> RequestOutput:
        """The output, without the token that nobody asked for."""
        if not _is_echo_only(self._body):
            return output
        choices = [
            replace(
                choice, text="", token_ids=[], logprobs=None if choice.logprobs is None else [],
                finish_reason="length", stop_reason=None,
            )
            for choice in output.outputs
        ]  # fmt: skip
        return replace(output, outputs=choices)

    def _choice(self, prompt_index: int, output: RequestOutput, choice: CompletionOutput) -> CompletionChoice:
        text, logprobs = self._text_of(prompt_index, output, choice).part(choice)
        asked = self._body.prompt_logprobs is not None
        return CompletionChoice(
            index=prompt_index * self._n + choice.index,
            text=text,
            logprobs=logprobs,
            finish_reason=choice.finish_reason,
            stop_reason=choice.stop_reason,
            seed=choice.seed,
            prompt_logprobs=prompt_logprobs(self._prompt_logprobs[prompt_index]) if asked else None,
        )

    def _chunk(self, prompt_index: int, output: RequestOutput, choice: CompletionOutput) -> str:
        text, logprobs = self._text_of(prompt_index, output, choice).part(choice)
        if not text and logprobs is None and choice.finish_reason is None:
            return ""
        told = "null" if logprobs is None else logprobs.model_dump_json()
        index = prompt_index * self._n + choice.index
        return self._chunks.chunk(index, f'"text":{encode_basestring_ascii(text)},"logprobs":{told}', choice)

    def _text_of(self, prompt_index: int, output: RequestOutput, choice: CompletionOutput) -> ChoiceText:
        index = prompt_index * self._n + choice.index
        if index not in self._texts:
            tokenizer = self._call.state.tokenizer
            num_top = self._body.logprobs
            self._texts[index] = ChoiceText(
                None if num_top is None else CompletionLogprobsBuilder(tokenizer, num_top=num_top),
                self._echoed(prompt_index, output) if self._body.echo else None,
            )
        return self._texts[index]

    def _echoed(self, prompt_index: int, output: RequestOutput) -> EchoedPrompt:
        token_ids = output.prompt_token_ids
        text = output.prompt
        if text is None:
            text = self._call.state.tokenizer.decode(token_ids, skip_special_tokens=True)
        return EchoedPrompt(text, token_ids, self._prompt_logprobs.get(prompt_index, ()))
