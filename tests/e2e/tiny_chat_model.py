"""Writes the folder of a language model whose answers are known: each token has one successor.

The model is a Llama of one layer that adds nothing to the token's own vector, and its head names the
successor of that vector. The tokenizer has a token for each byte, and ChatML's special tokens.
"""

import json
import struct

TEMPLATE = ("{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
            "'<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|pad|>"]


def byte_letters():
    """Returns the character by which byte-level tokenizers write each byte."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = {b: chr(b) for b in printable}
    for byte in range(256):
        if byte not in letters:
            letters[byte] = chr(256 + len(letters) - len(printable))
    return letters


def write_safetensors(path, tensors):
    """`tensors`: shape and float32 bytes by name."""
    header, offset = {}, 0
    for name, (shape, data) in tensors.items():
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, data in tensors.values():
            file.write(data)


def matrix(rows, columns, ones=()):
    values = bytearray(4 * rows * columns)
    for row, column in ones:
        struct.pack_into("<f", values, 4 * (row * columns + column), 1.0)
    return [rows, columns], bytes(values)


SIZE = 256 + len(SPECIAL)
TOKENS = {text: 256 + i for i, text in enumerate(SPECIAL)}


def write_tokenizer(folder):
    """A token for each byte, and ChatML's special tokens."""
    vocabulary = {letter: byte for byte, letter in byte_letters().items()}
    added = [{"id": i, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
              "special": True} for text, i in TOKENS.items()]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
        "pre_tokenizer": byte_level, "post_processor": None, "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": vocabulary | TOKENS, "merges": []}}))
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|endoftext|>", "eos_token": "<|im_end|>",
        "pad_token": "<|pad|>", "chat_template": TEMPLATE}))


def write_chat_model(folder, answer, context, repeats=False):
    """A model that answers every chat with `answer`, whose characters must differ, and then ends, or begins it again.
    It sees `context` tokens."""
    folder.mkdir()
    special, size, end = TOKENS, SIZE, TOKENS["<|im_end|>"]
    path = [ord("\n"), *answer.encode(), ord(answer[0]) if repeats else end]
    successor = dict(zip(path, path[1:], strict=False))
    width, heads, hidden = size, 2, 8
    tensors = {
        "model.embed_tokens.weight": matrix(size, width, [(t, t) for t in range(size)]),
        "lm_head.weight": matrix(size, width, [(successor.get(t, end), t) for t in range(size)]),
        "model.norm.weight": ([width], struct.pack(f"<{width}f", *[1.0] * width)),
    }
    layer = "model.layers.0."
    for name in ("input_layernorm", "post_attention_layernorm"):
        tensors[f"{layer}{name}.weight"] = ([width], struct.pack(f"<{width}f", *[1.0] * width))
    for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
        tensors[f"{layer}self_attn.{name}.weight"] = matrix(width, width)
    for name, shape in (("gate_proj", (hidden, width)), ("up_proj", (hidden, width)), ("down_proj", (width, hidden))):
        tensors[f"{layer}mlp.{name}.weight"] = matrix(*shape)
    write_safetensors(folder / "model.safetensors", tensors)
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": size, "hidden_size": width,
        "intermediate_size": hidden, "num_hidden_layers": 1, "num_attention_heads": heads,
        "num_key_value_heads": heads, "head_dim": width // heads, "hidden_act": "silu", "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0, "max_position_embeddings": context, "tie_word_embeddings": False,
        "attention_bias": False, "mlp_bias": False, "bos_token_id": special["<|endoftext|>"], "eos_token_id": end,
        "torch_dtype": "float32"}))
    write_tokenizer(folder)
