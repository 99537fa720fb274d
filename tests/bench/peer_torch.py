#!/usr/bin/env python3
"""PyTorch's side of compare_pytorch.py: trains models of bench_models.h on the CPU, and answers
each question with a JSON line.

    peer_torch.py '{"threads": 2, "flush": true}'

The argument (and OMP_WAIT_POLICY in the environment) has the settings that a process cannot change
while it runs; a question has the rest: {"model": "mlp", "batch": 128, "seconds": 1, "precision":
"fp32", "fused": true, "channels_last": false, "compile": false}. The first line printed describes
the process. With "memory" in a question, it runs three steps and answers with the largest memory of
the process, which must be a new one. An empty question, {}, frees the last model.
"""

import itertools
import json
import math
import pathlib
import sys
import time

import torch
from peer_models import ROW_LENGTH, TOKENS, WORDS, make_loss, make_model

BATCHES, TARGETS = 8, 127  # as in train_bench: labels change, so that nothing can be learned
WARM_UP_STEPS, WARM_UP_SECONDS = 3, 0.2


def flushes_denormals():
    """Returns whether every thread of the pool flushes denormal numbers: each gets a part of four million of them."""
    results = torch.full((1 << 22,), 1e-40) * 1
    share = results.count_nonzero().item() / results.numel()
    if share not in (0, 1):
        raise RuntimeError(f"{share:.0%} of the denormal numbers are kept: threads differ")
    return share == 0


def multiply_in_fp32():
    """Multiplies fp32 tensors without rounding factors to bf16 or TF32, in all libraries."""
    torch.set_float32_matmul_precision("highest")
    for ops in (torch.backends.mkldnn.matmul, torch.backends.mkldnn.conv, torch.backends.mkldnn.rnn):
        ops.fp32_precision = "ieee"


def describe():
    settings = torch.backends.mkldnn
    return {"torch": torch.__version__, "capability": torch.backends.cpu.get_cpu_capability(),
            "threads": torch.get_num_threads(), "flushes_denormals": flushes_denormals(),
            "float32_matmul_precision": torch.get_float32_matmul_precision(),
            "onednn_fp32_precision": [ops.fp32_precision for ops in (settings.matmul, settings.conv, settings.rnn)]}


class Case:
    """A model, its optimizer and its batches."""

    def __init__(self, question):
        name, batch = question["model"], question["batch"]
        torch.manual_seed(1)
        self.model, sample = make_model(name)
        layout = torch.channels_last if question["channels_last"] else torch.contiguous_format
        images = len(sample) == 3
        if images:
            self.model = self.model.to(memory_format=layout)
        vocabulary = TOKENS[name][0] if name in TOKENS else WORDS if sample == (ROW_LENGTH,) else 0
        # AdamW for transformers and text models, SGD for the others, as in bench_models.h.
        if vocabulary or name.startswith("vit"):
            self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01, weight_decay=0.0,
                                               fused=question["fused"])
        else:
            self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9, fused=question["fused"])
        shape = (batch, *sample)
        self.xs = [torch.randint(1, vocabulary, shape) if vocabulary else torch.rand(shape) for _ in range(BATCHES)]
        if images:
            self.xs = [x.contiguous(memory_format=layout) for x in self.xs]
        rows, classes = (batch * sample[0], vocabulary) if name in TOKENS else (batch, 10)
        self.ys = [torch.randint(0, classes, (rows,)) for _ in range(TARGETS)]
        loss_of, is_bf16 = make_loss(name), question["precision"] == "bf16"

        def forward(x, y):
            with torch.autocast("cpu", torch.bfloat16, enabled=is_bf16):
                return loss_of(self.model(x), x, y)

        if question["compile"]:
            torch._dynamo.reset()  # torch.compile compiles forward() only for a few cases, and
                                   # afterwards runs it uncompiled
            self.forward = torch.compile(forward)
        else:
            self.forward = forward
        self.steps = 0
        self.initial = []

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.forward(self.xs[self.steps % BATCHES], self.ys[self.steps % TARGETS])
        loss.backward()
        self.optimizer.step()
        self.steps += 1
        return loss

    def held(self):
        return itertools.chain(self.model.parameters(), self.model.buffers())

    def warm_up(self):
        """Runs until everything is warm; afterwards put_back() can restore the weights."""
        self.initial = [tensor.detach().clone() for tensor in self.held()]
        start = time.perf_counter()
        while self.steps < WARM_UP_STEPS or time.perf_counter() - start < WARM_UP_SECONDS:
            self.step()

    @torch.no_grad()
    def put_back(self):
        """Restores the initial weights and optimizer state in place."""
        for tensor, initial in zip(self.held(), self.initial):
            tensor.copy_(initial)
        for state in self.optimizer.state.values():
            for value in state.values():
                if torch.is_tensor(value):
                    value.zero_()
        self.steps = 0

    def run(self, seconds):
        self.put_back()
        start = time.perf_counter()
        while True:
            loss = self.step()
            elapsed = time.perf_counter() - start
            if elapsed >= seconds:
                loss = loss.item()
                return {"samples_per_second": self.steps * len(self.xs[0]) / elapsed, "steps": self.steps,
                        "loss": loss if math.isfinite(loss) else None}


def read_peak_bytes():
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024


def measure_memory(question):
    before = read_peak_bytes()
    case = Case(question)
    for _ in range(3):
        case.step()
    return {"before_bytes": before, "peak_bytes": read_peak_bytes()}


def serve():
    case, case_of = None, None
    for line in sys.stdin:
        question = json.loads(line)
        seconds = question.pop("seconds", None)
        try:
            if not question:
                case, case_of, answer = None, None, {}
            elif question.pop("memory", False):
                answer = measure_memory(question)
            else:
                if question != case_of:
                    case = None  # one model in memory at a time
                    case = Case(question)
                    case.warm_up()
                    case_of = question
                answer = case.run(seconds)
        except Exception as e:  # a setting that fails for a model is a trial with a reason
            case_of = None
            answer = {"error": f"{type(e).__name__}: {e}".splitlines()[0][:200]}
        print(json.dumps(answer), flush=True)


def main():
    setting = json.loads(sys.argv[1])
    # Set before anything runs in parallel, since threads created later inherit it.
    torch.set_flush_denormal(setting["flush"])
    torch.set_num_threads(setting["threads"])
    multiply_in_fp32()
    facts = describe()
    if facts["flushes_denormals"] != setting["flush"]:
        raise RuntimeError(f"flush_denormal is {setting['flush']}, but denormal numbers say {facts}")
    if "--describe" in sys.argv:  # with ONEDNN_VERBOSE, oneDNN prints what it uses
        torch.nn.functional.conv2d(torch.rand(8, 64, 16, 16), torch.rand(64, 64, 3, 3))
        facts["build"] = torch.__config__.show()
        print(json.dumps(facts))
        return
    print(json.dumps(facts), flush=True)
    serve()


if __name__ == "__main__":
    main()
