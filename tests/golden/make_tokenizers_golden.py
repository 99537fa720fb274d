"""Writes tokenizers.json: small tokenizers of all kinds that src/data/tokenizers reads, and the ids that the programs which
made them give for some texts.

    python -m venv venv && venv/bin/pip install tokenizers==0.23.3 sentencepiece==0.2.3
    venv/bin/python make_tokenizers_golden.py [FOLDER]

FOLDER, if given, gets each tokenizer as a folder of files, for tests with other texts. The tokenizers are trained on the texts
of this script; a new run may choose other pieces of equal frequency.
"""

import base64
import io
import json
import os
import re
import sys

import sentencepiece as spm
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = os.path.dirname(os.path.abspath(__file__))
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}"
         r"\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")

TEXTS = [
    "Hello world! It's a test, isn't it? I'LL we've they'd 'S 'T",
    "The quick  brown   fox\njumps\r\n\r\nover\tthe lazy dog.   ",
    "Ünïcödé naïve café résumé Straße ß ſ",
    "Привет, мир! Как дела? Ёлка",
    "你好,世界!今天天气很好。",
    "こんにちは世界、カタカナとひらがな、ﾊﾝｶｸ",
    "안녕하세요 세계 각",
    "مرحبا بالعالم ١٢٣ ؟ שלום עולם",
    "नमस्ते दुनिया สวัสดีชาวโลก",
    "Γειά σου Κόσμε ΣΑΣ, chào thế giới",
    "😀😃👨‍👩‍👧‍👦🏳️‍🌈👍🏽 🇩🇪",
    "def f(x):\n    return x**2 + 3.14159e-10 # comment\n\n\nclass A:\n\tpass",
    "int main() { printf(\"%d\\n\", 1234567890); return 0; }",
    "https://example.com/path?q=1&r=2#frag 1 12 123 1234 ½ ² Ⅷ ①",
    "   leading and trailing   ",
    "\n\n\n",
    "\t \t \n \r\n x",
    "a\u00a0b\u2003c\u3000d\u200be\ufefff x\u0085y\u2028z\u180eq\u001cr",
    "e\u0301 a\u0308 \u0301alone ﬁ ﬂ Å",
    "<|im_start|>user\nhi<|im_end|>\n<|im_start|> assistant\n",
    "<s>[INST] hi [/INST] there</s> the<mid>the <mid>  <word>word <word>",
    "<unk> <pad> [UNK] [CLS] [SEP] ##ing <0x0A>",
    "▁ ▁▁ a▁b",
    "",
    " ",
    "a",
    "\x00\x01\x7f \ufffd \ue000",
    "I İ ı K Å ŉ ǰ ẞ ㍿",
    "don't DON'T Don\u2019t stop—never",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "__init__ snake_case camelCase {\"a\": [1, null]} =====-----!!!???",
    "lower lowest newer newest the theme them theory",
]
WORDS = ("the of and to in is that it was for on are with as his they be at one have this from or had by hot but some what there "
         "we can out other were all your when up use word how said an each she which do their time if will way about many then "
         "them would write like so these her long make thing see him two has look more day could go come did my sound no most "
         "number who over know water than call first people may down side been now find any new work part take get place made "
         "live where after back little only round man year came show every good me give our under name very through just form "
         "much great think say help low line before turn cause same mean differ move right boy old too does tell sentence set "
         "three want air well also play small end put home read hand port large spell add even land here must big high such "
         "follow act why ask men change went light kind off need house picture try us again animal point mother world near "
         "build self earth father head stand own page should country found answer school grow study still learn plant cover "
         "food sun four thought let keep eye never last door between city tree cross since hard start might story saw far").split()


def corpus():
    for i in range(0, len(WORDS), 8):
        yield " ".join(WORDS[i:i + 8]) + ". "
        yield " ".join(WORDS[(7 * k + i) % len(WORDS)] for k in range(12))
    yield from TEXTS * 2


