#!/usr/bin/env python3
"""Writes recipes.json: PyTorch's results for the runs in tests/engine/recipes_golden_test.cc.

    python3 -m venv venv && venv/bin/pip install torch numpy
    venv/bin/python tests/golden/make_recipes_golden.py

Optimizers, clipping, accumulation, parameter groups, low-rank additions and the moving average
train a small MLP for 50 steps; schedules are listed by step; metrics are computed in numpy by
scikit-learn's definitions. Initial weights and batches are Philox numbers (philox.py), so the file
has only results.

Two optimizers differ from torch.optim. It has no Lion, so the script implements program 2 of its
paper. Its Muon iterates in bfloat16; here the same iteration runs in float32, as in the engine.
"""

import json
import math
import pathlib
import sys

import numpy as np
import torch
from philox import philox_u32, stream_of, uniform01
from reference_models import initialize
from torch import nn

SEED = 20240602
STEPS = 50
BATCH = 24
FEATURES = 12
CLASSES = 4
HIDDEN = [16, 20]


class LoraLinear(nn.Linear):
    """W x + b + alpha / rank * B A x (Hu et al. 2021); A is drawn as nn.Linear's weight, B is 0."""

    def __init__(self, inputs, outputs, lora):
        super().__init__(inputs, outputs)
        self.scale = lora["alpha"] / lora["rank"]
        self.lora_A = nn.Linear(inputs, lora["rank"], bias=False)
        self.lora_B = nn.Linear(lora["rank"], outputs, bias=False)
        self.requires_grad_(False)
        self.lora_A.requires_grad_(True)
        self.lora_B.requires_grad_(True)

    def forward(self, x):
        return super().forward(x) + self.scale * self.lora_B(self.lora_A(x))


def make_model(lora=None):
    model = nn.Sequential()
    features = FEATURES
    sizes = HIDDEN + [CLASSES]
    for i, units in enumerate(sizes):
        adapted = lora is not None and f"fc{i + 1}" in lora["targets"]
        linear = LoraLinear(features, units, lora) if adapted else nn.Linear(features, units)
        model.add_module(f"fc{i + 1}", linear)
        if i + 1 < len(sizes):
            model.add_module(f"relu{i + 1}", nn.ReLU())
        features = units
    initialize(model, SEED)
    for module in model.modules():
        if isinstance(module, LoraLinear):
            nn.init.zeros_(module.lora_B.weight)
    return model


def batch(step):
    """The label is the index of the largest of four sums of features, which a model can learn."""
    u = uniform01(SEED, stream_of("recipes/x"), step, BATCH * FEATURES)
    x = (2 * u - 1).astype(np.float32).reshape(BATCH, FEATURES)
    label = philox_u32(SEED, stream_of("recipes/label"), step, BATCH) % CLASSES
    for n in range(BATCH):
        x[n, label[n] * 3:label[n] * 3 + 3] += np.float32(0.75)
    return torch.from_numpy(x), torch.from_numpy(label.astype(np.int64))


