import sys

import pytest
from hub_server import hub_server

from octavo.errors import ModelLoadError, ModelNotFoundError
from octavo.models.default_model import resolve_model_path
from octavo.models.hub import HubName, fetch_from_hub, parse_hub_name
from octavo.models.loaded import load_model

MODEL = HubName("org/model")


@pytest.fixture(autouse=True)
def hub_cache(tmp_path, monkeypatch):
    """The package reads its settings when it is imported."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)


@pytest.fixture
def hub(tiny_folder):
    folder = tiny_folder()
    for name in (
        "pytorch_model.bin",
        "modeling.py",
        "consolidated.safetensors",
        "readme.md",
        "tiny.Q4_1.gguf",
    ):
        (folder / name).write_bytes(b"not ours")
    (folder / "original").mkdir()
    (folder / "original" / "params.json").write_text("{}")
    with hub_server(folder) as server:
        yield server


def fetch(hub, name=MODEL, **options):
    return fetch_from_hub(name, progress=False, endpoint=hub.endpoint, **options)


def test_a_folder_is_fetched_once_and_nothing_but_weights_and_texts(hub):
    path = fetch(hub)
    assert load_model(path).spec.architecture == "llama"
    assert sorted(hub.fetched) == [
        "chat_template.jinja",
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    assert fetch(hub) == path
    assert len(hub.fetched) == 6


def test_a_gguf_file_is_chosen_by_a_part_of_its_name(hub):
    path = fetch(hub, HubName("org/model", "Q4_1"))
    assert (path.name, hub.fetched) == ("tiny.Q4_1.gguf", ["tiny.Q4_1.gguf"])


def test_without_a_network_what_was_fetched_is_there(hub):
    path = fetch(hub)
    assert fetch(hub, offline=True) == path
    assert fetch_from_hub(MODEL, progress=False, endpoint="http://127.0.0.1:9") == path


@pytest.mark.parametrize("options", [{"offline": True}, {"endpoint": "http://127.0.0.1:9"}])
def test_without_a_network_what_was_not_fetched_is_one_line(options):
    with pytest.raises(
        ModelLoadError, match=r"org/model: (no such file or folder; as|no connection)"
    ) as caught:
        fetch_from_hub(MODEL, progress=False, **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "options", "problem"),
    [
        (HubName("org/other"), {}, "no such file or folder, and no such model on the hub"),
        (MODEL, {"revision": "v9"}, "has no revision 'v9'"),
        (HubName("org/model", "Q9_X"), {}, "has no GGUF file with 'Q9_X' in its name"),
    ],
)
def test_what_is_not_there_is_named(hub, name, options, problem):
    with pytest.raises(ModelNotFoundError, match=problem) as caught:
        fetch(hub, name, **options)
    assert "\n" not in str(caught.value)


def test_a_repository_of_gguf_files_says_how_to_name_one(hub):
    (hub.folder / "config.json").unlink()
    with pytest.raises(ModelNotFoundError, match="say which as in org/model:Q4_K_M"):
        fetch(hub)


def test_several_files_that_match_are_listed(hub):
    (hub.folder / "tiny.Q4_1.more.gguf").write_bytes(b"x")
    with pytest.raises(ModelNotFoundError, match=r"several files match: tiny.Q4_1.gguf, tiny.Q4_1.more.gguf"):
        fetch(hub, HubName("org/model", "Q4_1"))


def test_of_a_split_file_the_first_part_is_taken(hub):
    for part in (1, 2):
        (hub.folder / f"big.F16-0000{part}-of-00002.gguf").write_bytes(b"x")
    assert fetch(hub, HubName("org/model", "f16")).name == "big.F16-00001-of-00002.gguf"


def test_exactly_what_was_asked_for_goes_before_more_than_that(hub):
    for name in ("a.BF16.gguf", "a.F16.gguf", "a-Q4_K.gguf", "a-Q4_K_M.gguf"):
        (hub.folder / name).write_bytes(b"x")
    assert fetch(hub, HubName("org/model", "f16")).name == "a.F16.gguf"
    assert fetch(hub, HubName("org/model", "Q4_K")).name == "a-Q4_K.gguf"


def test_what_reads_images_is_no_model(hub):
    for name in ("mmproj-tiny.f16.gguf", "tiny.f16.gguf", "made-of-words-f32.gguf"):
        (hub.folder / name).write_bytes(b"x")
    assert fetch(hub, HubName("org/model", "f16")).name == "tiny.f16.gguf"
    assert fetch(hub, HubName("org/model", "f32")).name == "made-of-words-f32.gguf"


def test_without_the_package_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ModelLoadError, match=r"pip install 'octavo\[hub\]'"):
        fetch_from_hub(MODEL)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("org/model", MODEL),
        ("org/model:Q4_K_M", HubName("org/model", "Q4_K_M")),
        ("./org/model", None),
        ("/org/model", None),
        ("a/b/c", None),
        ("model", None),
        ("models/file.gguf", None),
        ("org/model:", None),
        ("../model", None),
        ("org/mo del", None),
    ],
)
def test_what_is_a_name_on_the_hub(text, expected):
    assert parse_hub_name(text) == expected


def test_a_path_that_exists_is_never_asked_for_on_the_hub(tmp_path, monkeypatch):
    (tmp_path / "org" / "model").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert str(resolve_model_path("org/model")) == "org/model"
