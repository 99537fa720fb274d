"""gpt2, vit_* and transformer_classifier in PyTorch, with the engine's names and initial weights.

Parameters have the engine's names, so that initialize() draws the same values for them. Attention is
torch.nn.functional.scaled_dot_product_attention.
"""

import math

import numpy as np
import torch
import torch.nn.functional as F
from philox import initial_normal, initial_uniform, philox_u32, stream_of, uniform01
from torch import nn

WEIGHT_STD = 0.02
GPT_SIZES = {"nano": (3, 3, 48), "mini": (6, 6, 384), "small": (12, 12, 768),
             "medium": (24, 16, 1024), "large": (36, 20, 1280), "xl": (48, 25, 1600)}
VIT_SIZES = {"vit_tiny": (192, 3), "vit_small": (384, 6), "vit_base": (768, 12)}


class PositionEmbedding(nn.Module):
    def __init__(self, length, width, class_token=False):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(length + class_token, width))
        if class_token:
            self.class_token = nn.Parameter(torch.zeros(1, width))

    def forward(self, x):
        if hasattr(self, "class_token"):
            x = torch.cat([self.class_token.expand(len(x), 1, -1), x], dim=1)
        return x + self.weight


class Transformer(nn.Module):
    """The blocks that all three models share; layers of block i are called h<i>_..."""

    def __init__(self, depth, width, heads, hidden, causal=False, gelu="none", epsilon=1e-5):
        super().__init__()
        self.depth, self.heads, self.causal, self.gelu = depth, heads, causal, gelu
        for i in range(depth):
            self.add_module(f"h{i}_ln_1", nn.LayerNorm(width, eps=epsilon))
            self.add_module(f"h{i}_attn_qkv", nn.Linear(width, 3 * width))
            self.add_module(f"h{i}_attn_proj", nn.Linear(width, width))
            self.add_module(f"h{i}_ln_2", nn.LayerNorm(width, eps=epsilon))
            self.add_module(f"h{i}_mlp_fc", nn.Linear(width, hidden))
            self.add_module(f"h{i}_mlp_proj", nn.Linear(hidden, width))

    def attend(self, qkv, mask):
        n, t, _ = qkv.shape
        q, k, v = qkv.view(n, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=self.causal)
        return y.transpose(1, 2).reshape(n, t, -1)

    def blocks(self, x, mask=None):
        """`mask`: which keys take part, [N, 1, 1, T]."""
        for i in range(self.depth):
            layer = lambda name: getattr(self, f"h{i}_{name}")
            x = x + layer("attn_proj")(self.attend(layer("attn_qkv")(layer("ln_1")(x)), mask))
            y = F.gelu(layer("mlp_fc")(layer("ln_2")(x)), approximate=self.gelu)
            x = x + layer("mlp_proj")(y)
        return x


class GPT2(Transformer):
    """Computes logits [N * T, V] from tokens [N, T]."""

    def __init__(self, vocabulary, context, depth, heads, width):
        super().__init__(depth, width, heads, 4 * width, causal=True, gelu="tanh")
        self.wte = nn.Embedding(vocabulary, width)
        self.wpe = PositionEmbedding(context, width)
        self.ln_f = nn.LayerNorm(width)

    def forward(self, tokens):
        x = self.ln_f(self.blocks(self.wpe(self.wte(tokens))))
        return F.linear(x, self.wte.weight).flatten(0, 1)


class ViT(Transformer):
    """Computes logits [N, K] from images [N, C, H, W]."""

    def __init__(self, image, classes, width, heads, patch_size=16, pool="class_token"):
        super().__init__(12, width, heads, 4 * width, epsilon=1e-6)
        self.pool = pool
        patches = image[1] // patch_size * (image[2] // patch_size)
        self.patch_embed = nn.Conv2d(image[0], width, patch_size, stride=patch_size)
        self.pos_embed = PositionEmbedding(patches, width, pool == "class_token")
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.head = nn.Linear(width, classes)

    def forward(self, images):
        x = self.patch_embed(images).flatten(2).transpose(1, 2)
        x = self.blocks(self.pos_embed(x))
        x = x[:, 0] if self.pool == "class_token" else x.mean(dim=1)
        return self.head(self.norm(x))


