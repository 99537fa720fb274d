"""Writes image_files.json: small JPEG and PNG files, and the pixels that Pillow decodes from them.

Run: python3 make_image_files_golden.py (needs Pillow and NumPy). Pillow cannot write interlaced and
16-bit PNG files, so the script itself writes them according to the PNG specification. 16-bit
samples are expected as their high byte, which Pillow returns only for color images.
"""

import base64
import io
import json
import struct
import zlib
from pathlib import Path

import numpy as np
import PIL
from PIL import Image, ImageOps

HEIGHT, WIDTH = 9, 13
rng = np.random.default_rng(7)


def smooth(channels: int, height: int = HEIGHT, width: int = WIDTH) -> np.ndarray:
    """Returns a picture that JPEG compresses well: waves, different for each channel."""
    y, x = np.mgrid[0:height, 0:width]
    planes = [127 + 100 * np.sin(x / (3 + c) + c) * np.cos(y / (4 - c / 2)) for c in range(channels)]
    return np.stack(planes, -1).round().clip(0, 255).astype(np.uint8)


def noise(channels: int) -> np.ndarray:
    return rng.integers(0, 256, (HEIGHT, WIDTH, channels), dtype=np.uint8)


def saved(image: Image.Image, kind: str, **options: object) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def png(colour: int, bits: int, rows: list[bytes], interlaced: bool = False, width: int = WIDTH) -> bytes:
    header = struct.pack(">IIBBBBB", width, HEIGHT, bits, colour, 0, 0, int(interlaced))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header)
            + chunk(b"IDAT", zlib.compress(b"".join(b"\0" + row for row in rows))) + chunk(b"IEND", b""))


def interlaced_rows(pixels: np.ndarray) -> list[bytes]:
    passes = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)]
    rows = []
    for top, left, down, right in passes:
        part = pixels[top::down, left::right]
        if part.size:
            rows += [row.tobytes() for row in part]
    return rows


def packed(values: np.ndarray, bits: int) -> list[bytes]:
    rows = []
    for row in values:
        text = "".join(format(int(v), f"0{bits}b") for v in row)
        text += "0" * (-len(text) % 8)
        rows.append(int(text, 2).to_bytes(len(text) // 8, "big"))
    return rows


def expected(data: bytes) -> tuple[Image.Image, Image.Image]:
    image = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
    colour = image.convert("RGB")
    return (colour.convert("L") if image.mode == "CMYK" else image.convert("L")), colour


def planes(image: Image.Image) -> str:
    array = np.asarray(image)
    array = array[None] if array.ndim == 2 else array.transpose(2, 0, 1)
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()


cases = []


def add(name: str, data: bytes, tolerance: int, colour: bool, pixels: tuple[Image.Image, Image.Image] | None = None):
    grey, rgb = pixels or expected(data)
    cases.append({"name": name, "file": base64.b64encode(data).decode(), "height": rgb.height, "width": rgb.width,
                  "colour": colour, "tolerance": tolerance, "grey": planes(grey), "rgb": planes(rgb)})


def exif(orientation: int, order: str) -> bytes:
    tag = b"II*\0" if order == "<" else b"MM\0*"
    return b"Exif\0\0" + tag + struct.pack(order + "IHHHIHHI", 8, 1, 0x0112, 3, 1, orientation, 0, 0)


for mode, channels in (("L", 1), ("LA", 2), ("RGB", 3), ("RGBA", 4)):
    array = noise(channels)
    add(f"png_{mode}", saved(Image.fromarray(array[:, :, 0] if channels == 1 else array, mode), "PNG"), 0, channels > 2)
picture = Image.fromarray(noise(3))
palette = picture.quantize(31)
add("png_P", saved(palette, "PNG"), 0, True)
add("png_P_transparent", saved(palette, "PNG", transparency=3), 0, True)
grey_palette = Image.fromarray(noise(1)[:, :, 0] % 16, "P")
grey_palette.putpalette([v for i in range(16) for v in (i * 16, i * 16, i * 16)])
add("png_P_grey", saved(grey_palette, "PNG"), 0, False)
add("png_1", saved(Image.fromarray(noise(1)[:, :, 0]).convert("1"), "PNG"), 0, False)
for bits in (2, 4):
    add(f"png_{bits}_bits", png(0, bits, packed(rng.integers(0, 1 << bits, (HEIGHT, WIDTH)), bits)), 0, False)
wide = rng.integers(0, 65536, (HEIGHT, WIDTH, 3), dtype=np.uint16)
high = (wide >> 8).astype(np.uint8)
add("png_16_RGB", png(2, 16, [row.astype(">u2").tobytes() for row in wide]), 0, True)
grey16 = Image.fromarray(high[:, :, 0])
add("png_16_L", png(0, 16, [row.astype(">u2").tobytes() for row in wide[:, :, 0]]), 0, False,
    (grey16, grey16.convert("RGB")))
add("png_interlaced", png(2, 8, interlaced_rows(noise(3)), True), 0, True)
add("png_exif_6", saved(picture, "PNG", exif=exif(6, ">")), 0, True)

add("jpeg_L", saved(Image.fromarray(smooth(1)[:, :, 0]), "JPEG", quality=90), 2, False)
add("jpeg_444", saved(Image.fromarray(smooth(3)), "JPEG", quality=95, subsampling=0), 2, True)
add("jpeg_420", saved(Image.fromarray(smooth(3)), "JPEG", quality=80, subsampling=2), 2, True)
add("jpeg_progressive", saved(Image.fromarray(smooth(3)), "JPEG", quality=85, progressive=True), 2, True)
add("jpeg_CMYK", saved(Image.fromarray(smooth(4), "CMYK"), "JPEG", quality=95), 2, True)
for orientation in range(1, 9):
    order = "<>"[orientation % 2]
    add(f"jpeg_exif_{orientation}",
        saved(Image.fromarray(smooth(3)), "JPEG", quality=95, subsampling=0, exif=exif(orientation, order)), 2, True)

# Resizes one larger picture to smaller and larger sizes and to other aspect ratios.
source = Image.fromarray(smooth(3, 40, 30))
resized = []
for height, width in ((16, 16), (40, 30), (80, 45), (7, 50), (1, 1)):
    size = (width, height)
    padded = Image.new("RGB", size)
    scale = min(height / source.height, width / source.width)
    inner = source.resize((max(1, int(source.width * scale + 0.5)), max(1, int(source.height * scale + 0.5))),
                          Image.BILINEAR)
    padded.paste(inner, ((width - inner.width) // 2, (height - inner.height) // 2))
    resized.append({"size": [height, width],
                    "stretch": planes(source.resize(size, Image.BILINEAR)),
                    "crop": planes(ImageOps.fit(source, size, Image.BILINEAR)),
                    "pad": planes(padded)})

Path(__file__).with_name("image_files.json").write_text(json.dumps({
    "pillow": PIL.__version__, "images": cases,
    "source": base64.b64encode(saved(source, "PNG")).decode(), "resized": resized}, indent=0) + "\n")
