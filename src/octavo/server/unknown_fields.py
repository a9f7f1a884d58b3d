"""Fields of a request that mean nothing here: told about, or refused."""

import logging
from collections.abc import MutableMapping, Sequence

from octavo.errors import InvalidRequestError

logger = logging.getLogger(__name__)

WARNING_HEADER = "X-Octavo-Warning"
MAX_TOLD = 200
"""Characters of a header."""


def note_unknown_fields(names: Sequence[str], headers: MutableMapping[str, str], *, strict: bool) -> None:
    """Warn in the response's headers and in the log.

    Raises:
        InvalidRequestError: the server is strict; ``param`` names the first.
    """
    if not names:
        return
    # A client chose these names: no control characters may get into a header or a log.
    told = ", ".join(ascii(name)[1:-1] for name in names[:MAX_TOLD])[:MAX_TOLD]
    if strict:
        raise InvalidRequestError(
            f"unknown fields: {told}; leave them out (the server is strict)", param=ascii(names[0])[1:-1]
        )
    headers[WARNING_HEADER] = f"unknown fields ignored: {told}"
    logger.warning("unknown fields ignored: %s", told)
