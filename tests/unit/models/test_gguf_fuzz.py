"""Whatever happens to the bytes of a file, loading it is an answer or one clear error."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from octavo.errors import ModelLoadError
from octavo.models.loaded import load_model

# Most of a damaged file's trouble comes from counts, lengths and offsets.
WORDS = [bytes(8), b"\xff" * 8, *((1 << bits).to_bytes(8, "little") for bits in (5, 12, 24, 31, 40, 62, 63))]
HEAD = 12_000  # header, metadata and directory; what follows are weights, where any byte is valid
DAMAGE = st.one_of(
    st.tuples(st.just("replace"), st.integers(0, HEAD), st.binary(min_size=1, max_size=4)),
    st.tuples(st.just("replace"), st.integers(0, HEAD), st.sampled_from(WORDS)),
    st.tuples(st.just("insert"), st.integers(0, HEAD), st.binary(min_size=1, max_size=16)),
    st.tuples(st.just("remove"), st.integers(0, HEAD), st.binary(min_size=1, max_size=16)),
    st.tuples(st.just("truncate"), st.integers(0, 3 * HEAD), st.just(b"")),
)


def damaged(content: bytes, damage: list[tuple[str, int, bytes]]) -> bytes:
    result = bytearray(content)
    for kind, position, new in damage:
        if kind == "replace":
            result[position : position + len(new)] = new
        elif kind == "insert":
            result[position:position] = new
        elif kind == "remove":
            del result[position : position + len(new)]
        else:
            del result[position:]
    return bytes(result)


@settings(deadline=None, max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(damage=st.lists(DAMAGE, min_size=1, max_size=3))
def test_a_damaged_file_never_gives_anything_but_a_load_error(tiny_llama, tmp_path, damage):
    content = tiny_llama(quantization="Q4_0", num_layers=1).read_bytes()
    path = tmp_path / "damaged.gguf"
    path.write_bytes(damaged(content, damage))
    try:
        load_model(path)
    except ModelLoadError as error:
        assert "\n" not in str(error)  # noqa: PT017 (success is an answer, too)
        assert len(str(error)) < 4_000  # noqa: PT017
