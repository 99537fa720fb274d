"""Formats numbers and texts for people."""

from __future__ import annotations


def quoted(text: str) -> str:
    """Returns the text in quotes for a message: at most 64 bytes; bytes other than printable ASCII become \\xNN."""
    data = text.encode("utf-8", "surrogatepass")
    shown = "".join(chr(byte) if 0x20 <= byte < 0x7f else f"\\x{byte:02x}" for byte in data[:64])
    return f"'{shown}{'...' if len(data) > 64 else ''}'"


def short_number(value: float) -> str:
    """Formats with four significant digits."""
    return f"{value:.4g}"


def human_bytes(size: float) -> str:
    units = ["B", "KiB", "MiB", "GiB", "TiB"]
    while size >= 1000 and len(units) > 1:
        size /= 1024
        del units[0]
    return f"{size:.3g} {units[0]}"


def human_seconds(seconds: float) -> str:
    """Formats a duration: 4.2 s, 3:07, 2:03:07."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