class Lion(torch.optim.Optimizer):
    def __init__(self, params, lr, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_(torch.sign(beta1 * m + (1 - beta1) * p.grad), alpha=-group["lr"])
                m.mul_(beta2).add_(p.grad, alpha=1 - beta2)


def float32_newton_schulz(grad, coefficients, steps, eps):
    a, b, c = coefficients
    x = grad.clone()
    tall = grad.size(0) > grad.size(1)
    if tall:
        x = x.T
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if tall else x


def make_optimizers(model, o):
    """Creates the optimizers for `o`, which has the fields of a job spec."""
    kind = o["type"]
    lr = o["learning_rate"]
    decay = o.get("weight_decay", 0.0)
    betas = (o.get("beta1", 0.9), o.get("beta2", 0.99 if kind == "lion" else 0.999))
    params = [p for p in model.parameters() if p.requires_grad]
    if kind == "sgd":
        return [torch.optim.SGD(params, lr=lr, momentum=o.get("momentum", 0),
                                nesterov=o.get("nesterov", False), weight_decay=decay)]
    if kind == "adam":
        return [torch.optim.Adam(params, lr=lr, betas=betas, weight_decay=decay)]
    if kind == "adamw":
        return [torch.optim.AdamW(params, lr=lr, betas=betas, weight_decay=decay)]
    if kind == "rmsprop":
        return [torch.optim.RMSprop(params, lr=lr, alpha=o.get("alpha", 0.99),
                                    momentum=o.get("momentum", 0),
                                    centered=o.get("centered", False), weight_decay=decay)]
    if kind == "lion":
        return [Lion(params, lr, betas, decay)]
    if kind == "adafactor":
        return [torch.optim.Adafactor(params, lr=lr, weight_decay=decay)]
    # Muon updates the matrices of hidden layers, AdamW the last layer and the biases.
    hidden = [p for n, p in model.named_parameters()
              if p.ndim == 2 and not n.startswith(f"fc{len(HIDDEN) + 1}.")]
    others = [p for p in params if all(p is not h for h in hidden)]
    torch.optim._muon._zeropower_via_newtonschulz = float32_newton_schulz
    return [
        torch.optim.Muon(hidden, lr=lr, momentum=o.get("momentum", 0.95),
                         nesterov=o.get("nesterov", True), weight_decay=decay,
                         adjust_lr_fn=o.get("adjust_rate")),
        torch.optim.AdamW(others, lr=o.get("fallback_learning_rate", lr), betas=betas,
                          weight_decay=decay),
    ]


def train(case):
    recipe = case.get("recipe", {})
    model = make_model(recipe.get("lora"))
    if "groups" in case:
        optimizers = [case["groups"](model)]
    else:
        optimizers = make_optimizers(model, case["optimizer"])
    average = None
    if "ema_decay" in recipe:
        average = torch.optim.swa_utils.AveragedModel(
            model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(recipe["ema_decay"]))
    losses, norms = [], []
    parts = recipe.get("accumulate_steps", 1)
    for step in range(STEPS):
        x, y = batch(step)
        for o in optimizers:
            o.zero_grad()
        total = 0.0
        for xs, ys in zip(x.chunk(parts), y.chunk(parts)):
            loss = nn.functional.cross_entropy(model(xs), ys)
            (loss / parts).backward()
            total += loss.item() / parts
        params = [p for p in model.parameters() if p.grad is not None]
        if "clip_norm" in recipe:
            norms.append(torch.nn.utils.clip_grad_norm_(params, recipe["clip_norm"]).item())
        if "clip_value" in recipe:
            torch.nn.utils.clip_grad_value_(params, recipe["clip_value"])
        for o in optimizers:
            o.step()
        if average is not None:
            average.update_parameters(model)
        losses.append(total)
    trained = average.module if average is not None else model
    result = {"losses": losses, "weights": {}}
    if norms:
        result["norms"] = norms
    for name, p in trained.named_parameters():
        values = p.detach().numpy().astype(np.float64).reshape(-1)
        index = np.linspace(0, values.size - 1, min(5, values.size)).astype(int)
        result["weights"][name] = {"norm": float(np.linalg.norm(values)),
                                   "index": [int(i) for i in index],
                                   "value": [float(values[i]) for i in index]}
    return result


def frozen_and_scaled(model):
    """Returns PyTorch's parameter groups for the case "groups" below."""
    groups = []
    for name, p in model.named_parameters():
        if name.startswith("fc1."):
            p.requires_grad_(False)
            continue
        groups.append({"params": [p], "lr": 0.01 * (3.0 if name.startswith("fc3.") else 1.0),
                       "weight_decay": 0.1 if name.endswith(".weight") else 0.0})
    return torch.optim.AdamW(groups)


SGD = {"type": "sgd", "learning_rate": 0.1, "momentum": 0.9}
CASES = [
    {"name": "sgd", "optimizer": {**SGD, "nesterov": True, "weight_decay": 0.01}},
    {"name": "adam", "optimizer": {"type": "adam", "learning_rate": 0.01, "weight_decay": 0.01}},
    {"name": "adamw", "optimizer": {"type": "adamw", "learning_rate": 0.01, "weight_decay": 0.1}},
    {"name": "rmsprop", "optimizer": {"type": "rmsprop", "learning_rate": 0.005}},
    {"name": "rmsprop_momentum", "optimizer": {"type": "rmsprop", "learning_rate": 0.001,
                                               "momentum": 0.9, "weight_decay": 0.01}},
    {"name": "rmsprop_centered", "optimizer": {"type": "rmsprop", "learning_rate": 0.001,
                                               "centered": True, "alpha": 0.9, "momentum": 0.5}},
    {"name": "lion", "optimizer": {"type": "lion", "learning_rate": 0.003, "weight_decay": 0.1}},
    {"name": "adafactor", "optimizer": {"type": "adafactor", "learning_rate": 0.05,
                                        "weight_decay": 0.01}},
    {"name": "muon", "optimizer": {"type": "muon", "learning_rate": 0.02, "weight_decay": 0.1,
                                   "fallback_learning_rate": 0.005}},
    {"name": "muon_adamw_rms", "optimizer": {"type": "muon", "learning_rate": 0.01,
                                             "weight_decay": 0.1, "nesterov": False,
                                             "adjust_rate": "match_rms_adamw"}},
    {"name": "clip_norm", "optimizer": SGD, "recipe": {"clip_norm": 0.25}},
    {"name": "clip_value", "optimizer": SGD, "recipe": {"clip_value": 0.02}},
    {"name": "accumulate", "optimizer": {"type": "adamw", "learning_rate": 0.008,
                                         "weight_decay": 0.1},
     "recipe": {"accumulate_steps": 4, "clip_norm": 0.5}},
    {"name": "ema", "optimizer": SGD, "recipe": {"ema_decay": 0.9}},
    {"name": "groups", "groups": frozen_and_scaled,
     "optimizer": {"type": "adamw", "learning_rate": 0.01, "weight_decay": 0.1,
                   "weight_decay_on": "matrices"},
     "recipe": {"parameter_groups": [{"match": "fc1.*", "freeze": True},
                                     {"match": "fc3.*", "learning_rate_factor": 3.0}]}},
    {"name": "lora",
     "optimizer": {"type": "adamw", "learning_rate": 0.01, "weight_decay": 0.1},
     "recipe": {"lora": {"rank": 4, "alpha": 8.0, "targets": ["fc1", "fc2"]},
                "parameter_groups": [{"match": "fc3.*", "freeze": False}]}},
]


def schedules():
    """Returns the learning rates of 40 steps by torch.optim.lr_scheduler; a warm-up is a LinearLR
    before the schedule."""
    from torch.optim import lr_scheduler as s

    total, warmup, base, least = 40, 6, 0.2, 0.02

    def after(make, steps):
        optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=base)
        first = s.LinearLR(optimizer, start_factor=1 / (steps + 1), total_iters=steps)
        return optimizer, s.SequentialLR(optimizer, [first, make(optimizer)], milestones=[steps])

    def rates(make, steps=0):
        if steps > 0:
            optimizer, scheduler = after(make, steps)
        else:
            optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=base)
            scheduler = make(optimizer)
        values = []
        for _ in range(total):
            values.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            scheduler.step()
        return values

    last = total - 1
    out = []

    def case(spec, make, steps=0):
        out.append({"schedule": {**spec, "warmup_steps": steps}, "rates": rates(make, steps)})

    case({"type": "constant"}, lambda o: s.ConstantLR(o, factor=1.0))
    case({"type": "constant"}, lambda o: s.ConstantLR(o, factor=1.0), warmup)
    case({"type": "step", "step_size": 7, "gamma": 0.5}, lambda o: s.StepLR(o, 7, 0.5))
    case({"type": "step", "step_size": 7, "gamma": 0.5}, lambda o: s.StepLR(o, 7, 0.5), warmup)
    case({"type": "multi_step", "milestones": [5, 20, 21], "gamma": 0.3},
         lambda o: s.MultiStepLR(o, [5, 20, 21], 0.3))
    case({"type": "exponential", "gamma": 0.9}, lambda o: s.ExponentialLR(o, 0.9))
    case({"type": "exponential", "gamma": 0.9}, lambda o: s.ExponentialLR(o, 0.9), warmup)
    case({"type": "cosine", "min_learning_rate": least},
         lambda o: s.CosineAnnealingLR(o, last, least))
    case({"type": "cosine", "min_learning_rate": least},
         lambda o: s.CosineAnnealingLR(o, last - warmup, least), warmup)
    case({"type": "linear", "min_learning_rate": least},
         lambda o: s.LinearLR(o, 1.0, least / base, last))
    case({"type": "linear"}, lambda o: s.LinearLR(o, 1.0, 0.0, last))
    case({"type": "polynomial", "power": 2.5}, lambda o: s.PolynomialLR(o, last, 2.5))
    case({"type": "one_cycle"}, lambda o: s.OneCycleLR(o, base, total, cycle_momentum=False))
    case({"type": "one_cycle", "pct_start": 0.5, "div_factor": 10.0, "final_div_factor": 100.0},
         lambda o: s.OneCycleLR(o, base, total, pct_start=0.5, div_factor=10.0,
                                final_div_factor=100.0, cycle_momentum=False))
    return {"base": base, "steps": total, "cases": out}


