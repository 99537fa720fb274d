#!/usr/bin/env python3
"""Writes augmentation.json: the results of torchvision's transforms of small images with given
parameters.

    python3 tests/golden/make_augmentation_golden.py     # needs torch and torchvision
"""

import json
import pathlib

import torch
import torchvision
from torchvision.transforms import InterpolationMode
from torchvision.transforms import functional as F

HERE = pathlib.Path(__file__).resolve().parent
BILINEAR = InterpolationMode.BILINEAR


def image(channels, height, width):
    """Returns integers from 0 to 255, including some gray and some saturated pixels."""
    i = torch.arange(channels * height * width)
    pixels = (i * i * 7 + i * 31 + 13) % 256
    pixels = pixels.reshape(channels, height, width).float()
    pixels[:, 0, 0] = 120
    pixels[:, -1, -1] = 255
    return pixels


def numbers(tensor):
    return [round(float(x), 5) for x in tensor.flatten()]


def adjusted(function, pixels, value):
    """torchvision expects float pixels in [0, 1]."""
    return function(pixels / 255, value) * 255


cases = []


def add(name, pixels, result, **parameters):
    cases.append({"name": name, "shape": list(pixels.shape), "image": [int(x) for x in pixels.flatten()],
                  "parameters": parameters, "result": numbers(result)})


colour, grey = image(3, 5, 7), image(1, 6, 4)
for pixels in (colour, grey):
    add("flip_horizontally", pixels, F.hflip(pixels))
    add("flip_vertically", pixels, F.vflip(pixels))
    for angle in (30.0, -90.0, 180.0, 7.5):
        add("rotate", pixels, F.rotate(pixels, angle, BILINEAR), degrees=angle)
    for top, left, height, width in ((0, 0, 3, 2), (1, 2, 4, 2), (0, 0, pixels.shape[1], pixels.shape[2]), (2, 1, 1, 1)):
        result = F.resized_crop(pixels, top, left, height, width, list(pixels.shape[1:]), BILINEAR, antialias=False)
        add("resized_crop", pixels, result, box=[top, left, height, width])
    for up, left in ((0, 0), (2, -1), (-3, 2), (-1, -2)):
        padded = F.pad(pixels, [4, 4, 4, 4])
        add("shift", pixels, F.crop(padded, 4 + up, 4 + left, *pixels.shape[1:]), up=up, left=left)
    for value in (0.0, 0.4, 1.0, 1.9):
        add("adjust_brightness", pixels, adjusted(F.adjust_brightness, pixels, value), value=value)
        add("adjust_contrast", pixels, adjusted(F.adjust_contrast, pixels, value), value=value)
for value in (0.0, 0.3, 1.0, 2.5):
    add("adjust_saturation", colour, adjusted(F.adjust_saturation, colour, value), value=value)
for value in (-0.5, -0.13, 0.0, 0.25, 0.5):
    add("adjust_hue", colour, adjusted(F.adjust_hue, colour, value), value=value)

versions = {"torch": torch.__version__.split("+")[0], "torchvision": torchvision.__version__.split("+")[0]}
text = ",\n".join(json.dumps(case) for case in cases)
(HERE / "augmentation.json").write_text('{"versions": %s, "cases": [\n%s\n]}\n' % (json.dumps(versions), text))
