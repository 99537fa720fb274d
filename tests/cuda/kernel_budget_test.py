"""Catches: a hot kernel that spills, uses so many registers that too few blocks fit on a
multiprocessor, no longer loads 16 bytes at a time, or divides 64-bit numbers for each element; a
kernel that computes with denormal floats, which the CPU flushes; and a line of
tests/bench/step_facts.cc whose register count is not that of its kernel.

Compiles the kernels for sm_90 as the build does, and checks the output of ptxas and the PTX. It
needs no GPU and says nothing about speed. Usage: kernel_budget_test.py NVCC ROOT
[TEST...]
"""

import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

NVCC, ROOT = sys.argv[1:3]
THREADS = 256  # per block
REGISTERS = 65536  # per multiprocessor
F32, BF16, F16 = range(3)  # Stored, with the numbers of kernels/cuda/view.h
NONE, BY_RESULT, BY_INPUT = range(3)  # Mask of channels_last_norm.cu
# 3.35 TB/s x 0.65 us of latency, over 132 multiprocessors: the bytes that each must have in flight.
BYTES_IN_FLIGHT = 16500


def stored(format):
    return f"(Stored){format}"


class Budget:
    """`kernel`: the name that c++filt prints, without namespaces. `blocks`: the blocks that must
    fit on a multiprocessor. `loads`: the 16-byte loads that a thread issues before it uses the
    first. `once`: further loads, of the values of a channel."""

    def __init__(self, kernel, blocks, loads, once=0):
        self.kernel, self.blocks, self.loads, self.once = kernel, blocks, loads, once


class GeneralBudget:
    """A kernel that reads every format and selects it at each load: four elements are 16 bytes in
    F32 and 8 bytes in 16 bits. `vectors`: the least number of 16-byte loads in its code."""

    def __init__(self, kernel, blocks, vectors, spilled=0):
        self.kernel, self.blocks, self.vectors, self.spilled = kernel, blocks, vectors, spilled


def general_budgets():
    """The budgets by source file: the resources that each kernel had when the budget was set."""
    norm, loss, in_place, attention = [], [], [], []
    for drops in ("false", "true"):
        # One variant has a warp for each row, the other a block for each row (long or few rows).
        norm.append(GeneralBudget(f"forward<false, 4, {drops}>", 4, 4))
        norm.append(GeneralBudget(f"forward<true, 4, {drops}>", 6, 4))
        norm.append(GeneralBudget(f"backward<false, 4, {drops}>", 4, 4))
        norm.append(GeneralBudget(f"backward<true, 4, {drops}>", 4, 4))
        # All loads of a row are issued before the first is used, so that two blocks of 256 threads,
        # or four of 128, have 24 KiB in flight with the 768 elements of GPT-2. A dropout needs more.
        for packs in (2, 4, 6):
            blocks = 1 if drops == "true" and packs > 2 else 2
            norm.append(GeneralBudget(f"backward_with_sums<false, {packs}, {drops}>", blocks, 2 * packs))
            norm.append(GeneralBudget(f"backward_with_sums<true, {packs}, {drops}>", 2, 2 * packs))
    norm.append(GeneralBudget("parameter_parts", 6, 0))  # neighbouring columns, one a thread
    for block in ("false", "true"):
        loss.append(GeneralBudget(f"xent_rows<{block}, 4>", 6, 2))
        loss.append(GeneralBudget(f"xent_gradient<{block}, 4>", 5, 1))
        in_place.append(GeneralBudget(f"xent_rows_in_place<{block}, 4>", 6, 2))
    loss.append(GeneralBudget("xent_in_one_block", 5, 0))
    # A row of scores is in shared memory: two blocks of 512 threads fit on a multiprocessor in 16
    # bits, one in F32. All loads of a pack are issued before the first is used.
    in_place.append(GeneralBudget(f"xent_kept_rows<{stored(BF16)}>", 4, 4))
    in_place.append(GeneralBudget(f"xent_kept_rows<{stored(F32)}>", 2, 8))
    # Tiles are in shared memory and registers: two blocks fit if a head has at most 64 columns.
    for chunks, columns in ((1, 2), (1, 4), (2, 4), (4, 4)):
        tiles = f"_tiles<{chunks}, {columns}, false>"
        blocks = 2 if chunks == 1 else 1
        attention.append(GeneralBudget(f"forward{tiles}", blocks, 3))
        attention.append(GeneralBudget(f"query_gradient{tiles}", blocks, 5))
        # For narrow heads the kernel spills five registers once, so that a second block fits.
        spilled = 40 if columns == 2 else 0
        attention.append(GeneralBudget(f"key_gradient{tiles}", blocks, 6, spilled))
    return {
        "optimizer.cu": [
            GeneralBudget("update_one<SgdUpdate>", 6, 3),
            GeneralBudget("update_chunks<SgdUpdate>", 8, 3),
            GeneralBudget("update_one<AdamUpdate>", 3, 4),
            GeneralBudget("update_chunks<AdamUpdate>", 5, 4),
            GeneralBudget("update_one<LionUpdate>", 5, 3),
            GeneralBudget("update_one<RmspropUpdate>", 5, 5),
            GeneralBudget("update_one<MovingAverageUpdate>", 8, 2),
            GeneralBudget("update_one<GradientAccumulation>", 8, 2),
            GeneralBudget("update_one<GradientClipping>", 8, 1),
        ],
        "layer_norm.cu": norm,
        "loss.cu": loss,
        "loss_in_place.cu": in_place,
        "attention.cu": attention,
        "bias_relu.cu": [
            GeneralBudget("add_relu<4>", 8, 1),
            GeneralBudget("reduce_slices<MaskedSums<4, true>>", 5, 2),
            GeneralBudget("reduce_slices<MaskedSums<4, false>>", 5, 2),
        ],
        "activation.cu": [
            GeneralBudget(f"{way}<{function}>", 8, loads)
            for function in ("Relu", "GeluTanh", "GeluErf")
            for way, loads in (("forward", 1), ("backward", 2))
        ],
        "column_sum.cu": [GeneralBudget("sum_parts", 8, 0)],
    }


