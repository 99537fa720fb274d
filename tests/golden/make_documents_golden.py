#!/usr/bin/env python3
"""Writes documents.json: the tokens of chats, prompts with completions and texts, and which of them count in the loss.

The judge is transformers: apply_chat_template with return_assistant_tokens_mask for chats, and for prompts with
completions what trl does, whose mask is the length of the prompt's own tokens. Needs transformers and tokenizers (see
tests/e2e/requirements_onnx.txt for how such packages are used); the tests read only the file.

    make_documents_golden.py > documents.json
"""

import json

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

# ChatML, with marks around what the assistant writes, the token that ends an answer included.
TEMPLATE = ("{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' }}"
            "{% if message['role'] == 'assistant' %}{% generation %}{{ message['content'] + '<|im_end|>' }}"
            "{% endgeneration %}{{ '\n' }}{% else %}{{ message['content'] + '<|im_end|>' + '\n' }}{% endif %}{% endfor %}"
            "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
PLAIN = TEMPLATE.replace("{% generation %}", "").replace("{% endgeneration %}", "")

TEXTS = ["The capital of France is Paris.", "What is the capital of France?", "Twelve and thirty make forty-two.",
         "Übermäßig häufig: naïve café", "def add(a, b):\n    return a + b\n", "安い 日本語 text", "the then there these"]

LINES = [
    {"messages": [{"role": "user", "content": "What is the capital of France?"},
                  {"role": "assistant", "content": "The capital of France is Paris."}]},
    {"messages": [{"role": "system", "content": "Answer in one word."}, {"role": "user", "content": "2 + 3?"},
                  {"role": "assistant", "content": "5"}, {"role": "user", "content": "And naïve café?\n\nReally?"},
                  {"role": "assistant", "content": "Übermäßig 🙂\n"}]},
    {"messages": [{"role": "user", "content": " "}, {"role": "assistant", "content": " the then "}]},
    {"prompt": "Twelve and thirty make", "completion": " forty-two."},
    {"prompt": "def add(a, b):\n    ret", "completion": "urn a + b\n"},
    {"prompt": "", "completion": "日本語"},
    {"text": "The capital of France is Paris."},
    {"text": "x"},
]


def make_tokenizer() -> tokenizers.Tokenizer:
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=330, special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator(TEXTS, trainer)
    return tokenizer


def expected(tokenizer: PreTrainedTokenizerFast, line: dict) -> dict:
    if "messages" in line:
        out = tokenizer.apply_chat_template(line["messages"], chat_template=TEMPLATE, tokenize=True, return_dict=True,
                                            return_assistant_tokens_mask=True)
        return {"tokens": out["input_ids"], "counted": out["assistant_masks"]}
    end = tokenizer.eos_token_id
    prompt = tokenizer(line.get("prompt", ""))["input_ids"]
    tokens = tokenizer(line.get("prompt", "") + line.get("completion", line.get("text", "")))["input_ids"]
    # A token that contains the end of the prompt and the begin of the completion belongs to the prompt.
    shared = len(prompt)
    while tokens[:shared] != prompt[:shared]:
        shared -= 1
    if shared < len(prompt):
        shared += 1
    counted = [0] * shared + [1] * (len(tokens) - shared)
    return {"tokens": tokens + [end], "counted": counted + [1]}


def main() -> None:
    raw = make_tokenizer()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    config = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "chat_template": PLAIN,
              "tokenizer_class": "PreTrainedTokenizerFast"}
    documents = [expected(tokenizer, line) for line in LINES]
    for document in documents:
        document["counted"][0] = 0  # nothing comes before it
    print(json.dumps({"files": {"tokenizer.json": raw.to_str(), "tokenizer_config.json": json.dumps(config)},
                      "lines": [json.dumps(line, ensure_ascii=i % 2 == 0) for i, line in enumerate(LINES)],
                      "documents": documents}, ensure_ascii=False, indent=1))


if __name__ == "__main__":
    main()