def area_under_curve(score, positive):
    """Returns the share of pairs in which the positive row has the higher score; equal scores count
    half.
    """
    p, n = score[positive], score[~positive]
    return float(((p[:, None] > n).sum() + 0.5 * (p[:, None] == n).sum()) / (p.size * n.size))


def class_metrics(rows, classes):
    logits = np.round(uniform01(SEED, stream_of(f"metrics/{classes}"), 0, rows * classes) * 4, 1)
    logits = logits.reshape(rows, classes).astype(np.float32)
    labels = (philox_u32(SEED, stream_of(f"metrics/label{classes}"), 0, rows) %
              (classes - (1 if classes > 2 else 0))).astype(np.int64)  # the last class has no row
    z = logits.astype(np.float64)
    log_p = z - np.log(np.exp(z).sum(1, keepdims=True))
    predicted = logits.argmax(1)
    confusion = np.zeros((classes, classes), dtype=int)
    for i, j in zip(labels, predicted):
        confusion[i, j] += 1
    hits = confusion.diagonal()
    seen = confusion.sum(0) + confusion.sum(1) > 0
    with np.errstate(invalid="ignore", divide="ignore"):
        precision = np.nan_to_num(hits / confusion.sum(0))
        recall = np.nan_to_num(hits / confusion.sum(1))
        f1 = np.nan_to_num(2 * hits / (confusion.sum(0) + confusion.sum(1)))
    accuracy = float(hits.sum() / rows)
    order = np.argsort(-z, axis=1, kind="stable")
    top2 = float(np.mean([labels[i] in order[i, :2] for i in range(rows)]))
    if classes == 2:
        auc = area_under_curve(z[:, 1] - z[:, 0], labels == 1)
    else:
        areas = [area_under_curve(np.exp(log_p[:, k]), labels == k) for k in range(classes)
                 if 0 < (labels == k).sum() < rows]
        auc = float(np.mean(areas))
    values = {
        "loss": float(-log_p[np.arange(rows), labels].mean()), "accuracy": accuracy,
        "precision_macro": float(precision[seen].mean()), "precision_micro": accuracy,
        "recall_macro": float(recall[seen].mean()), "recall_micro": accuracy,
        "f1_macro": float(f1[seen].mean()), "f1_micro": accuracy, "roc_auc": auc,
    }
    if classes > 2:
        values["top_2_accuracy"] = top2
    return {"logits": [[float(f"{v:.1f}") for v in row] for row in logits],
            "labels": labels.tolist(), "confusion": confusion.tolist(), "values": values}