def bytes_bpe(**settings):
    """A tokenizer of bytes, as GPT-2's."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = settings.pop("pre", pre_tokenizers.ByteLevel(add_prefix_space=False))
    tokenizer.decoder = decoders.ByteLevel()
    if "normalizer" in settings:
        tokenizer.normalizer = settings.pop("normalizer")
    tokenizer.train_from_iterator(corpus(), trainers.BpeTrainer(
        vocab_size=settings.pop("size", 420), special_tokens=settings.pop("special", ["<|endoftext|>"]),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    return tokenizer


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(Regex(pattern), behavior, invert)


def split_bytes(pattern):
    return pre_tokenizers.Sequence([split(pattern), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def gpt2():
    return bytes_bpe()


def smollm():
    return bytes_bpe(pre=pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                                  pre_tokenizers.ByteLevel(add_prefix_space=False)]),
                     special=["<|endoftext|>", "<|im_start|>", "<|im_end|>"])


def prefix_space():
    tokenizer = bytes_bpe(pre=pre_tokenizers.ByteLevel(add_prefix_space=True), special=["<s>", "</s>"])
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 1), ("<s>", 0))
    return tokenizer


def llama3():
    tokenizer = bytes_bpe(pre=split_bytes(LLAMA3), special=["<|begin_of_text|>", "<|eot_id|>"])
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<|begin_of_text|> $A", pair="$A $B", special_tokens=[("<|begin_of_text|>", 0)])])
    data = json.loads(tokenizer.to_str())
    data["model"]["ignore_merges"] = True
    data["model"]["vocab"]["stop"] = len(data["model"]["vocab"])  # a whole word that no merges build
    return Tokenizer.from_str(json.dumps(data))


def qwen():
    tokenizer = bytes_bpe(normalizer=normalizers.NFC(), pre=split_bytes(QWEN2), special=["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    tokenizer.add_tokens([AddedToken("<mid>", normalized=False, lstrip=True), AddedToken("<word>", single_word=True, rstrip=True)])
    return tokenizer


def o200k():
    return bytes_bpe(pre=split_bytes(O200K))


def odd_cuts():
    cuts = [pre_tokenizers.Punctuation("merged_with_previous"), pre_tokenizers.Digits(individual_digits=False),
            split(r"\s+", "merged_with_next"), split(r"[a-c]{2,3}|(?<=e)r|th(?=e)", "contiguous"),
            split(r"[^\W\d_]+|\d", "isolated", True), pre_tokenizers.Split("o", "removed"), pre_tokenizers.CharDelimiterSplit("?")]
    return bytes_bpe(pre=pre_tokenizers.Sequence(cuts + [pre_tokenizers.ByteLevel(add_prefix_space=False)]), size=380)


def metaspace_bpe(scheme, **model):
    """BPE of characters with bytes for those that are not known, as Llama 2's."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    names = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    tokenizer.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=470, special_tokens=names, limit_alphabet=60, show_progress=False))
    data = json.loads(tokenizer.to_str())
    data["added_tokens"] = data["added_tokens"][:3]
    data["model"].update(model)
    strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    data["decoder"] = {"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}, strip]}
    if scheme == "normalizer":
        data["pre_tokenizer"] = None
        data["normalizer"] = {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]}
    else:
        data["pre_tokenizer"] = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": False}
    data["post_processor"] = {"type": "TemplateProcessing",
                              "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                              "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                              "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}}
    return Tokenizer.from_str(json.dumps(data))


def llama2():
    return metaspace_bpe("normalizer")


def llama2_first():
    return metaspace_bpe("first")


def unknown_bpe():
    tokenizer = Tokenizer(models.BPE(unk_token="[UNK]", fuse_unk=True, continuing_subword_prefix="##"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=260, special_tokens=["[UNK]"], limit_alphabet=40,
                                                                continuing_subword_prefix="##", show_progress=False))
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_tokens([AddedToken("THEORY", normalized=True)])
    return tokenizer


def word_end_bpe():
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Strip()])
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=300, special_tokens=["<unk>"], limit_alphabet=60,
                                                                end_of_word_suffix="</w>", show_progress=False))
    tokenizer.decoder = decoders.BPEDecoder()
    return tokenizer


def bert():
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=20))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.train_from_iterator(corpus(), trainers.WordPieceTrainer(
        vocab_size=320, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], limit_alphabet=80, show_progress=False))
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


def words():
    tokenizer = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation()])
    tokenizer.train_from_iterator(corpus(), trainers.WordLevelTrainer(vocab_size=200, special_tokens=["[UNK]"], show_progress=False))
    return tokenizer


def charsmap():
    """A few rules of normalization in SentencePiece's form."""
    rules = {"ﬁ": "fi", "ﬂ": "fl", "Å": "A", "　": " ", "①": "1", "½": "1/2", "e\u0301": "E", "👍🏽": "up", "\u200b": "", "ﾊ": "ハ"}
    with open("/tmp/rules.tsv", "w", encoding="utf-8") as file:
        for source, target in sorted(rules.items()):
            file.write(" ".join(f"{ord(c):X}" for c in source) + "\t" + " ".join(f"{ord(c):X}" for c in target) + "\n")
    return {"normalization_rule_tsv": "/tmp/rules.tsv"}


