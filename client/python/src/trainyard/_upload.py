"""Uploads files, named by their digests, and creates datasets and models from them (client/lib/upload.cc,
dataset_upload.cc, weights_upload.cc)."""

from __future__ import annotations

import hashlib
import mmap
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import google_crc32c

from trainyard import v1
from trainyard._rpc import CREATE_DATASET, CREATE_MODEL, GET_DATASET, GET_UPLOAD, UPLOAD_FILE, Channel
from trainyard._tar import TarFolder
from trainyard.errors import InternalError, InvalidArgumentError, NotFoundError, TrainyardError, UnavailableError

CHUNK_BYTES = 1 << 20
TRIES_MAX = 5  # number of attempts without progress
SERVER_PATH_TIMEOUT_S = 3600.0  # the server reads the files before it responds
_POLL_S, _POLL_S_MAX = 0.02, 1.0
_LATE_MAX = 5  # number of calls that follow one that was not answered in time


@dataclass(frozen=True)
class Progress:
    """A transfer's progress. During an upload, it is passed to the observer in a separate thread."""

    filename: str
    done_bytes: int  # of an upload: bytes that the server already had, plus bytes sent
    total_bytes: int


Observer = Callable[[Progress], None]


@dataclass(frozen=True)
class Content:
    """The bytes to upload: a file, a folder as a tar archive, or bytes with a name for display."""

    filename: str
    source: Path | bytes | TarFolder

    @contextmanager
    def open(self) -> Iterator[mmap.mmap | bytes | TarFolder]:
        if isinstance(self.source, (bytes, TarFolder)):
            yield self.source
            return
        try:
            file = open(self.source, "rb")  # closed below; errors in the body of `with` must not be caught here
        except OSError as error:
            raise NotFoundError(f"{self.source}: {(error.strerror or str(error)).lower()}",
                                reason="FILE_NOT_FOUND") from None
        with file:
            if file.seek(0, 2) == 0:
                raise InvalidArgumentError(f"{self.source}: the file is empty", reason="DATASET_INVALID")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
                yield mapped


def _may_resume(error: TrainyardError) -> bool:
    """Returns whether sending the same bytes again may succeed after this error: the connection broke, a chunk was
    damaged in transit, the server has committed fewer bytes than expected, or an earlier stream of this client is not
    closed yet."""
    return isinstance(error, UnavailableError) or error.reason in (
        "CHUNK_CHECKSUM_MISMATCH", "UPLOAD_OFFSET_MISMATCH", "UPLOAD_BUSY", "UPLOAD_PAUSED")


def _digest(data: mmap.mmap | bytes | TarFolder) -> str:
    if not isinstance(data, TarFolder):
        return hashlib.sha256(data).hexdigest()
    digest = hashlib.sha256()
    for piece in data.pieces(CHUNK_BYTES):
        digest.update(piece)
    return digest.hexdigest()


def upload(channel: Channel, content: Content, progress: Observer | None) -> str:
    """Sends the bytes that the server does not have yet, and returns the content's SHA-256.

    A broken stream is resumed at the committed size, up to TRIES_MAX times without progress.
    """
    with content.open() as data:
        total = len(data)
        sha256 = _digest(data)

        def requests(offset: int) -> Iterator[v1.UploadFileRequest]:
            yield v1.UploadFileRequest(start=v1.UploadFileRequest.Start(
                parent=channel.parent, sha256=sha256, size_bytes=total, offset=offset))
            while offset < total:
                chunk = bytes(data[offset:offset + CHUNK_BYTES])
                yield v1.UploadFileRequest(chunk=v1.UploadFileRequest.Chunk(
                    offset=offset, data=chunk, crc32c=google_crc32c.value(chunk)))
                offset += len(chunk)
                if progress is not None:
                    progress(Progress(content.filename, offset, total))
            yield v1.UploadFileRequest(finish=v1.UploadFileRequest.Finish())

        best, tries, pause = -1, 0, 0.1
        last: TrainyardError | None = None
        while True:
            have = channel.call(GET_UPLOAD, v1.GetUploadRequest(name=f"{channel.parent}/uploads/{sha256}",
                                                                size_bytes=total))
            if have.complete:
                return sha256
            if not 0 <= have.committed_size <= total:
                raise InternalError(f"{content.filename}: the server says that it has {have.committed_size} bytes of "
                                    f"{total}", reason="UPLOAD_OFFSET_MISMATCH", code="DATA_LOSS")
            tries = 0 if have.committed_size > best else tries + 1
            best = max(best, have.committed_size)
            if tries > TRIES_MAX and last is not None:
                raise last
            try:
                if channel.send(UPLOAD_FILE, requests(have.committed_size)).complete:
                    return sha256
                last = InternalError(f"{content.filename}: the server did not accept the whole file",
                                     reason="UPLOAD_INCOMPLETE", code="DATA_LOSS")
            except TrainyardError as error:
                if not _may_resume(error):
                    raise
                last = error
            if tries > 0:
                time.sleep(pause)
                pause = min(pause * 2, 2.0)


def ensure_weights(channel: Channel, name: str, path: Path, progress: Observer | None) -> v1.Model:
    """Uploads a safetensors file as a model of weights only. Content that the server already has is not sent again."""
    sha256 = upload(channel, Content(path.name, path), progress)
    return channel.call(CREATE_MODEL, v1.CreateModelRequest(parent=channel.parent, model_id=name, sha256=sha256))


def _until_answered(call: Callable[[], v1.Dataset]) -> v1.Dataset:
    """Makes a call again that was not answered in time: the server may be busy, and the call may have had its effect. A
    repeated call returns the same version."""
    for _ in range(_LATE_MAX):
        try:
            return call()
        except TrainyardError as error:
            if error.code != "DEADLINE_EXCEEDED":
                raise
    return call()


def ensure_dataset(channel: Channel, name: str, spec: v1.DatasetSpec, contents: Sequence[Content | None],
                   progress: Observer | None) -> v1.Dataset:
    """Uploads the content of each of the spec's sources, creates the dataset and waits until it is READY. Content that
    the server already has is not sent again; a source without content is a path on the server."""
    request = v1.CreateDatasetRequest(parent=channel.parent, dataset_id=name, spec=spec)
    timeout_s = SERVER_PATH_TIMEOUT_S if None in contents else None
    # uploads may take minutes, so first check that the server accepts the name and the options
    if None not in contents:
        channel.call(CREATE_DATASET, v1.CreateDatasetRequest(parent=channel.parent, dataset_id=name, spec=spec,
                                                             validate_only=True))
    for source, content in zip(request.spec.sources, contents, strict=True):
        if content is not None:
            source.sha256 = upload(channel, content, progress)
    dataset = _until_answered(lambda: channel.call(CREATE_DATASET, request, timeout_s))
    pause = _POLL_S
    while dataset.state == v1.Dataset.INGESTING:
        time.sleep(pause)
        pause = min(pause * 1.5, _POLL_S_MAX)
        name = dataset.name
        dataset = _until_answered(lambda: channel.call(GET_DATASET, v1.GetDatasetRequest(name=name)))
    if dataset.state == v1.Dataset.FAILED:
        raise InvalidArgumentError(dataset.message, reason=dataset.reason or "DATASET_INVALID")
    return dataset
