#!/usr/bin/env python3
"""Writes support_chats.jsonl: 500 short messages of made-up customers, each with the answer that a program can read.

The task is one that a small chat model cannot do before it is trained on it, and whose success can be counted: the answer is one
line, order, intent and tone, and is right only if it is the same to the letter.

    python3 make_support_chats.py > support_chats.jsonl
"""
import json
import random

INTENTS = {
    "refund": ["I want my money back", "please refund me", "I would like a refund", "send the money back to my card"],
    "replace": ["please send me a new one", "I need a replacement", "can you exchange it", "I would like another one instead"],
    "track": ["where is it", "when does it arrive", "the tracking page shows nothing", "it should have been here last week"],
    "cancel": ["please cancel it", "I do not need it any more", "stop it before it ships", "I ordered it by mistake"],
    "address": ["I have moved", "please ship it to my new address", "the street is wrong", "change where it goes"],
}
ITEMS = ["kettle", "lamp", "keyboard", "backpack", "tent", "mixer", "printer", "jacket", "bicycle pump", "headphones"]
CAUSES = {
    "refund": ["arrived broken", "is the wrong color", "stopped working after a day"],
    "replace": ["arrived broken", "is too small", "has a scratch"],
    "track": ["has not arrived", "is late", "was sent two weeks ago"],
    "cancel": ["has not shipped yet", "is still being packed", "was placed an hour ago"],
    "address": ["has not shipped yet", "is on its way", "goes to the wrong house"],
}
TONES = {"calm": ["Hello, ", "Good morning. ", "Hi there, ", "Dear team, "],
         "angry": ["This is unacceptable! ", "I am really annoyed: ", "For the third time! ", "Terrible service. "]}
ORDER = ["my {item}, order {order}, {cause}; {wish}.", "order {order} ({item}) {cause}. {Wish}.",
         "the {item} from order {order} {cause} and {wish}.", "{wish}: the {item} of order {order} {cause}."]
SYSTEM = "Answer with one line: order, intent, tone."


def row(draw: random.Random) -> dict:
    intent = draw.choice(list(INTENTS))
    tone = draw.choice(list(TONES))
    order = draw.randint(10000, 99999)
    wish = draw.choice(INTENTS[intent])
    text = draw.choice(TONES[tone]) + draw.choice(ORDER).format(
        item=draw.choice(ITEMS), order=order, cause=draw.choice(CAUSES[intent]), wish=wish, Wish=wish[0].upper() + wish[1:])
    return {"messages": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": text},
                         {"role": "assistant", "content": f"order={order} intent={intent} tone={tone}"}]}


def main() -> None:
    draw = random.Random(2026)
    seen = set()
    while len(seen) < 500:
        line = json.dumps(row(draw))
        if line not in seen:
            seen.add(line)
            print(line)


if __name__ == "__main__":
    main()