def train_pieces(model_type, **settings):
    out = io.BytesIO()
    spm.SentencePieceTrainer.train(sentence_iterator=iter(list(corpus())), model_writer=out, model_type=model_type, minloglevel=2,
                                   num_threads=1, hard_vocab_limit=False, **settings)
    return out.getvalue()


def model_proto(data):
    from sentencepiece import sentencepiece_model_pb2
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(data)
    return proto


def unigram(byte_fallback=False):
    model = train_pieces("unigram", vocab_size=330 + 256 * byte_fallback, byte_fallback=byte_fallback, character_coverage=0.98,
                         **charsmap())
    proto = model_proto(model)
    vocab = [[p.piece, p.score] for p in proto.pieces]
    metaspace = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    chars = {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(proto.normalizer_spec.precompiled_charsmap).decode()}
    spaces = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
    added = [{"id": i, "content": c, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
             for i, c in enumerate(["<unk>", "<s>", "</s>"])]
    decoder = metaspace
    if byte_fallback:
        decoder = {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, metaspace]}
    data = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
            "normalizer": {"type": "Sequence", "normalizers": [chars, spaces]}, "pre_tokenizer": metaspace, "post_processor": None,
            "decoder": decoder, "model": {"type": "Unigram", "unk_id": 0, "vocab": vocab, "byte_fallback": byte_fallback}}
    return Tokenizer.from_str(json.dumps(data))


def unigram_bytes():
    return unigram(True)


KINDS = [gpt2, smollm, prefix_space, llama3, qwen, o200k, odd_cuts, llama2, llama2_first, unknown_bpe, word_end_bpe, bert, words,
         unigram, unigram_bytes]


def json_cases(tokenizer):
    cases = []
    for text in TEXTS:
        tokenizer.encode_special_tokens = False
        encoding = tokenizer.encode(text, add_special_tokens=False)
        case = {"ids": encoding.ids, "decoded": tokenizer.decode(encoding.ids, skip_special_tokens=False)}
        tokenizer.encode_special_tokens = True
        plain = tokenizer.encode(text, add_special_tokens=False).ids
        if plain != encoding.ids:
            case["plain"] = plain
        cases.append(case)
    return cases


def piece_models():
    """SentencePiece models: name, bytes."""
    yield "pieces_bpe", train_pieces("bpe", vocab_size=500, byte_fallback=True, character_coverage=0.98, split_digits=True,
                                     user_defined_symbols=["<mid>", "[INST]", "  "], normalization_rule_name="identity",
                                     remove_extra_whitespaces=False)
    yield "pieces_bpe_unknown", train_pieces("bpe", vocab_size=320, character_coverage=0.98, **charsmap())
    yield "pieces_unigram", train_pieces("unigram", vocab_size=330, character_coverage=0.98, user_defined_symbols=["<mid>", "<word>"],
                                         **charsmap())
    yield "pieces_unigram_bytes", train_pieces("unigram", vocab_size=560, byte_fallback=True, character_coverage=0.98,
                                               normalization_rule_name="identity", add_dummy_prefix=False,
                                               remove_extra_whitespaces=False, allow_whitespace_only_pieces=True)


def piece_cases(model):
    processor = spm.SentencePieceProcessor(model_proto=model)
    return [{"plain": ids, "decoded": processor.decode(ids)} for ids in (processor.encode(text) for text in TEXTS)]


def compact(tokenizer):
    data = json.loads(tokenizer.to_str())
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


def save(folder, name, file, data):
    os.makedirs(os.path.join(folder, name), exist_ok=True)
    with open(os.path.join(folder, name, file), "wb") as out:
        out.write(data)


def main():
    golden = {"texts": TEXTS, "tokenizers": []}
    for kind in KINDS:
        tokenizer = kind()
        text = compact(tokenizer)
        tokenizer = Tokenizer.from_str(text)
        golden["tokenizers"].append({"name": kind.__name__, "file": "tokenizer.json", "text": text, "cases": json_cases(tokenizer)})
        if len(sys.argv) > 1:
            save(sys.argv[1], kind.__name__, "tokenizer.json", text.encode())
    for name, model in piece_models():
        golden["tokenizers"].append({"name": name, "file": "tokenizer.model", "base64": base64.b64encode(model).decode(),
                                     "cases": piece_cases(model)})
        if len(sys.argv) > 1:
            save(sys.argv[1], name, "tokenizer.model", model)
    lines = [json.dumps(t, ensure_ascii=True, separators=(",", ":")) for t in golden["tokenizers"]]
    with open(os.path.join(HERE, "tokenizers.json"), "w", encoding="utf-8") as out:
        out.write('{"texts": ' + json.dumps(TEXTS) + ',\n"tokenizers": [\n' + ",\n".join(lines) + "\n]}\n")


main()
