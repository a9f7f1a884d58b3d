"""What `octavo models` does with the caches."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from rich import box
from rich.table import Table

from octavo.cli.terminal import stdout_console, write_text
from octavo.errors import ModelNotFoundError
from octavo.models.cache_folder import cache_folder, marker_of
from octavo.models.default_model import DEFAULT_MODEL
from octavo.models.hub import cached_on_this_machine
from octavo.models.packed_cache import packed_files, packed_folder, remove_packed
from octavo.runner.memory import format_memory_size


class CachedModel(NamedTuple):
    """A line of the list."""

    name: str
    source: str
    """Where it came from."""
    num_bytes: int
    quantization: str
    path: Path
    remove: Callable[[], object]


def report_models(*, as_json: bool) -> None:
    """Print the list."""
    found = list(_cached_models())
    if as_json:
        entries = [
            {
                "name": model.name,
                "source": model.source,
                "bytes": model.num_bytes,
                "quantization": model.quantization,
                "path": str(model.path),
            }
            for model in found
        ]
        write_text(json.dumps({"models": entries}, ensure_ascii=False, indent=2) + "\n")
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("name", "source", "size", "quantisation"):
        table.add_column(heading, justify="right" if heading == "size" else "left")
    for model in found:
        table.add_row(model.name, model.source, format_memory_size(model.num_bytes), model.quantization)
    stdout_console().print(
        table if found else "nothing is cached; `octavo models fetch NAME` fetches a model"
    )


def remove_model(name: str) -> None:
    """Remove a model of the list.

    Raises:
        ModelNotFoundError: there is none of this name.
    """
    for model in _cached_models():
        if model.name == name:
            model.remove()
            stdout_console().print(f"removed {name}: {format_memory_size(model.num_bytes)}", markup=False)
            return
    raise ModelNotFoundError(f"{name} is not cached; `octavo models` lists what is")


def clean_packed(*, really: bool) -> None:
    """Remove all packed weights, or say how much there is."""
    files = packed_files(packed_folder(cache_folder()))
    size = format_memory_size(sum(file.num_bytes for file in files))
    if really:
        for file in files:
            remove_packed(file.path)
    verb = "removed" if really else "would remove (say --yes)"
    stdout_console().print(f"{verb} packed weights of {len(files)} models: {size}")


def _cached_models() -> Iterator[CachedModel]:
    default = cache_folder() / DEFAULT_MODEL.file_name
    if default.is_file():
        size = default.stat().st_size
        yield CachedModel(
            DEFAULT_MODEL.name, "package", size, "GGUF", default, lambda: _remove_default(default)
        )
    for found in cached_on_this_machine():
        yield CachedModel(found.name, "hub", found.num_bytes, "as stored", found.path, found.remove)
    for file in packed_files(packed_folder(cache_folder())):
        kind = "int4" if "-int4-" in file.path.name else "int8"
        yield CachedModel(file.path.stem, "packed", file.num_bytes, kind, file.path, _remover(file.path))


def _remover(path: Path) -> Callable[[], None]:
    return lambda: remove_packed(path)


def _remove_default(path: Path) -> None:
    path.unlink(missing_ok=True)
    marker_of(path).unlink(missing_ok=True)
