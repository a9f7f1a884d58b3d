"""`structured_outputs`: the shape of the text that a request asks for, as the engine takes it."""

from octavo.errors import InvalidRequestError
from octavo.server.protocol.request import GenerationRequest
from octavo.server.protocol.response_format import ResponseFormat, StructuredOutputs
from octavo.structured_outputs import StructuredOutputsParams

_SHORT_NAMES = ("regex", "choice", "grammar")


def structured_outputs(body: GenerationRequest) -> StructuredOutputsParams | None:
    """The constraint on the text; ``None`` if any text will do.

    Raises:
        InvalidRequestError: it is said twice, or not fully.
    """
    asked: dict[str, StructuredOutputsParams] = {}
    by_format = None if body.response_format is None else _by_format(body.response_format)
    if by_format is not None:
        asked["response_format"] = by_format
    if body.structured_outputs is not None:
        asked["structured_outputs"] = _by_name(body.structured_outputs)
    for name in _SHORT_NAMES:
        if (value := getattr(body, name)) is not None:
            asked[name] = _by_short_name(name, value)
    if len(asked) > 1:
        raise InvalidRequestError(
            f"{' and '.join(asked)} all say what shape the text has; give one of them", param=list(asked)[1]
        )
    return next(iter(asked.values()), None)


def _by_short_name(name: str, value: object) -> StructuredOutputsParams:
    try:
        return StructuredOutputsParams(**{name: value})  # type: ignore[arg-type]  # it checks the value
    except InvalidRequestError as error:
        raise InvalidRequestError(str(error), param=name) from None


def _by_format(wanted: ResponseFormat) -> StructuredOutputsParams | None:
    if wanted.type == "text":
        return None
    if wanted.type == "json_object":
        return StructuredOutputsParams(json_object=True)
    if wanted.json_schema is None:
        raise InvalidRequestError(
            "response_format of the type json_schema needs json_schema, with a schema in it",
            param="response_format.json_schema",
        )
    return StructuredOutputsParams(json=wanted.json_schema.schema_)


def _by_name(wanted: StructuredOutputs) -> StructuredOutputsParams:
    return StructuredOutputsParams(
        json=wanted.json_,
        json_object=wanted.json_object,
        regex=wanted.regex,
        choice=wanted.choice,
        grammar=wanted.grammar,
        disable_any_whitespace=wanted.disable_any_whitespace,
    )
