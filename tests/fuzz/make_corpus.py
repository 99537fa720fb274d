#!/usr/bin/env python3
"""Writes the first inputs of tests/fuzz/corpus: small files of each format, right and nearly right.

python3 tests/fuzz/make_corpus.py     # needs Pillow

Inputs found by a fuzzer are kept in the same folders, under names that begin with found_.
"""

import base64
import gzip
import io
import json
import math
import pathlib
import re
import struct
import sys
import tarfile
import zipfile

from PIL import Image

HERE = pathlib.Path(__file__).resolve().parent
GOLDEN = HERE.parent / "golden"


def write(target, name, content):
    folder = HERE / "corpus" / target
    folder.mkdir(parents=True, exist_ok=True)
    content = content.encode() if isinstance(content, str) else content
    assert len(content) <= (4096 if target != "subword" else 12288), (name, len(content))
    (folder / name).write_bytes(content)


def csv():
    write("csv", "plain", "\0a,b,label\n1,2.5,x\n-3,1e9,y\n")
    write("csv", "quoted", "\0" + '\ufeff"a ""b""", "c\nd" ,e\r\n"",,"x"\r\n\r\n1,2,3')
    write("csv", "semicolons", "\1a;b\n 1 ;\t2\n")
    write("csv", "tabs", "\2a\tb\n1\t2\n")
    write("csv", "open_quote", '\0a,"b\n1,2\n')
    write("csv", "quote_inside", '\0a,b"c\n')
    write("csv", "zero_byte", "\0a,b\0,c\n1,2,3\n")
    write("csv", "packed", b"\0" + gzip.compress(b"a,b\n1,2\n" * 40, mtime=0))


def libsvm():
    write("libsvm", "classes", "+1 1:0.5 3:-2 # a comment\n\n-1 2:1e1\r\n+1\n")
    write("libsvm", "numbers", "1.5 1:1\n-2\t1:2\n")
    write("libsvm", "descending", "1 2:1 1:1\n")
    write("libsvm", "no_colon", "1 2\n2 :1\n")
    write("libsvm", "not_a_number", "1 1:nan\nx 1:1\n")
    write("libsvm", "far", "1 99999999999999999999:1\n")
    write("libsvm", "packed", gzip.compress(b"1 1:1\n2 2:1\n" * 40, mtime=0))


