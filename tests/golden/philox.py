"""The engine's random numbers in numpy: Philox4x32-10 as in kernels/math/philox.h.

Element i of a tensor is a function of (seed, stream, step, i), so golden scripts compute the same
initial weights and batches as the engine without exchanging files.
"""

import numpy as np


def stream_of(name):
    """Returns the 32-bit FNV-1a hash, as in src/base/philox.h."""
    h = 2166136261
    for byte in name.encode():
        h = ((h ^ byte) * 16777619) & 0xFFFFFFFF
    return h


def philox_u32(seed, stream, step, count):
    """Returns the first `count` 32-bit numbers of a stream."""
    blocks = (count + 3) // 4
    block = np.arange(blocks, dtype=np.uint64)
    low = np.uint64(0xFFFFFFFF)
    c0 = block & low
    c1 = block >> np.uint64(32)
    c2 = np.full(blocks, (step ^ (step >> 32)) & 0xFFFFFFFF, dtype=np.uint64)
    c3 = np.full(blocks, stream, dtype=np.uint64)
    key0, key1 = seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF
    for _ in range(10):
        p0 = np.uint64(0xD2511F53) * c0
        p1 = np.uint64(0xCD9E8D57) * c2
        c0, c1, c2, c3 = (
            (p1 >> np.uint64(32)) ^ c1 ^ np.uint64(key0),
            p1 & low,
            (p0 >> np.uint64(32)) ^ c3 ^ np.uint64(key1),
            p0 & low,
        )
        key0 = (key0 + 0x9E3779B9) & 0xFFFFFFFF
        key1 = (key1 + 0xBB67AE85) & 0xFFFFFFFF
    return np.stack([c0, c1, c2, c3], axis=1).reshape(-1)[:count].astype(np.uint32)


def uniform01(seed, stream, step, count):
    """Returns uniform numbers in [0, 1) from the top 24 bits, exact in float and double."""
    return (philox_u32(seed, stream, step, count) >> np.uint32(8)).astype(np.float64) * 2.0**-24


def initial_uniform(seed, name, shape, fan_in):
    """Returns PyTorch's default weights of Linear and Conv, drawn as in src/train/initialize.cc."""
    bound = 1.0 / np.sqrt(float(fan_in))
    count = int(np.prod(shape))
    u = uniform01(seed, stream_of(name), 0, count)
    return (-bound + (bound - -bound) * u).astype(np.float32).reshape(shape)


def initial_normal(seed, name, shape, deviation):
    """Returns normal numbers by the Box-Muller transform of pairs of draws, as in
    src/train/initialize.cc.
    """
    count = int(np.prod(shape))
    pairs = uniform01(seed, stream_of(name), 0, 2 * count).reshape(count, 2)
    z = np.sqrt(-2 * np.log(1 - pairs[:, 0])) * np.cos(2 * np.pi * pairs[:, 1])
    return (deviation * z).astype(np.float32).reshape(shape)
