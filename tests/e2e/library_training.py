"""Trains a network of torchvision, timm or transformers from one file of weights, in PyTorch and through a daemon, on the
same pixels or tokens in the same batches, for test_library_weights.py and tests/bench/library_weights.py. Needs torch,
numpy and Pillow."""

import importlib.util
import pathlib
import sys

import numpy as np
import torch
from harness import SOURCE
from PIL import Image

sys.path.append(str(SOURCE / "tests/golden"))
from philox import philox_u32, stream_of  # noqa: E402

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet, as torchvision uses them


def torch_weights():
    """Returns the module client/python/src/trainyard/torch_weights.py, which needs no installation."""
    path = SOURCE / "client/python/src/trainyard/torch_weights.py"
    spec = importlib.util.spec_from_file_location("torch_weights", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["torch_weights"] = module  # its dataclasses look for it there
    spec.loader.exec_module(module)
    return module


def save(model, path):
    """Writes the file that the network's library writes, with the library's own names."""
    if hasattr(model, "save_pretrained"):
        model.save_pretrained(path.parent / path.stem)
        (path.parent / path.stem / "model.safetensors").rename(path)
    else:
        torch_weights().write_weights(path, model.state_dict())


def draw_image(draw, side, kind):
    """Returns an image [side, side, 3]: a gradient, stripes, a disk or blocks by its class, with noise of its own."""
    y, x = np.mgrid[0:side, 0:side] / side
    angle, phase = draw.uniform(0, np.pi), draw.uniform(0, 1)
    along = x * np.cos(angle) + y * np.sin(angle)
    pattern = (along, np.sin(40 * (along + phase)) / 2 + 0.5, np.hypot(x - phase, y - 0.5) < 0.3,
               (np.floor(8 * x) + np.floor(8 * y)) % 2)[kind]
    colour, background = draw.uniform(0, 255, 3), draw.uniform(0, 255, 3)
    image = background + pattern[..., None] * (colour - background) + draw.normal(0, 20, (side, side, 3))
    return image.clip(0, 255).round().astype(np.uint8)


def write_images(folder, count, side, classes=4):
    """Writes PNG files in a folder for each class, and returns pixels [N, 3, side, side] and classes in the order of
    the dataset's rows: by class, then by name."""
    draw = np.random.default_rng(20261129)
    images, labels = [], np.arange(count) * classes // count
    for i, label in enumerate(labels):
        path = pathlib.Path(folder) / f"class{label}" / f"{i:05}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        images.append(draw_image(draw, side, label % 4))
        Image.fromarray(images[-1]).save(path)
    return np.stack(images).transpose(0, 3, 1, 2), labels


def normalized(pixels, scale):
    mean, deviation = (MEAN, DEVIATION) if scale == "imagenet" else ((0.5,) * 3, (0.5,) * 3)
    mean, deviation = (np.array(values)[:, None, None] for values in (mean, deviation))
    return torch.from_numpy(((pixels / 255 - mean) / deviation).astype(np.float32))


def shuffled(rows, seed, epoch):
    """Returns the order of the rows in an epoch: sorted by random 64-bit keys, as in src/base/philox.cc."""
    r = philox_u32(seed, stream_of("shuffle"), epoch, (rows + 1) // 2 * 4).astype(np.uint64)
    return np.argsort((r[0::2] << np.uint64(32) | r[1::2])[:rows], kind="stable")


def batch_rows(rows, batch, seed, step):
    epoch, first = divmod(step, rows // batch)
    return shuffled(rows, seed, epoch)[first * batch:(first + 1) * batch]


def losses_of_torch(model, batches, rate, momentum, dtype=torch.float32):
    """Trains the model on the batches, pairs of input and classes, and returns the losses."""
    model.to(dtype).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=momentum)
    losses = []
    for x, y in batches:
        optimizer.zero_grad(set_to_none=True)
        scores = model(x.to(dtype) if x.is_floating_point() else x)
        scores = getattr(scores, "logits", scores)
        loss = torch.nn.functional.cross_entropy(scores.flatten(0, -2), y.flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def losses_of_job(daemon, name):
    losses = {}
    for event in daemon.events(name):
        for series in event.get("metrics", {}).get("series", []):
            if series["key"] == "train/loss":
                losses.update(zip(map(int, series["steps"]), series["values"]))
    return [losses[step] for step in sorted(losses)]


def difference(ours, theirs):
    """Returns the largest difference of two losses, relative to PyTorch's."""
    if len(ours) != len(theirs):
        raise AssertionError(f"{len(ours)} losses, PyTorch {len(theirs)}")
    return max(abs(a - b) / abs(b) for a, b in zip(ours, theirs))
