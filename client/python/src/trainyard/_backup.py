"""Writes a server's state as one archive, in the format of `trainyard server backup` and `trainyard server restore`."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from trainyard import v1
from trainyard._upload import Observer, Progress
from trainyard.errors import InternalError

FORMAT_VERSION = 1


class _Data(io.RawIOBase):
    """The bytes of one file, read from the stream as the archive writer requests them."""

    def __init__(self, messages: Iterator[v1.BackupResponse]) -> None:
        self._messages, self._left = messages, memoryview(b"")
        self.digest, self.count = hashlib.sha256(), 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if not self._left:
            message = next(self._messages, None)
            if message is None or message.WhichOneof("kind") != "data":
                raise _malformed("less data than it announced")
            self._left = memoryview(message.data)
            self.digest.update(message.data)
        piece, self._left = self._left[:size], self._left[size:]
        self.count += len(piece)
        return bytes(piece)

    def end(self, path: str) -> str:
        message = next(self._messages, None)
        if message is None or message.WhichOneof("kind") != "end" or self._left:
            raise _malformed("more data than it announced")
        sha256 = self.digest.hexdigest()
        if sha256 != message.end.sha256:
            raise InternalError(f"{path} was damaged in transit; try again", reason="BACKUP_DAMAGED", code="DATA_LOSS")
        return sha256


def _malformed(what: str) -> InternalError:
    return InternalError(f"the server sent {what}", reason="STREAM_MALFORMED", code="DATA_LOSS")


def _add(archive: tarfile.TarFile, path: str, size: int, data: IO[bytes], now: int) -> None:
    entry = tarfile.TarInfo(path)
    entry.size, entry.mode, entry.mtime = size, 0o600, now
    archive.addfile(entry, data)


def _write(archive: tarfile.TarFile, messages: Iterator[v1.BackupResponse],
           progress: Observer | None) -> v1.BackupResponse.Summary:
    now, done = int(time.time()), 0
    files: list[dict[str, object]] = []
    for message in messages:
        kind = message.WhichOneof("kind")
        if kind == "progress":
            continue
        if kind == "summary":
            summary = message.summary
            if summary.file_count != len(files) or summary.format_version != FORMAT_VERSION:
                raise _malformed("an end that does not fit its files")
            text = json.dumps({"format_version": FORMAT_VERSION, "server_version": summary.server_version,
                               "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now)),
                               "commit": summary.commit, "files": files}, indent=1).encode() + b"\n"
            _add(archive, "manifest.json", len(text), io.BytesIO(text), now)
            return summary
        if kind != "header":
            raise _malformed("data before the file's header")
        header, data = message.header, _Data(messages)
        _add(archive, header.path, header.size_bytes, data, now)  # type: ignore[arg-type]
        files.append({"path": header.path, "size_bytes": header.size_bytes, "sha256": data.end(header.path)})
        done += header.size_bytes
        if progress is not None:
            progress(Progress(header.path, done, header.total_bytes))
    raise _malformed("an end before the backup was complete")


def write_backup(messages: Iterator[v1.BackupResponse], file: str | os.PathLike[str],
                 progress: Observer | None) -> v1.BackupResponse.Summary:
    """Writes the archive under a temporary name and renames it once it is complete and durable."""
    target = Path(file)
    part = target.with_name(target.name + ".part")
    try:
        with open(part, "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as out:
            with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
                summary = _write(archive, messages, progress)
            out.flush()
            os.fsync(out.fileno())
        os.replace(part, target)
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    finally:
        part.unlink(missing_ok=True)
    return summary
