"""A content-addressed store of build products: the same text, flags, compiler and machine give the same file."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

_SEAL = b"fuselab1"
_DIGEST = 32


def cache_key(*parts: str) -> str:
    """A name for everything that decides a build."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()[:40]


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of the cache; ``hit``: it was there before."""

    path: Path
    hit: bool


@dataclass(slots=True)
class KernelCache:
    """Files in one directory, each ending in a checksum of itself, so that a torn or damaged one is seen and built again.

    (ELF loaders ignore what follows the last section, so a shared library keeps working with its checksum behind it.)
    """

    directory: Path
    hits: int = 0
    misses: int = 0
    rebuilt: int = 0
    keys: list[str] = field(default_factory=list)

    def get(self, key: str, suffix: str, build: Callable[[], bytes]) -> Entry:
        """The file for the key, built if it is missing or damaged. Processes may race: each renames a whole file into place."""
        path = self.directory / f"{key}{suffix}"
        self.keys.append(key)
        stored = self._read(path)
        if stored:
            self.hits += 1
            return Entry(path, True)
        self.misses += 1
        self.rebuilt += stored is False
        self._write(path, build())
        return Entry(path, False)

    def read(self, path: Path) -> bytes:
        """The contents without the checksum."""
        return path.read_bytes()[: -_DIGEST - len(_SEAL)]

    @staticmethod
    def _read(path: Path) -> bool | None:
        """Whether the file is whole; None: there is no file."""
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        content, seal, digest = data[: -_DIGEST - len(_SEAL)], data[-_DIGEST - len(_SEAL) : -_DIGEST], data[-_DIGEST:]
        return seal == _SEAL and hashlib.sha256(content).digest() == digest

    def _write(self, path: Path, content: bytes) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=self.directory, prefix=path.stem[:8], suffix=".part")
        with os.fdopen(handle, "wb") as file:
            file.write(content + _SEAL + hashlib.sha256(content).digest())
        Path(temporary).chmod(0o755)
        Path(temporary).replace(path)


def default_cache() -> KernelCache:
    """The cache in FUSELAB_CACHE, or else in a private folder for this user under the temporary directory."""
    folder = os.environ.get("FUSELAB_CACHE") or str(Path(tempfile.gettempdir()) / f"fuselab-{os.getuid()}")
    return KernelCache(Path(folder))
