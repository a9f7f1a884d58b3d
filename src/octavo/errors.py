"""Every error Octavo raises on purpose.

A message says what was got, what the limit is and the way out, because the reader is a person.

    OctavoError
    ├── RequestError              the client's fault (HTTP 4xx); costs nobody else anything
    │   ├── InvalidRequestError     a value out of range; ``param`` names it
    │   ├── ContextLengthError      longer than the model or the KV cache can ever hold
    │   ├── AdapterError            a LoRA adapter that does not fit the model, or is unknown
    │   └── UnsupportedFeatureError valid elsewhere, not built here
    ├── CapacityError             try again later (HTTP 429 or 503)
    │   ├── QueueFullError          the waiting queue is at its bound
    │   │   └── QueueShareError       whoever asks has filled its share of it
    │   ├── QueueTimeoutError       it waited too long to be admitted
    │   └── DrainingError           shutting down
    ├── EngineError               our fault (HTTP 5xx)
    │   ├── ModelLoadError          a file that is truncated, malformed or of an unknown kind
    │   │   └── ModelNotFoundError    no such file, and no model of that name
    │   ├── KernelUnavailableError  an explicit choice that this machine cannot run
    │   ├── StepError               one step failed; its requests were rolled back
    │   └── EngineDeadError         the engine has stopped and answers nothing any more
    ├── ConfigError               wrong configuration, found at start (exit code 2)
    └── InvariantError            a bug in Octavo: state is dumped, the process stops loudly

Running out of KV blocks is not an error: allocation returns ``None``.
"""


class OctavoError(Exception):
    """Base of every error raised on purpose."""


class RequestError(OctavoError):
    """The request is at fault; nothing else is affected.

    Attributes:
        param: name of the offending parameter, or ``None`` if it is the request as a whole.
    """

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class InvalidRequestError(RequestError):
    """A parameter is out of range or of the wrong type."""


class ContextLengthError(RequestError):
    """The request is longer than the model's context or the whole KV cache."""


class AdapterError(RequestError):
    """A LoRA adapter does not fit the model, is unknown, or has a name that another one has."""


class UnsupportedFeatureError(RequestError):
    """A feature that other engines have and this one does not."""


class CapacityError(OctavoError):
    """There is no room now; the same request may succeed later."""


class QueueFullError(CapacityError):
    """The waiting queue is at its bound."""


class QueueShareError(QueueFullError):
    """Whoever asks has as much in the waiting queue as it may have; others may find room."""


class QueueTimeoutError(CapacityError):
    """The request waited too long in the queue, and nothing of it was computed."""


class DrainingError(CapacityError):
    """The engine is shutting down and takes no new requests."""


class EngineError(OctavoError):
    """Octavo's own fault, or that of its installation."""


class ModelLoadError(EngineError):
    """A model file is truncated, malformed or of a kind that is not supported."""


class ModelNotFoundError(ModelLoadError):
    """There is no such model file, and no model of that name to fetch."""


class KernelUnavailableError(EngineError):
    """An explicitly chosen kernel set cannot run on this machine."""


class StepError(EngineError):
    """One engine step failed; the requests in it were rolled back."""


class EngineDeadError(EngineError):
    """The engine has stopped for good."""


class ConfigError(OctavoError):
    """The configuration is wrong; found before anything is served."""


class InvariantError(OctavoError):
    """A broken invariant: a bug in Octavo. Never caught below the process's edge."""
