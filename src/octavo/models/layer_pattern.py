"""Which layers of a model are of the usual kind, where every so many of them are not."""

import numpy as np

from octavo.models.gguf_metadata import Metadata


def read_layer_pattern(metadata: Metadata, key: str, num_layers: int, *, period: int) -> tuple[bool, ...]:
    """One truth value per layer: from an array of them, or false for each last of ``period`` layers.

    The period may be given instead of the array.

    Raises:
        ModelLoadError: the value is neither.
    """
    if isinstance(metadata.values.get(key), np.ndarray):
        flags = metadata.array(key, length=num_layers)
        return tuple(bool(flag) for flag in flags) if flags is not None else ()
    period = metadata.count(key, default=period)
    return tuple(layer % period < period - 1 for layer in range(num_layers))
