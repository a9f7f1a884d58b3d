"""`ServerConfig`: everything about `octavo serve` that is not about the engine."""

from dataclasses import dataclass, field

from octavo.config import check_bounds, check_types
from octavo.errors import ConfigError
from octavo.server.log_format import LogFormat

MAX_BODY_BYTES = 2**30
MAX_CHOICES = 65_536
MAX_PORT = 65_535


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerConfig:
    """How the engine is served over HTTP."""

    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 is every IPv4 interface."""
    port: int = 8000
    """Port to listen on; 0 takes a free one."""
    served_model_name: tuple[str, ...] = ()
    """What clients call the model, the first one in answers; its own name if omitted. Repeatable."""
    api_key: tuple[str, ...] = field(default=(), repr=False)
    """A key that clients must send; each key has a prefix cache of its own. Repeatable."""
    cache_salt_secret: str | None = field(default=None, repr=False)
    """What the cache salts of API keys are derived from; drawn at start if omitted."""
    cors_origin: tuple[str, ...] = ()
    """An origin whose web pages may call the server; * is any. Repeatable."""
    strict: bool = False
    """Refuse requests with unknown fields, which otherwise cause a warning."""
    refuse_overlong: bool = False
    """Refuse requests whose max_tokens do not fit behind their prompt, instead of ending them early."""
    max_body_bytes: int = 8 * 2**20
    """Largest request body [bytes]."""
    max_choices: int = 1024
    """Most continuations of one request: its prompts times n."""
    lora_endpoints: bool = False
    """Let clients load LoRA adapters from the server's disk, and unload them."""
    drain_timeout: float = 30.0
    """Time for running requests to finish after SIGTERM [s]."""
    stall_timeout: float = 60.0
    """Work without progress for longer than this is reported in the log, in /health and as a metric [s]."""
    log_format: LogFormat = "text"
    """Log lines for people, or one JSON object each."""
    access_trace: str | None = None
    """File for a trace of all requests, without their content, that can be replayed later."""
    otel: bool = False
    """Export OpenTelemetry traces, as the variables OTEL_… say. Needs octavo[otel]."""

    def __post_init__(self) -> None:
        check_types(self)
        if not self.host:
            raise ConfigError("host must not be empty; 0.0.0.0 is every IPv4 interface")
        if not 0 <= self.port <= MAX_PORT:
            raise ConfigError(f"port must be between 0 and {MAX_PORT}, got {self.port}")
        check_bounds("max_body_bytes", self.max_body_bytes, MAX_BODY_BYTES)
        check_bounds("max_choices", self.max_choices, MAX_CHOICES)
        if not 0 <= self.drain_timeout < float("inf"):
            raise ConfigError(f"drain_timeout must be a number of seconds, got {self.drain_timeout}")
        if not 0 < self.stall_timeout < float("inf"):
            raise ConfigError(f"stall_timeout must be a number of seconds above 0, got {self.stall_timeout}")
        for key in self.api_key:
            if not key or not key.isascii() or not key.isprintable() or " " in key:
                raise ConfigError("an api_key must be printable ASCII without spaces, and not empty")
