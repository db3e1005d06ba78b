"""Headers are precompiled once, whole or not at all; a process kept apart uses those that it can read and writes to its own folder only."""

import pytest
from torch._inductor import codecache
from torch._inductor.cpu_vec_isa import invalid_vec_isa

from compiler.observe import inductor_caches
from tests.compiler.observe.test_torch_names import resolve

COMMAND = {"vec_isa": invalid_vec_isa, "include_pytorch": False, "device_type": "cpu", "shared": True}


@pytest.fixture(autouse=True)
def _put_back(monkeypatch):
    for name in ("_HEADER_DIR", "_HEADER_LOCK_DIR", "_precompile_header"):
        monkeypatch.setattr(codecache, name, getattr(codecache, name))


@pytest.mark.parametrize("name", inductor_caches.RELIES_ON)
def test_the_name_exists(name):
    assert resolve(name) is not None


def sample():
    return codecache._precompile_header("cstdint", "g++ for a test", **COMMAND)


def test_headers_are_kept_for_later_processes(tmp_path):
    folder = tmp_path / "headers"
    first = inductor_caches.precompile(folder, sample)
    (path,) = first.values()
    assert path.startswith(str(folder))
    assert list(first) == [("cstdint", "g++ for a test")]
    built = (folder / f"{path}.gch").stat()
    assert built.st_size > 1000
    codecache._precompile_header.cache_clear()
    assert inductor_caches.precompile(folder, sample) == first
    assert (folder / f"{path}.gch").stat() == built, "it was not built again"
    assert [each.name for each in tmp_path.iterdir()] == ["headers"]


def test_nothing_is_kept_of_a_build_that_failed(tmp_path):
    def fails():
        sample()
        raise RuntimeError

    with pytest.raises(RuntimeError):
        inductor_caches.precompile(tmp_path / "headers", fails)
    assert list(tmp_path.iterdir()) == []


def test_a_process_kept_apart_makes_no_header_and_uses_what_it_can_read(tmp_path):
    (tmp_path / "a.h").write_text("")
    (tmp_path / "a.h.gch").write_text("")
    (tmp_path / "b.h").write_text("")
    headers = {("a", "g++"): f"{tmp_path}/a.h", ("b", "g++"): f"{tmp_path}/b.h"}
    inductor_caches.keep_apart(tmp_path / "own", headers)
    assert codecache._precompile_header("a", "g++", **COMMAND) == f"{tmp_path}/a.h"
    assert codecache._precompile_header("b", "g++", **COMMAND) == "", "its precompiled form is gone"
    assert codecache._precompile_header("a", "g++ -O1", **COMMAND) == "", "nothing was precompiled for this command"
    assert codecache._HEADER_DIR.startswith(str(tmp_path / "own"))