def tokenizer():
    def part(kind, **fields):
        return {"type": kind, **fields}

    def write_json(name, **parts):
        write("tokenizer", name, json.dumps({"version": "1.0", **parts}, ensure_ascii=False))

    def model(tokens, merges=(), **fields):
        return part("BPE", vocab={t: i for i, t in enumerate(tokens)}, merges=list(merges), **fields)

    special = {"id": 0, "content": "<s>", "single_word": False, "lstrip": False, "rstrip": True, "normalized": False, "special": True}
    letters = list("abcdefghijklmnopqrstuvwxyz'0123456789.\u0120\u010a\u00c3\u00a4")
    split = part("Split", pattern={"Regex": r"'(?i:[sdmt]|ll)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|\s*[\r\n]+|\s+(?!\S)|\s+"},
                 behavior="Isolated", invert=False)
    bytes_of = part("ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=False)
    template = part("TemplateProcessing", single=[{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                    pair=[], special_tokens={"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}})
    write_json("bytes", added_tokens=[special], normalizer=part("NFC"), pre_tokenizer=part("Sequence", pretokenizers=[split, bytes_of]),
               post_processor=template, decoder=part("ByteLevel"),
               model=model(["<s>"] + letters + ["th", "the", "\u0120c"], ["t h", "th e", ["\u0120", "c"]], ignore_merges=True))
    names = ["<unk>", "<s>", "\u2581", "t", "h", "th", "\u2581th"] + [f"<0x{b:02X}>" for b in (0x0A, 0xC3, 0xA4)]
    replace = part("Replace", pattern={"String": " "}, content="\u2581")
    write_json("characters", added_tokens=[dict(special, id=1)], pre_tokenizer=None, post_processor=None,
               normalizer=part("Sequence", normalizers=[part("Prepend", prepend="\u2581"), replace]),
               decoder=part("Sequence", decoders=[part("ByteFallback"), part("Fuse"), part("Strip", content=" ", start=1, stop=0)]),
               model=model(names, ["t h", "\u2581 th"], unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    meta = part("Metaspace", replacement="\u2581", prepend_scheme="first", split=True)
    write_json("unigram", normalizer=part("NFKC"), pre_tokenizer=meta, decoder=meta,
               model=part("Unigram", unk_id=0, byte_fallback=False, vocab=[["<unk>", 0], ["\u2581the", -2.5], ["t", -3], ["\u2581", -4.5]]))
    write_json("words", normalizer=part("BertNormalizer", lowercase=True), pre_tokenizer=part("BertPreTokenizer"),
               post_processor=part("BertProcessing", sep=["[SEP]", 1], cls=["[CLS]", 2]), decoder=part("WordPiece", prefix="##"),
               model=part("WordPiece", unk_token="[UNK]", vocab={t: i for i, t in enumerate("[UNK] [SEP] [CLS] the c ##a ##t".split())}))
    ranks = [{"rank": i, "token_bytes": base64.b64encode(t).decode()} for i, t in enumerate([b"t", b"h", b"e", b"th", b"the", b"\xc3"])]
    write("tokenizer", "ranks", json.dumps({"config": {"pattern": r"\w+|\W", "default_vocab_size": 10, "default_num_special_tokens": 3},
                                            "vocab": ranks}))

    def field(number, value):
        if isinstance(value, bytes):
            return bytes([number << 3 & 0x7F | 2 | (0x80 if number > 15 else 0)] + ([number >> 4] if number > 15 else [])) + bytes([len(value)]) + value
        if isinstance(value, float):
            return bytes([number << 3 | 5]) + struct.pack("<f", value)
        return bytes([number << 3 & 0x7F | (0x80 if number > 15 else 0)] + ([number >> 4] if number > 15 else [])) + bytes([value])

    def pieces(kind, byte_fallback):
        rows = [("<unk>", 0.0, 2), ("<s>", 0.0, 3), ("</s>", 0.0, 3), ("<mid>", 0.0, 4), ("\u2581the", -1.0, 1), ("\u2581t", -2.0, 1),
                ("he", -3.0, 1), ("\u2581", -4.0, 1), ("t", -5.0, 1), ("h", -6.0, 1), ("e", -7.0, 1), ("<0x0A>", 0.0, 6)]
        out = b"".join(field(1, field(1, t.encode()) + field(2, s) + field(3, k)) for t, s, k in rows)
        return out + field(2, field(3, kind) + field(35, byte_fallback)) + field(3, field(3, 1) + field(4, 1))

    write("tokenizer", "pieces_bpe", pieces(2, 1))
    write("tokenizer", "pieces_unigram", pieces(1, 0))
    write("tokenizer", "settings", json.dumps({"eos_token": {"content": "</s>"}, "bos_token": "<s>", "added_tokens_decoder": {"3": special},
                                               "chat_template": "{% for m in messages %}{{ '<s>' + m['role'] + \"\\n\" }}{%- endfor -%}"}))


def idx():
    write("idx", "images", bytes([0, 0, 8, 3]) + struct.pack(">3I", 2, 3, 4) + bytes(range(24)))
    write("idx", "colour", bytes([0, 0, 8, 4]) + struct.pack(">4I", 1, 3, 2, 2) + bytes(range(12)))
    write("idx", "floats", bytes([0, 0, 13, 3]) + struct.pack(">3I4f", 1, 2, 2, 0, 1.5, -2, float("nan")))
    write("idx", "labels", bytes([0, 0, 8, 1]) + struct.pack(">I", 3) + b"\0\1\2")
    write("idx", "wide_labels", bytes([0, 0, 12, 1]) + struct.pack(">I2i", 2, 7, -1))
    write("idx", "too_many", bytes([0, 0, 8, 3]) + struct.pack(">3I", 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF))
    write("idx", "packed", gzip.compress(bytes([0, 0, 8, 1]) + struct.pack(">I", 3) + b"\0\1\2", mtime=0))


def safetensors_of(header, data):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def safetensors():
    one = {"w": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}}
    write("safetensors", "one", safetensors_of(one, bytes(16)))
    write("safetensors", "metadata", safetensors_of({"__metadata__": {"format": "pt"}, **one}, bytes(16)))
    types = {name: {"dtype": name, "shape": [], "data_offsets": [at, at + size]} for name, at, size in
             (("F64", 0, 8), ("F16", 8, 2), ("BF16", 10, 2), ("I64", 12, 8), ("BOOL", 20, 1), ("U8", 21, 1))}
    write("safetensors", "types", safetensors_of(types, struct.pack("<d", 1e300) + bytes(range(14))))
    write("safetensors", "empty", safetensors_of({}, b""))
    write("safetensors", "zero_elements",
          safetensors_of({"e": {"dtype": "F32", "shape": [0, 9], "data_offsets": [0, 0]}}, b""))
    write("safetensors", "overlap", safetensors_of({**one, "v": {"dtype": "F32", "shape": [1], "data_offsets": [8, 12]}},
                                                   bytes(16)))
    write("safetensors", "huge_shape", safetensors_of(
        {"w": {"dtype": "F32", "shape": [1 << 62, 1 << 62], "data_offsets": [0, 16]}}, bytes(16)))
    write("safetensors", "twice", safetensors_of(
        b'{"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"a"))
    write("safetensors", "deep", safetensors_of(b'{"a":' + b"[" * 500 + b"]" * 500 + b"}", b""))


def gguf():
    sys.path.insert(0, str(HERE.parent / "e2e"))
    from gguf_files import gguf as file_of

    golden = json.loads((GOLDEN / "gguf.json").read_text())
    for kind in ("F32", "BF16", "Q4_1", "Q5_0", "Q4_K", "Q6_K"):
        write("gguf", kind.lower(), base64.b64decode(golden[kind]["file"]))
    sizes = {"block_count": 1, "context_length": 8, "embedding_length": 4, "feed_forward_length": 4,
             "attention.head_count": 2, "attention.head_count_kv": 1, "attention.layer_norm_rms_epsilon": 1e-5}
    settings = {"general.architecture": "llama"} | {"llama." + key: value for key, value in sizes.items()}
    shapes = {"token_embd": [3, 4], "output_norm": [4], "blk.0.attn_norm": [4], "blk.0.attn_q": [4, 4],
              "blk.0.attn_k": [2, 4], "blk.0.attn_v": [2, 4], "blk.0.attn_output": [4, 4], "blk.0.ffn_norm": [4],
              "blk.0.ffn_gate": [4, 4], "blk.0.ffn_up": [4, 4], "blk.0.ffn_down": [4, 4]}
    tensors = {name + ".weight": (shape, [0.1] * math.prod(shape)) for name, shape in shapes.items()}
    write("gguf", "llama", file_of(settings, tensors))
    write("gguf", "rotary", file_of(settings | {"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": 4.0},
                                    tensors | {"rope_freqs.weight": ([1], [1.0])}))
    tokens = ["<unk>", "<s>", "a", "b", "ab", "[PAD]"]
    tokenizer = {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": [2, 3, 1, 1, 4, 5],
                 "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eot_token_id": 4, "tokenizer.chat_template": "{{ x }}"}
    write("gguf", "bytes", file_of({"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "qwen2", **tokenizer,
                                    "tokenizer.ggml.merges": ["a b"], "tokenizer.ggml.add_bos_token": True}, {}))
    write("gguf", "pieces", file_of({"tokenizer.ggml.model": "llama", **tokenizer,
                                     "tokenizer.ggml.scores": [0.0, 0.0, -1.0, -2.0, -0.5, 0.0]}, {}))


def weights_index():
    names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    write("weights_index", "two_files", json.dumps(
        {"metadata": {"total_size": 24}, "weight_map": {"a.weight": names[0], "b.weight": names[1], "b.bias": names[1]}}))
    write("weights_index", "outside", json.dumps({"weight_map": {"a": "../a.safetensors"}}))
    write("weights_index", "absolute", json.dumps({"weight_map": {"a": "/etc/passwd"}}))
    write("weights_index", "numbers", json.dumps({"metadata": {"total_size": -1}, "weight_map": {"a": 1}}))
    write("weights_index", "empty", "{}")


def npy_of(header, data, version=1):
    text = header.encode() + b"\n"
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H" if version == 1 else "<I", len(text)) + text + data


def npy_header(descr, shape, fortran=False):
    return f"{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}"


def npy():
    write("npy", "floats", npy_of(npy_header("<f4", "(2, 3)"), struct.pack("<6f", *range(6))))
    write("npy", "columns_first", npy_of(npy_header("<f8", "(2, 2)", True), struct.pack("<4d", 1, 2, 3, float("inf"))))
    write("npy", "halves", npy_of(npy_header("<f2", "(3,)"), struct.pack("<3e", 1, -2, float("nan"))))
    write("npy", "reversed", npy_of(npy_header(">i8", "(2,)"), struct.pack(">2q", -1, 1 << 60), 2))
    write("npy", "bytes", npy_of(npy_header("|u1", "(2, 2, 1)"), b"\0\1\2\3"))
    write("npy", "booleans", npy_of(npy_header("|b1", "(4,)"), b"\0\1\1\2"))
    write("npy", "texts", npy_of(npy_header("<U2", "(2,)"), "ab\u00e4\0".encode("utf-32-le"), 3))
    write("npy", "bytes_text", npy_of(npy_header("|S3", "(2, 1)"), b"abcd\0\0"))
    write("npy", "scalar", npy_of(npy_header("<f4", "()"), struct.pack("<f", 1)))
    write("npy", "no_elements", npy_of(npy_header("<f4", "(0, 5)"), b""))
    write("npy", "huge", npy_of(npy_header("<f4", "(4611686018427387904, 4)"), bytes(16)))
    write("npy", "objects", npy_of(npy_header("|O", "(1,)"), b"\x80\x04N."))
    write("npy", "structured", npy_of("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", bytes(4)))
    write("npy", "packed", gzip.compress(npy_of(npy_header("<f4", "(2,)"), bytes(8)), mtime=0))


def arrays():
    floats = npy_of(npy_header("<f4", "(2, 2)"), struct.pack("<4f", 1, 2, 3, 4))
    labels = npy_of(npy_header("<i4", "(2,)"), struct.pack("<2i", 0, 1))
    for name, method in (("npz", zipfile.ZIP_STORED), ("npz_deflated", zipfile.ZIP_DEFLATED)):
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", method) as z:
            for member, content in (("x.npy", floats), ("y.npy", labels), ("notes.txt", b"none")):
                z.writestr(zipfile.ZipInfo(member), content, method)
        write("arrays", name, out.getvalue())
    entries = {"x": {"dtype": "BF16", "shape": [2, 2], "data_offsets": [0, 8]},
               "y": {"dtype": "I64", "shape": [2], "data_offsets": [8, 24]}}
    write("arrays", "safetensors", safetensors_of(entries, bytes(24)))
    write("arrays", "neither", "x,y\n1,2\n")


def documents():
    write("documents", "chat", '{"messages": [{"role": "system", "content": "a"}, {"role": "user", "content": "b"}, '
          '{"role": "assistant", "content": "c"}]}')
    write("documents", "pair", '{"prompt": "a", "completion": "b", "id": 3}')
    write("documents", "text", '{"text": "\\u00e4\\ud83d\\ude00", "meta": {"messages": [1, {"role": []}]}}')
    write("documents", "two_kinds", '{"text": "a", "messages": []}')
    write("documents", "nested", '{"messages": [[{"role": "user"}], {"role": {"a": []}, "content": null}]}')
    write("documents", "tools", '{"messages": [{"role": "user", "content": "a", "tool_calls": [{}]}]}')
    write("documents", "not_utf8", b'{"text": "\xff"}')
    write("documents", "deep", '{"messages": ' + "[" * 1500 + "}")


def jsonl():
    write("jsonl", "plain", '{"a": 1, "b": "x"}\n{"b": null, "a": -2.5e3}\n')
    write("jsonl", "new_column", '{"a": 1}\r\n\n{"c": true, "a": "\\u00e4\\ud83d\\ude00"}\n')
    write("jsonl", "dates", '{"a": "2026-11-22T10:30:00+02:00"}\n{"a": "2024-02-29"}\n{"a": "29/02/2023"}\n')
    write("jsonl", "nested", '{"a": {"b": [1, 2, {"c": 3}]}}\n')
    write("jsonl", "twice", '{"a": 1, "a": 2}\n')
    write("jsonl", "no_object", '[1, 2]\n"a"\n')
    write("jsonl", "deep", '{"a": ' + "[" * 1500 + "}\n")
    write("jsonl", "lone_surrogate", '{"a": "\\ud83d"}\n')
    write("jsonl", "not_utf8", b'{"a": "\xff\xfe"}\n')
    write("jsonl", "packed", gzip.compress(b'{"a": 1}\n' * 30, mtime=0))


def subword():
    """Writes models that SentencePiece has learned, from the tokenizer's own golden file."""
    for case in json.loads((GOLDEN / "subword.json").read_text())["cases"]:
        model = base64.b64decode(case["model"])
        write("subword", case["kind"], bytes([case["kind"] == "unigram"]) + model)
        write("subword", case["kind"] + "_as_the_other", bytes([case["kind"] != "unigram"]) + model)


def tar_of(mode, *members):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode, **({"compresslevel": 9} if mode == "w:gz" else {})) as archive:
        for name, content, kind in members:
            info = tarfile.TarInfo(name)
            info.type, info.size = kind, len(content)
            if kind in (tarfile.SYMTYPE, tarfile.LNKTYPE):
                info.linkname, info.size = "/etc/passwd", 0
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def archive():
    a, b = ("cats/1.png", b"png", tarfile.REGTYPE), ("dogs/b/2.jpg", b"x" * 50, tarfile.REGTYPE)
    packed = gzip.compress(tar_of("w", a, b), mtime=0)
    write("archive", "tar_gz", packed)
    write("archive", "tar_xz", tar_of("w:xz", a, b))
    write("archive", "link", gzip.compress(tar_of("w", ("l", b"", tarfile.SYMTYPE)), mtime=0))
    write("archive", "absolute", gzip.compress(tar_of("w", ("/etc/x", b"x", tarfile.REGTYPE)), mtime=0))
    write("archive", "upwards", gzip.compress(tar_of("w", ("a/../../x", b"x", tarfile.REGTYPE)), mtime=0))
    write("archive", "tar_header", tar_of("w", a)[:1024])
    write("archive", "bomb", gzip.compress(tar_of("w", ("zeros", bytes(1 << 20), tarfile.REGTYPE)), mtime=0))
    for name, method in (("zip", zipfile.ZIP_STORED), ("zip_deflated", zipfile.ZIP_DEFLATED)):
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", method) as z:
            for member in ("cats/1.png", ".hidden", "__MACOSX/x", "dogs/2.jpg"):
                z.writestr(zipfile.ZipInfo(member), b"content " * 9, method)
        write("archive", name, out.getvalue())


def image():
    gradient = bytes(i * 3 % 256 for i in range(12 * 10 * 3))
    colour = Image.frombytes("RGB", (12, 10), gradient)

    def save(name, picture, kind, **options):
        out = io.BytesIO()
        picture.save(out, kind, **options)
        write("image", name, out.getvalue())

    save("png_colour", colour, "PNG")
    save("png_grey", colour.convert("L"), "PNG")
    save("png_palette", colour.quantize(16), "PNG")
    save("png_alpha", colour.convert("RGBA"), "PNG")
    save("png_bits", colour.convert("1"), "PNG")
    save("png_16", Image.new("I;16", (5, 4), 40000), "PNG")
    save("jpeg_colour", colour, "JPEG", quality=40)
    save("jpeg_grey", colour.convert("L"), "JPEG", quality=40)
    save("jpeg_progressive", colour, "JPEG", quality=40, progressive=True)
    save("jpeg_cmyk", colour.convert("CMYK"), "JPEG", quality=40)
    exif = Image.Exif()
    exif[0x0112] = 6
    save("jpeg_turned", colour, "JPEG", quality=40, exif=exif)
    png = bytearray((HERE / "corpus/image/png_grey").read_bytes())
    png[16:24] = struct.pack(">2I", 0x7FFFFFFF, 0x7FFFFFFF)
    write("image", "png_huge", bytes(png))


def schema():
    text = {"kind": "tabular", "columns": [{"name": "a", "kind": "numeric"},
                                           {"name": "b", "kind": "categorical", "categories": ["x", "y"]}],
            "target": {"name": "t", "kind": "class", "classes": ["no", "yes"]}, "train_rows": 10, "test_rows": 0}
    write("schema", "guessed", json.dumps(text))
    write("schema", "not_an_object", "[1, 2]")
    write("schema", "deep", "[" * 1000)
    write("schema", "large_number", '{"train_rows": 99999999999999999999}')


def onnx():
    """Writes node tests of many kinds, from the importer's own golden file."""
    with open(GOLDEN / "onnx_nodes.safetensors", "rb") as file:
        length = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(length))
        kinds = {}
        for name, entry in sorted(header.items()):
            case = name.removesuffix("/model")
            kind = re.sub(r"[_0-9].*", "", case.removeprefix("test_"))
            begin, end = entry.get("data_offsets", (0, 1 << 20))
            if case != name and kind not in kinds and end - begin <= 1500:
                kinds[kind] = case, begin, end
        for kind in sorted(kinds)[::3] + ["conv", "gemm", "lstm", "reshape"]:
            case, begin, end = kinds[kind]
            file.seek(8 + length + begin)
            write("onnx", case, file.read(end - begin))


def spec():
    examples = HERE.parents[1] / "examples"
    for name in ("digits_cnn", "titanic_mlp"):
        write("spec", name + ".yaml", (examples / f"{name}.yaml").read_text())
    write("spec", "set", "#recipe.steps=3\ndataset: {name: a}\nrecipe:\n  epochs: 1\n")
    write("spec", "set_index", "#model.layers[1].conv.strides=[2, 2]\nmodel:\n  layers:\n    - conv: {}\n    - conv: {}\n")
    write("spec", "set_away", "#a.b[0]=null\na: {b: [1, 2]}\n")
    write("spec", "job.json", '{"dataset": {"name": "a"}, "model": {"mlp": {"hidden": [3, 4]}}, "x": "\\ud83d\\ude00"}')
    write("spec", "twice", "a: 1\nb: 2\na: 3\n")
    write("spec", "alias", "a: &x [1, 2]\nb: *x\n")
    write("spec", "tag", "a: !!binary aGk=\n")
    write("spec", "documents", "a: 1\n---\nb: 2\n")
    write("spec", "deep", "[" * 200)
    write("spec", "block_text", "a: |\n  one\n  two\nb: >-\n  three\n")
    write("spec", "open_quote", 'a: "b\n')


for make in (csv, libsvm, tokenizer, idx, gguf, safetensors, weights_index, npy, arrays, documents, jsonl,
             subword, archive, image, schema, onnx, spec):
    make()