# The lines of the step model (op and kernel as step_facts.cc names them) and the kernels whose
# registers they state. If several kernels serve an op, it is the kernel that moves most of the op's
# bytes in the measured rows.
MODELLED = {
    "optimizer.cu": {
        "SgdUpdate": "update_one<SgdUpdate>",
        "AdamUpdate": "update_one<AdamUpdate>",
        "AdamWUpdate": "update_one<AdamUpdate>",
    },
    "layer_norm.cu": {
        "LayerNormalization/forward": "forward<false, 4, false>",
        "LayerNormalizationGrad/backward_with_sums": "backward_with_sums<false, 6, false>",
        "SkipNormalization/forward": "forward<false, 4, false>",
        "SkipNormalizationGrad/backward_with_sums": "backward_with_sums<false, 6, false>",
    },
    "loss.cu": {
        "SoftmaxCrossEntropyLoss": "xent_in_one_block",
        "SoftmaxCrossEntropyLossGrad": "xent_gradient<false, 1>",
    },
    "loss_in_place.cu": {"GemmSoftmaxCrossEntropyLoss": f"xent_kept_rows<{stored(BF16)}>"},
    "bias_relu.cu": {"ReluConvGrad/backward": "reduce_slices<MaskedSums<4, true>>"},
    "activation.cu": {
        "Relu": "forward<Relu>",
        "ReluGrad": "backward<Relu>",
        "Gelu": "forward<GeluErf>",
        "GeluGrad": "backward<GeluErf>",
    },
    "column_sum.cu": {
        "GemmGrad/column_sum": "sum_parts",
        "GeluGemmGrad/column_sum": "sum_parts",
        "ReluGemmGrad/column_sum": "sum_parts",
    },
}


def modelled_registers():
    """Returns {op: {kernel's first word: registers}} as stated in step_facts.cc."""
    text = (pathlib.Path(ROOT) / "tests/bench/step_facts.cc").read_text()
    table = text[text.index("constexpr Sweep kSweeps[]") : text.index("constexpr Sweep kDefault")]
    lines = re.findall(
        r'\{"(\w+)",\s*"([^"]+)",\s*"[^"]*",\s*"[^"]*",\s*(\d+),', table, re.S
    )
    found = {}
    for op, kernel, registers in lines:
        found.setdefault(op, {})[kernel.split(" ")[0]] = int(registers)
    return found


def loads_of(tensors):
    """The number of 16-byte loads of in_flight(): in F32 an eight takes two loads, but for half as
    many pixels."""
    return tensors * (2 if tensors > 2 else 4)


def budgets():
    """The budgets by source file: the resources that each kernel had when the budget was set. A
    change that needs more states its reason."""
    norm, pool, arithmetic, convert = [], [], [], []
    for format in (F32, BF16, F16):
        s = stored(format)
        wide = 2 if format == F32 else 1  # loads for eight elements
        norm.append(Budget(f"reduce_slices<MomentsOfEight<{s}>>", 2, 4))
        for mask, tensors in ((NONE, 2), (BY_RESULT, 3), (BY_INPUT, 2)):
            name = f"{s}, (Mask){mask}"
            dx = Budget(f"differentiate_eights<{name}>", 3, loads_of(tensors), 10)
            if mask == BY_INPUT:  # the mask needs y, which is computed from further loads
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
    """Demangles names with c++filt, without result type, parameters and namespaces."""
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
    """Returns {kernel: (registers, spilled bytes, PTX)}."""
    command = [NVCC, f"-I{ROOT}", "-O3", "-DNDEBUG", "--expt-relaxed-constexpr", "-std=c++20"]
    command += ["--ftz=true"]
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
    kept = re.findall(r"\b(?:add|sub|mul|fma|div|rcp|sqrt|min|max)(?:\.r[nz])?\.f32\b", ptx.read_text())
    assert not kept, f"{source} has {kept[0]} without .ftz"
    return {
        name: (int(registers), int(stores) + int(loads), bodies[mangled])
        for name, (mangled, stores, loads, registers) in zip(
            plain([u[0] for u in used]), used, strict=True
        )
    }


