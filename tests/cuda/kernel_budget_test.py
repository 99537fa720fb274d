"""Catches: a hot kernel that spills, takes so many registers that too few blocks fit a
multiprocessor, no longer loads 16 bytes at once, or divides 64-bit numbers for each element.

Compiles the kernels for sm_90 as the build does and reads what ptxas says and what the PTX holds:
no GPU is needed, and nothing is known of speed. Usage: kernel_budget_test.py NVCC ROOT
"""

import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

NVCC, ROOT = sys.argv[1:3]
THREADS = 256  # of a block
REGISTERS = 65536  # of a multiprocessor
F32, BF16, F16 = range(3)  # Stored, as kernels/cuda/view.h counts
NONE, BY_RESULT, BY_INPUT = range(3)  # Mask of channels_last_norm.cu
# 3.35 TB/s x 0.65 us of latency, over 132 multiprocessors: what must be on its way in each.
BYTES_IN_FLIGHT = 16500


class Budget:
    """`kernel` as c++filt prints it, without namespaces; `blocks` that fit a multiprocessor at
    once; `loads` of 16 bytes that a thread issues before it uses the first; those besides that it
    makes `once`, of what belongs to a channel."""

    def __init__(self, kernel, blocks, loads, once=0):
        self.kernel, self.blocks, self.loads, self.once = kernel, blocks, loads, once


def stored(format):
    return f"(Stored){format}"


def loads_of(tensors):
    """Of 16 bytes, by in_flight(): in F32 two loads of half the pixels."""
    return tensors * (2 if tensors > 2 else 4)


def budgets():
    """By source file. What a kernel had when this was written; who needs more says why."""
    norm, pool, arithmetic, convert = [], [], [], []
    for format in (F32, BF16, F16):
        s = stored(format)
        wide = 2 if format == F32 else 1  # loads of eight elements
        norm.append(Budget(f"reduce_slices<MomentsOfEight<{s}>>", 2, 4))
        for mask, tensors in ((NONE, 2), (BY_RESULT, 3), (BY_INPUT, 2)):
            name = f"{s}, (Mask){mask}"
            dx = Budget(f"differentiate_eights<{name}>", 3, loads_of(tensors), 10)
            if mask == BY_INPUT:  # what makes y
                dx.once = 12
            norm.append(dx)
            for adds in ("false", "true") if mask != NONE else ("false",):
                loads = loads_of(tensors + (adds == "true"))
                sums = Budget(f"reduce_slices<GradientSumsOfEight<{name}, {adds}>>", 2, loads, 2)
                if mask == BY_INPUT:
                    sums.once = 10
                norm.append(sums)
        for relu in ("false", "true"):
            norm.append(Budget(f"normalize_eights<{s}, false, {relu}>", 4, 4, 8))
            norm.append(Budget(f"normalize_eights<{s}, true, {relu}>", 4, 8, 8))
        pool.append(Budget(f"max_eights<{s}, 2>", 5, 2 * wide))
        pool.append(Budget(f"max_eights<{s}, 3>", 4, 3 * wide))
        pool.append(Budget(f"max_backward_eights<{s}>", 5, wide))
        arithmetic.append(Budget(f"combine_eights<Add, {s}>", 4, 8))
    for format in (BF16, F16):
        convert.append(Budget(f"convert_eights<{stored(F32)}, {stored(format)}>", 5, 4))
    return {
        "channels_last_norm.cu": norm,
        "pool.cu": pool,
        "arithmetic.cu": arithmetic,
        "convert.cu": convert,
    }


