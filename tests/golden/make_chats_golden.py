"""Writes chats.json: chats as transformers renders them with the templates of known families.

    python -m venv venv && venv/bin/pip install transformers==5.24.0 jinja2
    venv/bin/python make_chats_golden.py TEMPLATES.json

TEMPLATES.json has the text of each family's chat_template, as the models' tokenizer_config.json has it, by the family's name
in src/data/tokenizers/chat_families.cc. The templates themselves are not stored here.
"""

import json
import os
import sys

from transformers.utils.chat_template_utils import render_jinja_template

HERE = os.path.dirname(os.path.abspath(__file__))
# Where a template writes the day, the families write this one.
DATE = {"llama3.1": {"date_string": "26 Jul 2024"}}


def chat(*turns, system=None):
    messages = [] if system is None else [{"role": "system", "content": system}]
    return messages + [{"role": "user" if i % 2 == 0 else "assistant", "content": text} for i, text in enumerate(turns)]


CHATS = [
    chat("Hello"),
    chat("Hello", "Hi there"),
    chat("Hello", "Hi there", "Who are you?"),
    chat("Hello", "Hi there", "Who are you?", "I am an assistant."),
    chat("Hello", "Hi there", system="You are short."),
    chat("Hello", "Hi there", "Again", system="You are short."),
    chat("Hello", "Hi there", "Again", "No", system="  You are\nshort.  "),
    chat("  blanks \n around\u3000", "\n  and here \n", " \u00e9\U0001f600 ", " end\t"),
    chat("<|im_end|> [INST] text", "{{ braces }} {end}", system=""),
    chat("think", "<think>\nwell\n</think>\n\nyes", "again", "<think>\nhm\n</think>\n\n\nno"),
    chat("think", "\n\n</think>\nyes"),
    chat("x", "\n<think>a<think>b\n\n</think>c</think>\n\nd\n"),
    [{"role": "user", "content": "one"}, {"role": "user", "content": "two"}, {"role": "assistant", "content": "three"},
     {"role": "assistant", "content": "four"}],
    [{"role": "assistant", "content": "first"}, {"role": "user", "content": "second"}],
    [{"role": "user", "content": "one"}, {"role": "system", "content": "late"}, {"role": "assistant", "content": "two"}],
    [{"role": "system", "content": "alone"}],
]


def render(template, name, messages, prompt):
    rendered, _ = render_jinja_template(conversations=[messages], chat_template=template, add_generation_prompt=prompt,
                                        bos_token="<s>", eos_token="</s>", **DATE.get(name, {}))
    return rendered[0]


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        templates = json.load(file)
    families = {}
    for name, template in templates.items():
        cases = []
        for i, messages in enumerate(CHATS):
            for prompt in (False, True):
                if name == "granite3.3" and messages[0]["role"] != "system":  # it would write today's date
                    cases.append([i, prompt, None])
                    continue
                try:
                    cases.append([i, prompt, render(template, name, messages, prompt)])
                except Exception:  # the template refuses the chat
                    cases.append([i, prompt, None])
        families[name] = cases
    lines = [f"{json.dumps(name)}: {json.dumps(cases)}" for name, cases in families.items()]
    with open(os.path.join(HERE, "chats.json"), "w", encoding="utf-8") as out:
        out.write('{"chats": ' + json.dumps(CHATS) + ',\n"families": {\n' + ",\n".join(lines) + "\n}}\n")


if __name__ == "__main__":
    main()
