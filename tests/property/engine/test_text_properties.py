"""The text of a request is the same whoever looks at it when, for any tokens, and what its bytes spell."""

import hypothesis.strategies as st
from engine_fakes import EOS, PIECES, TURN, VOCAB_SIZE, ByteTokenizer
from hypothesis import given, settings

from octavo.engine.output_processor import OutputProcessor
from octavo.sampling_params import RequestOutputKind, SamplingParams
from octavo.sched.request import FinishReason, Request
from octavo.sched.update import RequestUpdate

PARTS_OF_CHARACTERS = [*"€😀é".encode(), 0xFF, 0x80]
TOKENS = st.lists(
    st.one_of(st.sampled_from([*PARTS_OF_CHARACTERS, *range(256, VOCAB_SIZE)]), st.integers(32, 126)),
    max_size=40,
)
STOPS = st.lists(
    st.sampled_from(["stop", "STOP!", "OP!", " the", "€", "\ufffd", "ab"]), max_size=3, unique=True
)
ENDS = st.sampled_from(["length", "token", "abort"])


def told(kind, token_ids, end, **params):
    """Everything told of one request: text, token ids, finish reason and stop reason."""
    processor = OutputProcessor(ByteTokenizer())
    first = Request("r", (1,), SamplingParams(output_kind=kind, ignore_eos=True, **params), seed=0)
    processor.add(processor.prepare("r", [first], prompt=None))
    outputs = []
    for number, token_id in enumerate(token_ids, start=1):
        reason = None
        if number == len(token_ids) and end != "abort":
            reason = FinishReason.STOP if end == "token" else FinishReason.LENGTH
        first.append_token(token_id)
        outputs += processor.process([RequestUpdate("r", token_id, finish_reason=reason)]).outputs
        if "r" not in processor:
            break
    if "r" in processor:
        outputs.append(processor.abort("r")[0])
    parts = [output.outputs[0] for output in outputs]
    whole = parts if kind is RequestOutputKind.DELTA else parts[-1:]
    text, ids = "".join(part.text for part in whole), [i for part in whole for i in part.token_ids]
    return text, ids, parts[-1].finish_reason, parts[-1].stop_reason


@settings(deadline=None, max_examples=300)
@given(TOKENS, ENDS, STOPS, st.booleans(), st.booleans(), st.integers(0, 5))
def test_final_only_cumulative_and_joined_deltas_tell_the_same(
    token_ids, end, stop, include, skip_special, min_tokens
):
    params = {
        "stop": stop,
        "include_stop_str_in_output": include,
        "skip_special_tokens": skip_special,
        "min_tokens": min_tokens,
        "max_tokens": 100,
    }
    final, *others = (told(kind, token_ids, end, **params) for kind in RequestOutputKind)
    assert others == [final, final]


@settings(deadline=None, max_examples=300)
@given(TOKENS, ENDS, st.booleans(), st.booleans())
def test_without_stop_strings_it_is_what_the_bytes_spell(token_ids, end, include, skip_special):
    text, ids, *_ = told(
        RequestOutputKind.FINAL_ONLY,
        token_ids,
        end,
        include_stop_str_in_output=include,
        skip_special_tokens=skip_special,
    )
    shown = token_ids[:-1] if token_ids and end == "token" and not include else token_ids
    spelled = [
        bytes([token_id]) if token_id < 256 else PIECES[token_id - 256].encode()
        for token_id in shown
        if not (skip_special and token_id in (EOS, TURN))
    ]
    assert ids == token_ids
    assert text == b"".join(spelled).decode("utf-8", "replace")
