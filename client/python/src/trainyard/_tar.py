"""A folder as a tar archive, which is generated while it is read. The bytes are those of the command line
(src/base/tar_folder.h): the files and empty folders that are not ignored, sorted by the bytes of their paths, without
owners and times."""

from __future__ import annotations

import os
import stat
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trainyard.errors import InvalidArgumentError, NotFoundError

_BLOCK, _NAME_BYTES, _PREFIX_BYTES = 512, 100, 155
_FILE_BYTES_MAX = (1 << 33) - 1  # the largest number with 11 octal digits
_DEPTH_MAX, _PATH_BYTES_MAX = 32, 1024
# Names that systems, network storages, clouds and editors leave in folders, as in src/base/folder_files.cc.
_SYSTEM_NAMES = frozenset((
    b"__macosx", b"icon\r", b"thumbs.db", b"thumbs.db:encryptable", b"ehthumbs.db", b"desktop.ini",
    b"system volume information", b"$recycle.bin", b"@eadir", b"#recycle", b"#snapshot", b"@recycle",
    b"@recently-snapshot", b"@__thumb", b"lost+found"))
_SYSTEM_STARTS, _SYSTEM_ENDINGS = (b".", b"~$"), (b".swp", b".swo")


def _refuse(path: bytes, why: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"{os.fsdecode(path)}: {why}", reason="DATASET_INVALID")


def is_ignored_name(name: bytes) -> bool:
    lower = name.lower()
    return lower.startswith(_SYSTEM_STARTS) or lower.endswith(_SYSTEM_ENDINGS) or lower in _SYSTEM_NAMES


def list_folder(root: str | os.PathLike[str]) -> list[tuple[bytes, int]]:
    """Returns the paths of files below `root`, with '/' as separator, and their sizes; and the paths of empty folders,
    which end with '/'. Follows links to places below `root`, and refuses others."""
    top = os.fsencode(root)
    real_top = os.path.realpath(top)
    found: list[tuple[bytes, int]] = []

    def add(folder: bytes, depth: int) -> None:
        here = os.path.join(top, folder)
        if depth > _DEPTH_MAX:
            raise _refuse(here, f"more than {_DEPTH_MAX} folders deep; does a link form a loop?")
        names = [name for name in os.listdir(here) if not is_ignored_name(name)]
        if not names and folder:
            found.append((folder + b"/", 0))
        for name in names:
            path = folder + b"/" + name if folder else name
            if os.path.islink(os.path.join(top, path)):
                target = os.path.realpath(os.path.join(top, path))
                if os.path.commonpath((real_top, target)) != real_top:
                    raise _refuse(os.path.join(top, path), f"a link out of the folder, to {os.fsdecode(target)!r}; "
                                  "put the file itself there, or remove the link")
            status = os.stat(os.path.join(top, path))
            if stat.S_ISDIR(status.st_mode):
                add(path, depth + 1)
            elif not stat.S_ISREG(status.st_mode):
                raise _refuse(os.path.join(top, path), "neither a file nor a folder")
            elif len(path) > _PATH_BYTES_MAX:
                raise _refuse(os.path.join(top, path), "its path is too long")
            else:
                found.append((path, status.st_size))

    try:
        add(b"", 0)
    except OSError as error:
        raise NotFoundError(f"{root}: {error.strerror or error}", reason="FILE_NOT_FOUND") from None
    return sorted(found)


def _padding(size: int) -> int:
    return -size % _BLOCK


def _block(name: bytes, prefix: bytes, size: int, kind: bytes) -> bytes:
    def field(value: bytes, width: int) -> bytes:
        return value.ljust(width, b"\0")

    def header(checksum: bytes) -> bytes:
        return (field(name, 100) + b"0000644\0" + b"0000000\0" * 2 + b"%011o\0" % size + b"%011o\0" % 0 + checksum + kind
                + field(b"", 100) + b"ustar\x0000" + field(b"", 80) + field(prefix, _PREFIX_BYTES)).ljust(_BLOCK, b"\0")
    return header(b"%06o\0 " % sum(header(b" " * 8)))


def tar_header(path: bytes, size: int) -> bytes:
    kind = b"5" if path.endswith(b"/") else b"0"  # a folder or a file
    if len(path) <= _NAME_BYTES:
        return _block(path, b"", size, kind)
    slash = path.find(b"/", len(path) - _NAME_BYTES - 1)
    if 0 < slash <= _PREFIX_BYTES and slash + 1 < len(path):
        return _block(path[slash + 1:], path[:slash], size, kind)
    rest = b" path=" + path + b"\n"
    length = len(rest) + 1
    while len(str(length)) + len(rest) != length:
        length += 1
    record = str(length).encode() + rest
    return (_block(b"pax", b"", len(record), b"x") + record + bytes(_padding(len(record)))
            + _block(b"pax", b"", size, kind))


@dataclass(frozen=True)
class _Part:
    path: bytes
    size: int
    header: bytes

    @property
    def total(self) -> int:
        return len(self.header) + self.size + _padding(self.size)


class TarFolder:
    """The archive's bytes; supports len() and slices."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root)
        self._parts = [_Part(path, size, tar_header(path, size)) for path, size in list_folder(root)]
        if all(part.path.endswith(b"/") for part in self._parts):
            raise _refuse(os.fsencode(root), "there are no files in the folder")
        for part in self._parts:
            if part.size > _FILE_BYTES_MAX:
                raise _refuse(os.path.join(os.fsencode(root), part.path), "larger than 8 GiB")
        self._begins = [0]
        for part in self._parts:
            self._begins.append(self._begins[-1] + part.total)

    def __len__(self) -> int:
        return self._begins[-1] + 2 * _BLOCK

    def __getitem__(self, wanted: slice) -> bytes:
        begin, end, _ = wanted.indices(len(self))
        pieces: list[bytes] = []
        index = bisect_right(self._begins, begin) - 1
        while index < len(self._parts) and self._begins[index] < end:
            part, at = self._parts[index], self._begins[index]
            # The range of the requested bytes within this part, which consists of header, file and padding.
            low, high = max(0, begin - at), min(part.total, end - at)
            pieces.append(part.header[low:high])
            low, high = max(0, low - len(part.header)), max(0, high - len(part.header))
            if low < part.size and high > low:
                pieces.append(self._read(part, low, min(high, part.size)))
            pieces.append(bytes(max(0, high - max(low, part.size))))
            index += 1
        data = b"".join(pieces)
        return data + bytes(end - begin - len(data))  # padded with the zeros of the archive's end mark

    def _read(self, part: _Part, low: int, high: int) -> bytes:
        path = os.path.join(os.fsencode(self.root), part.path)
        with open(path, "rb") as file:
            file.seek(low)
            data = file.read(high - low)
        if len(data) != high - low:
            raise _refuse(path, "the file became shorter while it was read")
        return data

    def pieces(self, size: int) -> Iterator[bytes]:
        for begin in range(0, len(self), size):
            yield self[begin:begin + size]