def number_metrics(rows):
    predicted = uniform01(SEED, stream_of("metrics/predicted"), 0, rows) * 3
    target = predicted + uniform01(SEED, stream_of("metrics/noise"), 0, rows) - 0.3
    error = predicted - target
    return {"predicted": predicted.tolist(), "target": target.tolist(), "values": {
        "loss": float((error**2).mean()), "mae": float(np.abs(error).mean()),
        "rmse": float(math.sqrt((error**2).mean())),
        "r2": float(1 - (error**2).sum() / ((target - target.mean())**2).sum())}}


def token_metrics(rows, vocabulary):
    logits = np.round(uniform01(SEED, stream_of("metrics/tokens"), 0, rows * vocabulary) * 4, 1)
    logits = logits.reshape(rows, vocabulary).astype(np.float32)
    labels = (philox_u32(SEED, stream_of("metrics/next"), 0, rows) % vocabulary).astype(np.int64)
    length = (labels % 3 + 1).tolist()  # bytes of each token
    loss = torch.nn.functional.cross_entropy(torch.from_numpy(logits.astype(np.float64)),
                                             torch.from_numpy(labels)).item()
    return {"logits": [[float(f"{v:.1f}") for v in row] for row in logits],
            "labels": labels.tolist(), "bytes": length, "values": {
        "loss": loss, "perplexity": math.exp(loss),
        "bits_per_byte": loss * rows / math.log(2) / sum(length)}}


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    out = {"torch": torch.__version__, "seed": SEED, "batch": BATCH, "features": FEATURES,
           "classes": CLASSES, "hidden": HIDDEN, "training": [], "schedules": schedules(),
           "metrics": {"classes": [class_metrics(41, 5), class_metrics(37, 2)],
                       "numbers": number_metrics(29), "tokens": token_metrics(23, 7)}}
    for case in CASES:
        result = train(case)
        print(f"{case['name']}: loss {result['losses'][0]:.4f} -> {result['losses'][-1]:.4f}")
        out["training"].append({"name": case["name"], "optimizer": case["optimizer"],
                                "recipe": case.get("recipe", {}), **result})

    def shorten(v):  # nine significant digits represent a float32 exactly
        if isinstance(v, float):
            return float(f"{v:.9g}")
        if isinstance(v, dict):
            return {k: shorten(x) for k, x in v.items()}
        return [shorten(x) for x in v] if isinstance(v, list) else v

    path = pathlib.Path(__file__).with_name("recipes.json")
    text = json.dumps(shorten(out), separators=(",", ":"))
    path.write_text(text.replace('{"name"', '\n{"name"').replace('{"schedule"', '\n{"schedule"') +
                    "\n")
    print(f"{path.name}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    sys.exit(main())
