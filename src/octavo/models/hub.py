"""Models by their name on the Hugging Face hub, fetched by `huggingface_hub` into its own cache.

``org/model`` is a folder of safetensors files, ``org/model:Q4_K_M`` the GGUF file of that repository whose
name has that in it. Nothing else is fetched: no pickle, and no code.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from octavo.errors import ModelLoadError, ModelNotFoundError
from octavo.models.quoting import one_line, quote

_NAME = re.compile(r"([\w.-]{1,96}/[\w.-]{1,96})(?::([\w.-]{1,96}))?", re.ASCII)
_FOLDER_FILES = ("*.safetensors", "*.json", "*.jinja")
_NOT_OURS = ("original/*", "onnx/*", "metal/*", "*consolidated*", "openvino/*", "*mmproj*")
"""Other forms of the same weights, and what reads images."""
_LATER_PART = re.compile(r"-(?!00001)\d{5}-of-\d{5}\.gguf")


class HubName(NamedTuple):
    """A model on the hub."""

    repository: str
    """Owner and name."""
    gguf: str | None = None
    """What the name of the GGUF file has in it; ``None`` for safetensors."""

    @property
    def text(self) -> str:
        """As people write it."""
        return self.repository if self.gguf is None else f"{self.repository}:{self.gguf}"


def parse_hub_name(text: str) -> HubName | None:
    """The model that a text names, if it is of the form ``org/model`` or ``org/model:Q4_K_M``."""
    match = _NAME.fullmatch(text)
    is_path = text.startswith((".", "/")) or text.endswith((".gguf", ".safetensors"))
    return None if match is None or is_path else HubName(match[1], match[2])


def fetch_from_hub(
    name: HubName,
    *,
    revision: str | None = None,
    offline: bool = False,
    progress: bool = True,
    endpoint: str | None = None,
) -> Path:
    """The folder or GGUF file of a model, from the hub's cache or fetched; a broken fetch goes on.

    Args:
        name: the model.
        revision: branch, tag or commit.
        offline: take what is there; HF_HUB_OFFLINE does the same.
        progress: show progress bars on standard error.
        endpoint: address of the hub; HF_ENDPOINT or the public one if ``None``.

    Raises:
        ModelNotFoundError: there is no such model, revision or file.
        ModelLoadError: it cannot be fetched.
    """
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.utils.tqdm import disable_progress_bars, enable_progress_bars
    except ImportError:
        raise ModelLoadError(
            f"{name.text}: no such file or folder; if it is a model on the hub, fetching it needs the package"
            " huggingface_hub: pip install 'octavo[hub]'"
        ) from None
    (enable_progress_bars if progress else disable_progress_bars)()
    try:
        folder = snapshot_download(
            name.repository,
            revision=revision,
            allow_patterns=_wanted_files(name),
            ignore_patterns=[*_NOT_OURS],
            local_files_only=offline,
            endpoint=endpoint,
        )
    except Exception as error:  # of the hub, of its HTTP client, or of the disk
        raise _failure(name, revision, error) from None
    return _found(name, Path(folder))


def _wanted_files(name: HubName) -> list[str]:
    if name.gguf is None:
        return [*_FOLDER_FILES]
    spellings = {name.gguf, name.gguf.lower(), name.gguf.upper()}
    return [f"*{spelling}*.gguf" for spelling in sorted(spellings)]


class CachedRepository(NamedTuple):
    """A model in the hub's cache."""

    name: str
    num_bytes: int
    path: Path
    remove: Callable[[], object]
    """Removes it with all its revisions."""


def cached_on_this_machine() -> list[CachedRepository]:
    """The models in the hub's cache, by name; none without the package."""
    try:
        from huggingface_hub import CacheNotFound, scan_cache_dir
    except ImportError:
        return []
    try:
        cache = scan_cache_dir()
    except CacheNotFound:
        return []

    def remover(revisions: list[str]) -> Callable[[], object]:
        return lambda: cache.delete_revisions(*revisions).execute()

    found = [
        CachedRepository(
            repository.repo_id,
            repository.size_on_disk,
            repository.repo_path,
            remover([revision.commit_hash for revision in repository.revisions]),
        )
        for repository in cache.repos
        if repository.repo_type == "model"
    ]
    return sorted(found, key=lambda repository: repository.name)


def _found(name: HubName, folder: Path) -> Path:
    if name.gguf is None:
        if (folder / "config.json").is_file() and any(folder.glob("*.safetensors")):
            return folder
        raise ModelNotFoundError(
            f"{name.text}: the repository has no config.json with safetensors files; if it has GGUF files,"
            f" say which as in {name.text}:Q4_K_M"
        )
    files = sorted(path for path in folder.rglob("*.gguf") if name.gguf.lower() in path.name.lower())
    whole = [path for path in files if not _LATER_PART.search(path.name) and "mmproj" not in path.name]
    # A name that has exactly this in it goes before one that has more: F16 is no BF16, Q4_K no Q4_K_M.
    exactly = re.compile(rf"(?<![a-z0-9]){re.escape(name.gguf)}(?!\w)", re.IGNORECASE)
    whole = [path for path in whole if exactly.search(path.name)] or whole
    if len(whole) == 1:
        return whole[0]
    if whole:
        raise ModelNotFoundError(
            f"{name.text}: several files match: {', '.join(path.name for path in whole[:8])}"
        )
    raise ModelNotFoundError(
        f"{name.text}: the repository has no GGUF file with {quote(name.gguf)} in its name"
    )


def _failure(name: HubName, revision: str | None, error: Exception) -> ModelLoadError:
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if "GatedRepoError" in kinds:
        return ModelLoadError(f"{name.text}: access must be asked for on its page; then run `hf auth login`")
    if "RepositoryNotFoundError" in kinds:
        return ModelNotFoundError(
            f"{name.text}: no such file or folder, and no such model on the hub (or it is private)"
        )
    if "RevisionNotFoundError" in kinds:
        return ModelNotFoundError(f"{name.text}: has no revision {quote(revision)}")
    if kinds & {"LocalEntryNotFoundError", "OfflineModeIsEnabled", "IncompleteSnapshotError"}:
        return ModelLoadError(
            f"{name.text}: no such file or folder; as a model of the hub it is not in the cache, or not all"
            " of it, and the hub cannot be asked (offline, or no network); fetch it with `octavo models"
            " fetch` where there is one, or give the path of a model"
        )
    if kinds & {"ConnectError", "ConnectionError", "TimeoutException", "TransportError"}:
        return ModelLoadError(
            f"{name.text}: no connection to the hub; check the network, or give the path of a model"
        )
    return ModelLoadError(
        f"{name.text}: cannot be fetched from the hub: {one_line(str(error)) or type(error).__name__}"
    )