class KernelBudget(unittest.TestCase):
    def check_general(self, source):
        with tempfile.TemporaryDirectory() as folder:
            kernels = compile_kernels(source, folder)
        for budget in general_budgets()[source]:
            with self.subTest(kernel=budget.kernel):
                self.assertIn(budget.kernel, kernels, sorted(kernels))
                registers, spilled, ptx = kernels[budget.kernel]
                blocks = min(REGISTERS // (THREADS * (-(-registers // 8) * 8)), 8)
                # The compiler does not know the address space of operands in a table.
                vectors = len(re.findall(r"ld(?:\.global(?:\.nc)?)?\.v4\.[fub]32", ptx))
                print(
                    f"{budget.kernel}: {registers} registers, {blocks} blocks, {spilled} B spilled, "
                    f"{vectors} loads of 16 B"
                )
                self.assertGreaterEqual(blocks, budget.blocks, "blocks on a multiprocessor")
                self.assertLessEqual(spilled, budget.spilled, "bytes spilled")
                self.assertGreaterEqual(vectors, budget.vectors, "loads of 16 bytes")
        modelled = modelled_registers()
        for line, kernel in MODELLED.get(source, {}).items():
            with self.subTest(line=line):
                op, _, sweep = line.partition("/")
                registers = modelled[op]
                said = registers[sweep] if sweep else max(registers.values())
                self.assertEqual(said, kernels[kernel][0], "registers in step_facts.cc")

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
                # A multiple, since the compiler may have duplicated a loop.
                self.assertEqual(wide % (budget.loads + budget.once), 0, "loads of 16 bytes")
                self.assertGreaterEqual(in_flight, BYTES_IN_FLIGHT, "bytes in flight")
                # reduce_slices has some of both, but only once a slice
                if not budget.kernel.startswith("reduce_slices"):
                    self.assertEqual(narrow, [], "loads of one element")
                    self.assertEqual(divisions, [], "divisions of 64-bit numbers")

    def test_direct_convolutions(self):
        """These kernels work in shared memory: blocks must fit, and 16-bit products must use tensor
        cores."""
        with tempfile.TemporaryDirectory() as folder:
            kernels = compile_kernels("direct_conv.cu", folder)
        kernels = {n: k for n, k in kernels.items() if not n.startswith("reduce_slices")}
        self.assertEqual(len(kernels), 30)  # formats of images and of operands, tile sizes
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

    def test_attention_on_tensor_cores(self):
        """Blocks of 128 threads: two fit on a multiprocessor, three in forward, if heads have at
        most 64 columns and only causal masking limits the keys. For wider heads the gradients spill, because dk and dv alone take 128
        registers."""
        spilled = {
            "tensor_forward<1, false>": 136,
            "tensor_query_gradient<2, false>": 320,
            "tensor_key_gradient<2, false>": 1600,
            # Ranges of keys need more registers than causal masking.
            "tensor_query_gradient<1, true>": 48,
            "tensor_key_gradient<1, true>": 128,
            "tensor_query_gradient<2, true>": 760,
            "tensor_key_gradient<2, true>": 2128,
        }
        with tempfile.TemporaryDirectory() as folder:
            kernels = compile_kernels("tensor_attention.cu", folder)
        self.assertEqual(len(kernels), 12)
        for name, (registers, bytes_spilled, ptx) in kernels.items():
            with self.subTest(kernel=name):
                blocks = REGISTERS // (128 * (-(-registers // 8) * 8))
                products = len(re.findall(r"mma\.sync\.aligned\.m16n8k8\.\S*tf32", ptx))
                vectors = len(re.findall(r"ld\.global(?:\.nc)?\.v4\.[fub]32", ptx))
                print(
                    f"{name}: {registers} registers, {blocks} blocks, {bytes_spilled} B spilled, "
                    f"{products} products, {vectors} loads of 16 B"
                )
                self.assertGreaterEqual(blocks, 3 if name == "tensor_forward<1, false>" else 2)
                self.assertLessEqual(bytes_spilled, spilled.get(name, 0))
                self.assertGreater(products, 0)
                self.assertGreaterEqual(vectors, 4)

    def test_optimizers(self):
        self.check_general("optimizer.cu")

    def test_layer_normalization(self):
        self.check_general("layer_norm.cu")

    def test_losses(self):
        self.check_general("loss.cu")
        self.check_general("loss_in_place.cu")

    def test_attention(self):
        self.check_general("attention.cu")

    def test_biases_with_relu(self):
        self.check_general("bias_relu.cu")

    def test_activations(self):
        self.check_general("activation.cu")

    def test_column_sums(self):
        self.check_general("column_sum.cu")

    def test_batch_normalization(self):
        self.check("channels_last_norm.cu")

    def test_pooling(self):
        self.check("pool.cu")

    def test_sums(self):
        self.check("arithmetic.cu")

    def test_casts(self):
        self.check("convert.cu")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:], verbosity=2)
