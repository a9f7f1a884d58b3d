"""`structured_outputs`: the shape of the text that a request asks for, as the engine takes it."""

from octavo.errors import InvalidRequestError
from octavo.server.protocol.request import GenerationRequest
from octavo.server.protocol.response_format import ResponseFormat, StructuredOutputs
from octavo.structured_outputs import StructuredOutputsParams


def structured_outputs(body: GenerationRequest) -> StructuredOutputsParams | None:
    """The constraint on the text; ``None`` if any text will do.

    Raises:
        InvalidRequestError: it is said twice, or not fully.
    """
    by_format = None if body.response_format is None else _by_format(body.response_format)
    by_name = None if body.structured_outputs is None else _by_name(body.structured_outputs)
    if by_format is not None and by_name is not None:
        raise InvalidRequestError(
            "response_format and structured_outputs say the same thing in two ways; give one of them",
            param="structured_outputs",
        )
    return by_format or by_name


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
