"""Calls to language models: the continuation of texts, and answers of chats."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from trainyard import _rpc as rpc
from trainyard import v1


class TextCalls:
    """The calls of `Client` to language models."""

    _channel: rpc.Channel
    _model_name: Callable[[Any], str]

    def generate(self, model: str | v1.Model | v1.Job, prompt: str | bytes, *, tokens: int = 256,
                 temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0,
                 repetition_penalty: float = 1.0, stop: Sequence[str] = (), ignore_end: bool = False,
                 seed: int = 0) -> Iterator[str]:
        """Continues a text with a language model: yields the text of each new token as it is generated. Leaving the
        loop stops the generation. The same arguments give the same text.

        tokens              the most tokens to add; the model's end token ends the text before, unless `ignore_end`
        temperature         0 always takes the most probable token; values below 1 favor probable tokens
        top_k               sample from the top_k most probable tokens; 0: from all
        top_p               sample from the fewest tokens whose probabilities sum to top_p (nucleus sampling)
        min_p               sample from the tokens at least min_p times as probable as the most probable
        repetition_penalty  above 1 avoids tokens that the text already has
        stop                the text ends before the first of these texts

        InvalidArgumentError / PROMPT_INVALID for a prompt that is empty or has characters that the model does not
        know; ConflictError / GENERATE_UNSUPPORTED for a model that does not continue text.
        """
        request = self._generate_request(model, token_count=tokens, temperature=temperature, top_k=top_k, top_p=top_p,
                                         min_p=min_p, repetition_penalty=repetition_penalty, stop=stop,
                                         ignore_end=ignore_end, seed=seed)
        request.prompt = prompt.encode() if isinstance(prompt, str) else prompt
        return self._texts(request)

    def chat(self, model: str | v1.Model | v1.Job, messages: Sequence[Mapping[str, str]], *, tokens: int = 512,
             temperature: float = 0.7, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0,
             repetition_penalty: float = 1.0, stop: Sequence[str] = (), seed: int = 0) -> Iterator[str]:
        """Answers a chat: yields the text of the answer as it is generated. `messages` is the whole chat so far, such as
        [{"role": "user", "content": "What is 2+3?"}]; the model's template makes one text of it. The options are those
        of `generate`.

        InvalidArgumentError / MESSAGES_UNSUPPORTED for a model without a template for chats, CHAT_INVALID for messages
        that it does not take, PROMPT_TOO_LONG for a chat longer than the model sees.
        """
        request = self._generate_request(model, token_count=tokens, temperature=temperature, top_k=top_k, top_p=top_p,
                                         min_p=min_p, repetition_penalty=repetition_penalty, stop=stop, seed=seed)
        request.messages.extend(v1.ChatMessage(role=m["role"], content=m["content"]) for m in messages)
        return self._texts(request)

    def generate_all(self, model: str | v1.Model | v1.Job, prompts: Sequence[str | bytes], *, tokens: int = 256,
                     temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0,
                     repetition_penalty: float = 1.0, stop: Sequence[str] = (), ignore_end: bool = False,
                     seed: int = 0) -> list[str]:
        """Continues up to 16 texts together and returns what is added to each. The options are those of `generate`."""
        request = self._generate_request(model, token_count=tokens, temperature=temperature, top_k=top_k, top_p=top_p,
                                         min_p=min_p, repetition_penalty=repetition_penalty, stop=stop,
                                         ignore_end=ignore_end, seed=seed)
        request.prompts.extend(p.encode() if isinstance(p, str) else p for p in prompts)
        texts = [b""] * len(prompts)
        with self._channel.stream(rpc.GENERATE, request, rpc.GENERATE_TIMEOUT_S, rpc.GENERATE_TIMEOUT_S) as pieces:
            for piece in pieces:
                texts[piece.index] += piece.text
        return [text.decode("utf-8", "replace") for text in texts]

    def _generate_request(self, model: str | v1.Model | v1.Job, **fields: Any) -> v1.GenerateRequest:
        return v1.GenerateRequest(name=self._model_name(model), **fields)

    def _texts(self, request: v1.GenerateRequest) -> Iterator[str]:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")  # a byte model yields characters in parts
        with self._channel.stream(rpc.GENERATE, request, rpc.GENERATE_TIMEOUT_S, rpc.GENERATE_TIMEOUT_S) as pieces:
            for piece in pieces:
                if text := decoder.decode(piece.text):
                    yield text
        if text := decoder.decode(b"", final=True):
            yield text
