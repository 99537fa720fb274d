"""Writes GGUF files, the format of llama.cpp, without any library."""

import json
import struct

F32, F16, BF16 = 0, 1, 30
CODES = {F32: "<{}f", F16: "<{}e"}


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def setting(value):
    """Returns the type and the bytes of a value: bool, int, float, str or a list of one of these."""
    if isinstance(value, bool):
        return 7, struct.pack("<?", value)
    if isinstance(value, int):
        return 4, struct.pack("<I", value)
    if isinstance(value, float):
        return 6, struct.pack("<f", value)
    if isinstance(value, str):
        return 8, text(value)
    kinds = {setting(element)[0] for element in value}
    assert len(kinds) == 1, value
    elements = b"".join(setting(element)[1] for element in value)
    return 9, struct.pack("<IQ", kinds.pop(), len(value)) + elements


def numbers_of(values, kind):
    if kind == BF16:
        return b"".join(struct.pack("<H", struct.unpack("<I", struct.pack("<f", v))[0] >> 16) for v in values)
    return struct.pack(CODES[kind].format(len(values)), *values)


def gguf(settings, tensors, kind=F32):
    """`tensors`: row-major shape and numbers by name. Vectors are always F32, as llama.cpp's are."""
    head, data = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(settings)), b""
    for key, value in settings.items():
        number, content = setting(value)
        head += text(key) + struct.pack("<I", number) + content
    for name, (shape, values) in tensors.items():
        used = F32 if len(shape) == 1 else kind
        head += text(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape))
        head += struct.pack("<IQ", used, len(data))
        data += numbers_of(values, used)
        data += bytes(-len(data) % 32)
    return head + bytes(-len(head) % 32) + data


NAMES = {"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
         "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "post_attention_layernorm": "ffn_norm",
         "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
OUTER = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
         "lm_head.weight": "output.weight"}


def pair_rows(shape, values, head):
    """Puts the rows of each head in the order in which llama.cpp turns neighbors."""
    rows, width = shape
    order = [h + half * (head // 2) + i for h in range(0, rows, head) for i in range(head // 2) for half in range(2)]
    return shape, [v for row in order for v in values[row * width:(row + 1) * width]]


def llama_tensors(tensors, head):
    """Returns the tensors of a Llama of transformers as llama.cpp's converter writes them."""
    result = {}
    for name, (shape, values) in tensors.items():
        if name in OUTER:
            result[OUTER[name]] = shape, values
            continue
        _, _, layer, rest = name.split(".", 3)
        module = rest.removesuffix(".weight")
        if module in ("self_attn.q_proj", "self_attn.k_proj"):
            shape, values = pair_rows(shape, values, head)
        result[f"blk.{layer}.{NAMES[module]}.weight"] = shape, values
    return result


def llama_settings(config):
    """Returns the settings for a config.json."""
    return {"general.architecture": "llama", "llama.block_count": config["num_hidden_layers"],
            "llama.context_length": config["max_position_embeddings"], "llama.embedding_length": config["hidden_size"],
            "llama.feed_forward_length": config["intermediate_size"],
            "llama.attention.head_count": config["num_attention_heads"],
            "llama.attention.head_count_kv": config["num_key_value_heads"],
            "llama.attention.key_length": config["head_dim"],
            "llama.attention.layer_norm_rms_epsilon": float(config["rms_norm_eps"]),
            "llama.rope.freq_base": float((config.get("rope_parameters") or config)["rope_theta"]),
            "llama.vocab_size": config["vocab_size"]}


def read_safetensors(path):
    """Returns shape and numbers of the F32 tensors of a file, by name."""
    data = path.read_bytes()
    length, = struct.unpack_from("<Q", data)
    result = {}
    for name, entry in json.loads(data[8:8 + length]).items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            assert entry["dtype"] == "F32", name
            result[name] = entry["shape"], list(struct.unpack(f"<{(end - begin) // 4}f", data[8 + length:][begin:end]))
    return result


def tokenizer_settings(folder):
    """Returns the settings for a folder's tokenizer of bytes, whose special tokens come last."""
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    config = json.loads((folder / "tokenizer_config.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    special = {token["content"] for token in tokenizer["added_tokens"]}
    tokens = sorted(vocabulary, key=vocabulary.get)
    return {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2", "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.token_type": [3 if token in special else 1 for token in tokens],
            "tokenizer.ggml.bos_token_id": vocabulary[config["bos_token"]],
            "tokenizer.ggml.eos_token_id": vocabulary[config["eos_token"]],
            "tokenizer.ggml.padding_token_id": vocabulary[config["pad_token"]],
            "tokenizer.chat_template": config["chat_template"]}


def gguf_of_folder(folder, kind=F32):
    """Returns the file that llama.cpp's converter would write of a folder with a Llama."""
    config = json.loads((folder / "config.json").read_text())
    tensors = llama_tensors(read_safetensors(folder / "model.safetensors"), config["head_dim"])
    return gguf(llama_settings(config) | tokenizer_settings(folder), tensors, kind)
