"""The cache gives the same file for the same key, notices damage, and survives processes that race."""

from __future__ import annotations

import ctypes
import threading
from pathlib import Path

import pytest

from compiler.errors import CompileError
from compiler.runtime.build import build_cpp, run_tool
from compiler.runtime.cache import KernelCache, cache_key, default_cache

TEXT = 'extern "C" int answer() { return 42; }\n'


def answer(path: Path) -> int:
    return ctypes.CDLL(str(path)).answer()


def test_the_second_build_is_a_hit(tmp_path: Path) -> None:
    cache = KernelCache(tmp_path)
    first, second = build_cpp(TEXT, cache), build_cpp(TEXT, cache)
    assert (first.hit, second.hit) == (False, True)
    assert (cache.hits, cache.misses) == (1, 1)
    assert first.path == second.path
    assert answer(first.path) == 42
    assert build_cpp(TEXT.replace("42", "43"), cache).hit is False


@pytest.mark.parametrize("damage", [b"", b"short", None], ids=["empty", "torn", "flipped"])
def test_a_damaged_entry_is_built_again(tmp_path: Path, damage: bytes | None) -> None:
    cache = KernelCache(tmp_path)
    path = build_cpp(TEXT, cache).path
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.unlink()
    path.write_bytes(bytes(content) if damage is None else damage)
    again = build_cpp(TEXT, cache)
    assert again.hit is False
    assert cache.rebuilt == 1
    assert answer(again.path) == 42


def test_racing_writers_leave_one_whole_file(tmp_path: Path) -> None:
    content, seen = bytes(range(256)) * 4000, []

    def work() -> None:
        cache = KernelCache(tmp_path)
        for _ in range(20):
            entry = cache.get("key", ".bin", lambda: content)
            seen.append(cache.read(entry.path) == content)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [True] * 120
    assert [path.name for path in tmp_path.iterdir()] == ["key.bin"], "no temporary file is left"


def test_keys_depend_on_where_parts_end() -> None:
    assert cache_key("ab", "c") != cache_key("a", "bc")
    assert cache_key("ab", "c") == cache_key("ab", "c")


def test_the_folder_is_the_one_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSELAB_CACHE", str(tmp_path / "here"))
    assert default_cache().directory == tmp_path / "here"


def test_a_compiler_error_is_told_with_its_message(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match="nonsense") as caught:
        build_cpp("nonsense\n", KernelCache(tmp_path))
    assert caught.value.stage == "code"
    assert list(tmp_path.iterdir()) == []


def test_a_missing_tool_is_named() -> None:
    with pytest.raises(CompileError, match="no-such-tool is not installed"):
        run_tool(["no-such-tool"], "sass")
