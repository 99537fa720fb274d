"""Writes arrays.json: files written by NumPy and the safetensors package, and the arrays that these
packages read back.

Run: python3 make_arrays_golden.py (needs NumPy, safetensors and, for bfloat16, PyTorch). Numbers
are given as 32-bit floats in row-major order, as converted by `astype(float32)`; texts are
unchanged. The versions 2.0 and 3.0 of NPY, which NumPy itself chooses only for structured types,
are selected explicitly.
"""

import base64
import io
import json
from pathlib import Path

import numpy as np
import safetensors
import safetensors.torch
import torch

rng = np.random.default_rng(5)
CODES = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"]


def packed(data: bytes) -> str:
    return base64.b64encode(data).decode()


def numbers(code: str, shape: tuple[int, ...]) -> np.ndarray:
    kind = np.dtype(code)
    if kind.kind == "b":
        return rng.integers(0, 2, shape).astype(kind)
    if kind.kind in "iu":
        info = np.iinfo(kind)
        values = rng.integers(info.min, info.max, shape, dtype=kind, endpoint=True)
        values.flat[:2] = info.min, info.max
        return values
    values = (rng.standard_normal(shape) * 100).astype(kind)
    values.flat[:4] = 0.0, -0.0, np.finfo(kind).smallest_subnormal, np.nan
    return values


def npy(array: np.ndarray, version: tuple[int, int] | None = None) -> bytes:
    out = io.BytesIO()
    np.lib.format.write_array(out, array, version=version, allow_pickle=True)
    return out.getvalue()


def case(name: str, array: np.ndarray, data: bytes) -> dict[str, object]:
    result: dict[str, object] = {"name": name, "file": packed(data), "shape": list(array.shape)}
    if array.dtype.kind in "SU":
        texts = array.ravel().tolist()
        result["texts"] = [t.decode() if isinstance(t, bytes) else t for t in texts]
    else:
        with np.errstate(over="ignore"):
            result["floats"] = packed(np.ascontiguousarray(array).astype("<f4").tobytes())
    return result


def main() -> None:
    cases = []
    for code in CODES:
        array = numbers(code, (5, 3))
        for order in "<>":
            for memory in "CF":
                stored = np.asarray(array.astype(array.dtype.newbyteorder(order)), order=memory)
                cases.append(case(f"{order}{code} {memory}", array, npy(stored)))
    deep = numbers("i2", (3, 2, 4, 5))
    cases.append(case("four axes, column-major", deep, npy(np.asfortranarray(deep))))
    cases.append(case("one axis, column-major", deep[0, 0, 0], npy(np.asfortranarray(deep[0, 0, 0]))))
    for version in ((1, 0), (2, 0), (3, 0)):
        array = numbers("f4", (4, 2))
        cases.append(case(f"version {version[0]}", array, npy(array, version)))
    texts = np.array(["a", "b\0c", "", "caf\u00e9 \u20ac \U0001f600"])
    for order in "<>":
        cases.append(case(f"{order}U", texts, npy(texts.astype(texts.dtype.newbyteorder(order)))))
    raw = np.array([b"ab", b"", b"a\0b", b"xyz"])
    cases.append(case("S", raw, npy(raw)))

    refused = {
        "objects": npy(np.array([{"a": 1}, None], dtype=object)),
        "structured": npy(np.zeros(2, dtype=[("a", "i4"), ("b", "f4")])),
        "complex64": npy(np.zeros(2, dtype="c8")),
        "complex128": npy(np.zeros(2, dtype="c16")),
        "long double": npy(np.zeros(2, dtype=np.longdouble)),
        "dates": npy(np.zeros(2, dtype="M8[D]")),
        "spans": npy(np.zeros(2, dtype="m8[s]")),
        "void": npy(np.zeros(2, dtype="V3")),
    }

    table = {"x": numbers("f8", (6, 2)), "y": np.array([3, 1, 2, 1, 3, 2], dtype="i8")}
    packages = []
    for name, save in (("stored", np.savez), ("deflated", np.savez_compressed)):
        out = io.BytesIO()
        save(out, **table)
        packages.append({"name": f"NPZ, {name}", "file": packed(out.getvalue())})
    tensors = {}
    for kind in (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16,
                 torch.float32, torch.float64, torch.uint16, torch.uint32, torch.uint64):
        values = torch.tensor([0, 1, 7, 100, 3.5, -2.25][: 4 if not kind.is_floating_point else 6])
        tensors[str(kind).removeprefix("torch.")] = values.to(kind)
    tensors["x"] = torch.from_numpy(table["x"])
    tensors["y"] = torch.from_numpy(table["y"])
    packages.append({"name": "safetensors", "file": packed(safetensors.torch.save(tensors)),
                     "floats": {name: packed(t.to(torch.float32).numpy().tobytes()) for name, t in tensors.items()}})

    golden = {"numpy": np.__version__, "safetensors": safetensors.__version__, "torch": torch.__version__,
              "cases": cases, "refused": {name: packed(data) for name, data in refused.items()},
              "packages": packages, "x": packed(table["x"].astype("<f4").tobytes()), "y": table["y"].tolist()}
    lines = json.dumps(golden, indent=0)
    (Path(__file__).parent / "arrays.json").write_text(lines + "\n")


main()