def plain(names):
    """Mangled names as c++filt prints them, without result, parameters and namespaces."""
    lines = subprocess.run(
        ["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True
    ).stdout.splitlines()
    result = []
    for line in lines:
        line = re.sub(r"\(anonymous namespace\)::|trainyard::|kernels::|cuda::|math::", "", line)
        line = line.removeprefix("void ").replace("> >", ">>")
        depth, end = 0, len(line)
        for i, c in enumerate(line):
            depth += (c == "<") - (c == ">")
            if c == "(" and depth == 0:
                end = i
                break
        result.append(line[:end])
    return result


def compile_kernels(source, folder):
    """{kernel: (registers, spilled bytes, PTX)}"""
    command = [NVCC, f"-I{ROOT}", "-O3", "-DNDEBUG", "--expt-relaxed-constexpr", "-std=c++20"]
    command += ["-gencode=arch=compute_90,code=sm_90", "-Xptxas=-v", "-cubin", "--keep"]
    command += [f"--keep-dir={folder}", f"--output-file={folder}/out.cubin"]
    said = subprocess.run(
        command + [f"{ROOT}/kernels/cuda/{source}"], capture_output=True, text=True, check=True
    ).stderr
    used = re.findall(
        r"Compiling entry function '(\S+)'.*?(\d+) bytes spill stores, (\d+) bytes spill loads"
        r".*?Used (\d+) registers",
        said,
        re.S,
    )
    (ptx,) = pathlib.Path(folder).glob("*.ptx")
    bodies = dict(re.findall(r"\.entry (\w+)\((.*?)\n}\n", ptx.read_text(), re.S))
    return {
        name: (int(registers), int(stores) + int(loads), bodies[mangled])
        for name, (mangled, stores, loads, registers) in zip(
            plain([u[0] for u in used]), used, strict=True
        )
    }


class KernelBudget(unittest.TestCase):
    def check(self, source):
        with tempfile.TemporaryDirectory() as folder:
            kernels = compile_kernels(source, folder)
        for budget in budgets()[source]:
            with self.subTest(kernel=budget.kernel):
                self.assertIn(budget.kernel, kernels, sorted(kernels))
                registers, spilled, ptx = kernels[budget.kernel]
                blocks = REGISTERS // (THREADS * (-(-registers // 8) * 8))
                wide = len(re.findall(r"ld\.global(?:\.nc)?\.v4\.[fub]32", ptx))
                narrow = re.findall(r"ld\.global(?:\.nc)?\.[fub]\d+", ptx)
                divisions = re.findall(r"(?:div|rem)\.[su]64", ptx)
                in_flight = budget.loads * 16 * THREADS * blocks
                print(
                    f"{budget.kernel}: {registers} registers, {blocks} blocks, {spilled} B spilled, "
                    f"{wide} loads of 16 B, {in_flight // 1024} KiB in flight"
                )
                self.assertGreaterEqual(blocks, budget.blocks, "blocks on a multiprocessor")
                self.assertEqual(spilled, 0, "bytes spilled")
                self.assertGreater(wide, 0, "loads of 16 bytes")
                # A multiple where the compiler has made copies of a loop.
                self.assertEqual(wide % (budget.loads + budget.once), 0, "loads of 16 bytes")
                self.assertGreaterEqual(in_flight, BYTES_IN_FLIGHT, "bytes in flight")
                if not budget.kernel.startswith("reduce_slices"):  # those: once for a slice
                    self.assertEqual(narrow, [], "loads of one element")
                    self.assertEqual(divisions, [], "divisions of 64-bit numbers")

    def test_direct_convolutions(self):
        """They live in shared memory: what counts is that blocks fit, and that 16 bits multiply
        by tensor cores."""
        with tempfile.TemporaryDirectory() as folder:
            kernels = compile_kernels("direct_conv.cu", folder)
        kernels = {n: k for n, k in kernels.items() if not n.startswith("reduce_slices")}
        self.assertEqual(len(kernels), 30)  # formats of images and operands, sizes of tiles
        for name, (registers, spilled, ptx) in kernels.items():
            with self.subTest(kernel=name):
                blocks = REGISTERS // (THREADS * (-(-registers // 8) * 8))
                products = len(re.findall(r"mma\.sync\.aligned\.m16n8k16", ptx))
                print(f"{name}: {registers} registers, {blocks} blocks, {products} products")
                self.assertGreaterEqual(blocks, 2, "blocks on a multiprocessor")
                self.assertEqual(spilled, 0, "bytes spilled")
                staging = re.findall(r"(?:ld\.global|st\.shared)(?=\.)", ptx)
                self.assertIn("ld.global" * 8 + "st.shared" * 8, "".join(staging), "loads in flight")
                is_f32 = f"{stored(F32)}, {stored(F32)}" in name
                self.assertEqual(products > 0, not is_f32, "tensor cores")

    def test_batch_normalization(self):
        self.check("channels_last_norm.cu")

    def test_pooling(self):
        self.check("pool.cu")

    def test_sums(self):
        self.check("arithmetic.cu")

    def test_casts(self):
        self.check("convert.cu")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