class TransformerClassifier(Transformer):
    """Computes logits [N, K] from tokens [N, T]; token 0 is padding: it is no key of attention, and
    does not count in the mean."""

    def __init__(self, vocabulary, context, classes, depth=2, heads=4, width=128):
        super().__init__(depth, width, heads, 4 * width)
        self.wte = nn.Embedding(vocabulary, width)
        self.wpe = PositionEmbedding(context, width)
        self.ln_f = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, tokens):
        x = self.blocks(self.wpe(self.wte(tokens)), (tokens != 0)[:, None, None])
        x = self.ln_f(x)
        counts = (tokens != 0).unsqueeze(-1).to(x.dtype)
        return self.head((x * counts).sum(dim=1) / counts.sum(dim=1))


def initialize_transformer(model, seed):
    """Draws weights as the engine does: normal, with scaled projections in GPT-2, and patches by
    fan-in."""
    gpt = isinstance(model, GPT2)
    with torch.no_grad():
        for name, p in model.named_parameters():
            layer, kind = name.rsplit(".", 1)
            shape = tuple(p.shape)
            if layer == "patch_embed":
                fan_in = int(np.prod(model.patch_embed.weight.shape[1:]))
                p.copy_(torch.from_numpy(initial_uniform(seed, name, shape, fan_in)))
            elif kind == "weight" and len(shape) == 2:
                scaled = gpt and layer.endswith("_proj")
                std = WEIGHT_STD / math.sqrt(2 * model.depth) if scaled else WEIGHT_STD
                p.copy_(torch.from_numpy(initial_normal(seed, name, shape, std)))
            else:  # normalization: 1 and 0; biases and class token: 0
                p.fill_(1.0 if kind == "weight" else 0.0)


def next_token_batch(seed, step, batch, context, vocabulary):
    """Each text counts upwards in steps of 1, 2 or 3, depending on its first token."""
    start = philox_u32(seed, stream_of("golden/token"), step, batch).astype(np.int64) % vocabulary
    t = np.arange(context + 1)
    text = (start[:, None] + t * (1 + start[:, None] % 3)) % vocabulary
    return text[:, :-1], text[:, 1:].reshape(-1)


def text_class_batch(seed, step, batch, context, vocabulary, classes):
    """Half of a text's tokens identify its class; the text ends somewhere in its second half."""
    label = philox_u32(seed, stream_of("golden/label"), step, batch).astype(np.int64) % classes
    length = context // 2 + philox_u32(seed, stream_of("golden/length"), step, batch).astype(
        np.int64) % (context // 2 + 1)
    r = philox_u32(seed, stream_of("golden/token"), step, batch * context).astype(np.int64)
    r = r.reshape(batch, context)
    token = np.where(r & 1, 1 + label[:, None], 1 + (r >> 8) % (vocabulary - 1))
    return np.where(np.arange(context) < length[:, None], token, 0), label


def image_batch(seed, step, batch, image, classes):
    """Returns the batch of golden_batch() in reference_models.py, for any size."""
    pixels = int(np.prod(image))
    label = philox_u32(seed, stream_of("golden/label"), step, batch).astype(np.int64) % classes
    noise = uniform01(seed, stream_of("golden/noise"), step, batch * pixels).reshape(batch, pixels)
    pattern = uniform01(seed, stream_of("golden/pattern"), 0, classes * pixels)
    x = 0.5 * (noise - 0.5) + 1.5 * (pattern.reshape(classes, pixels)[label] - 0.5)
    return x.astype(np.float32).reshape(batch, *image), label
