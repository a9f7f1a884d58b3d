"""Free memory under cgroups of both versions, from files made up for the purpose; sizes for people."""

import pytest

from octavo.errors import ConfigError
from octavo.runner.memory import format_memory_size, free_memory, parse_memory_size

GIB = 2**30


@pytest.fixture
def machine(tmp_path):
    """A machine with 8 GiB available; ``machine(files)`` adds files and returns where everything is."""

    def make(files=None, meminfo=f"MemTotal: 99 kB\nMemAvailable: {8 * GIB // 1024} kB\n"):
        for name, text in {"proc/meminfo": meminfo, "proc/self/cgroup": "", **(files or {})}.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return {"proc": tmp_path / "proc", "cgroup_root": tmp_path / "cgroup"}

    return make


def test_without_cgroups_it_is_what_the_machine_has_available(machine):
    assert free_memory(**machine()) == 8 * GIB


def test_a_version_2_limit_counts_with_its_page_cache_as_free(machine):
    files = {
        "proc/self/cgroup": "0::/app\n",
        "cgroup/app/memory.max": f"{4 * GIB}\n",
        "cgroup/app/memory.current": f"{3 * GIB}\n",
        "cgroup/app/memory.stat": f"anon {GIB}\ninactive_file {2 * GIB}\nactive_file 7\n",
    }
    assert free_memory(**machine(files)) == 3 * GIB


def test_the_tightest_cgroup_on_the_way_up_counts(machine):
    files = {
        "proc/self/cgroup": "0::/slice/app\n",
        "cgroup/slice/app/memory.max": "max\n",
        "cgroup/slice/app/memory.current": f"{GIB}\n",
        "cgroup/slice/memory.max": f"{2 * GIB}\n",
        "cgroup/slice/memory.current": f"{GIB}\n",
    }
    assert free_memory(**machine(files)) == GIB


def test_inside_a_container_the_limit_is_at_the_root_of_the_mount(machine):
    files = {
        "proc/self/cgroup": "0::/../../elsewhere\n",
        "cgroup/memory.max": f"{GIB}\n",
        "cgroup/memory.current": "0\n",
    }
    assert free_memory(**machine(files)) == GIB


def test_a_version_1_limit(machine):
    files = {
        "proc/self/cgroup": "5:cpu,cpuacct:/x\n4:memory:/docker/abc\n",
        "cgroup/memory/docker/abc/memory.limit_in_bytes": f"{2 * GIB}\n",
        "cgroup/memory/docker/abc/memory.usage_in_bytes": f"{GIB}\n",
        "cgroup/memory/docker/abc/memory.stat": f"total_inactive_file {GIB // 2}\n",
        "cgroup/memory/memory.limit_in_bytes": f"{2**63 - 4096}\n",
        "cgroup/memory/memory.usage_in_bytes": f"{GIB}\n",
    }
    assert free_memory(**machine(files)) == GIB + GIB // 2


def test_a_cgroup_over_its_limit_has_nothing_free(machine):
    files = {
        "proc/self/cgroup": "0::/\n",
        "cgroup/memory.max": f"{GIB}\n",
        "cgroup/memory.current": f"{2 * GIB}\n",
    }
    assert free_memory(**machine(files)) == 0


def test_a_system_that_says_nothing_is_an_error_with_a_way_out(machine):
    with pytest.raises(ConfigError, match="cannot tell how much memory is free"):
        free_memory(**machine(meminfo=""))


def test_this_machine_has_some():
    assert free_memory() > 0


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [
        ("512MiB", 512 * 2**20),
        ("4GiB", 4 * GIB),
        ("4g", 4 * GIB),
        ("2GB", 2 * 10**9),
        (" 1.5 GiB ", 3 * GIB // 2),
        ("100", 100),
        ("64 kib", 65536),
        ("1TiB", 2**40),
    ],
)
def test_sizes(text, num_bytes):
    assert parse_memory_size(text, option="x") == num_bytes


@pytest.mark.parametrize("text", ["", "GiB", "4 GiBs", "-1GiB", "4,5GiB", "auto", "1e9"])
def test_what_is_no_size_names_the_option(text):
    with pytest.raises(ConfigError, match=r"kv_cache_memory must be a size such as 512MiB or 4GiB, got"):
        parse_memory_size(text, option="kv_cache_memory")


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1 KiB"), (3 * GIB // 2, "1.5 GiB"), (2**50, "1024 TiB")],
)
def test_sizes_for_people(num_bytes, text):
    assert format_memory_size(num_bytes) == text
