"""Writes all results of a run into one archive, small enough to be carried back from a machine that
returns few and small files."""

import io
import pathlib
import tarfile

BYTES_MAX = 16 << 20
FILE_BYTES_MAX = 2 << 20  # a longer file keeps its beginning and its end
LEFT_OUT = ("bin", "nvml", "data")  # folders of OUT that are no results


def shortened(content, most):
    """A text of at most about `most` bytes: its beginning, its end and a line between them."""
    if len(content) <= most:
        return content
    head, tail = most // 4, most - most // 4
    return (content[:head] + f"\n[{len(content) - head - tail} bytes are left out here]\n".encode()
            + content[len(content) - tail:])


def files_of(out, archive):
    return sorted(p for p in out.rglob("*") if p.is_file() and not p.is_symlink() and p.suffix != ".new" and p != archive
                  and p.relative_to(out).parts[0] not in LEFT_OUT)


def write_once(out, archive, new, most):
    with tarfile.open(new, "w:gz", compresslevel=6) as tar:
        for path in files_of(out, archive):
            try:
                content, changed = shortened(path.read_bytes(), most), int(path.stat().st_mtime)
            except FileNotFoundError:  # a step has removed or renamed it meanwhile
                continue
            entry = tarfile.TarInfo(str(pathlib.PurePosixPath("gpu_check_results") / path.relative_to(out)))
            entry.size, entry.mtime = len(content), changed
            tar.addfile(entry, io.BytesIO(content))


def write(out, archive):
    """Replaces the archive at once, so that an interruption leaves the earlier one."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    new = archive.with_name(archive.name + ".new")
    most = FILE_BYTES_MAX
    write_once(out, archive, new, most)
    while new.stat().st_size > BYTES_MAX and most > 4096:
        most //= 4
        write_once(out, archive, new, most)
    new.replace(archive)
