"""Folders of language models (model.pretrained) through plan, local run and submit, without any other library: a tiny
Llama of random weights that the test writes itself. The test fails if weights in several files train otherwise than in
one, if BF16 is not widened exactly, if a folder that lies is accepted, if config.json alone cannot be planned, or if two
jobs that train additions to one model each have a copy of it in memory.
tests/engine/families_test.cc has the families, and tests/e2e/test_pretrained_torch.py compares them with transformers.
"""

import json
import pathlib
import random
import re
import struct
import subprocess
import unittest

from harness import BIN, DaemonTest, wait_until
from tiny_chat_model import byte_letters

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 32, "hidden_size": 16, "head_dim": 8,
    "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
    "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": False,
    "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"}, "dtype": "bfloat16"}

SPEC = """
name: {name}
dataset:
  name: letters
  path: letters.txt
  text: {{tokenizer: char}}
model: {{pretrained: {folder}}}
recipe:
  steps: 3
  batch_size: 2
  context_length: 16
  precision: fp32
  seed: 1
  optimizer: {{type: adamw, learning_rate: 0.001}}
{recipe}"""


def shapes(config=CONFIG):
    width, hidden, head = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    queries, keys = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    table = [config["vocab_size"], width]
    result = {"model.embed_tokens.weight": table, "model.norm.weight": [width]}
    for i in range(config["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        result |= {
            layer + "input_layernorm.weight": [width], layer + "post_attention_layernorm.weight": [width],
            layer + "self_attn.q_proj.weight": [queries, width], layer + "self_attn.k_proj.weight": [keys, width],
            layer + "self_attn.v_proj.weight": [keys, width], layer + "self_attn.o_proj.weight": [width, queries],
            layer + "mlp.gate_proj.weight": [hidden, width], layer + "mlp.up_proj.weight": [hidden, width],
            layer + "mlp.down_proj.weight": [width, hidden]}
    if not config["tie_word_embeddings"]:
        result["lm_head.weight"] = table
    return result


def bf16(value):
    return struct.unpack("<I", struct.pack("<f", value))[0] >> 16


def tensors(config=CONFIG, seed=5):
    """Returns (shape, numbers that BF16 has exactly) of each tensor, by name."""
    draw = random.Random(seed)
    result = {}
    for name, shape in shapes(config).items():
        count = 1
        for size in shape:
            count *= size
        bits = [bf16(draw.gauss(1 if "norm" in name else 0, 0.2)) for _ in range(count)]
        result[name] = (shape, [struct.unpack("<f", struct.pack("<I", b << 16))[0] for b in bits])
    return result


def safetensors(weights, dtype="BF16"):
    header, data = {}, b""
    for name, (shape, values) in weights.items():
        begin = len(data)
        if dtype == "BF16":
            data += b"".join(struct.pack("<H", bf16(v)) for v in values)
        else:
            data += struct.pack(f"<{len(values)}f", *values)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, len(data)]}
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def mapped_kib(pid, folder):
    """Returns the sums of Rss, Pss and Private_Dirty of the process's pages of files in `folder`, in KiB."""
    sums, counts = dict.fromkeys(("Rss", "Pss", "Private_Dirty"), 0), False
    try:
        lines = pathlib.Path(f"/proc/{pid}/smaps").read_text().splitlines()
    except OSError:  # it has ended
        return sums
    for line in lines:
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            counts = f" {folder}/" in line
        elif counts and (name := line.split(":")[0]) in sums:
            sums[name] += int(line.split()[1])
    return sums


class Pretrained(DaemonTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        draw = random.Random(1)
        (cls.folder / "letters.txt").write_text("".join(draw.choice("abcdefghij klmn") for _ in range(2000)))

    def model(self, name, config=CONFIG, weights=None, dtype="BF16"):
        self.write(f"{name}/config.json", json.dumps(config))
        if weights is None:
            weights = tensors(config)
        return self.write(f"{name}/model.safetensors", safetensors(weights, dtype)).parent

    def shards(self, name, config=CONFIG, change=None):
        """Writes the weights as two files with an index; `change` may falsify the map and the files."""
        self.write(f"{name}/config.json", json.dumps(config))
        parts, where = {"a.safetensors": {}, "b.safetensors": {}}, {}
        for i, (tensor, content) in enumerate(tensors(config).items()):
            file = "ab"[i % 2] + ".safetensors"
            parts[file][tensor] = content
            where[tensor] = file
        if change is not None:
            change(parts, where)
        for file, weights in parts.items():
            self.write(f"{name}/{file}", safetensors(weights))
        index = {"metadata": {}, "weight_map": where}
        return self.write(f"{name}/model.safetensors.index.json", json.dumps(index)).parent

    def spec(self, name, folder, recipe=""):
        return self.write(f"{name}.yaml", SPEC.format(name=name, folder=folder, recipe=recipe))

    def run_local(self, spec, *arguments):
        done = subprocess.run([BIN / "trainyard", "local", "run", spec, "-o", "json", *arguments],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def refuse(self, name, *words, exit_code=2, command=("plan", "--local")):
        done = subprocess.run([BIN / "trainyard", *command, self.spec(name, name)], capture_output=True, text=True,
                              check=False)
        self.assert_refused(done, exit_code, "model.pretrained", *words)

    def test_one_file_and_several_and_both_types_train_to_the_same_bits(self):
        self.model("one")
        self.model("wide", dtype="F32")
        self.shards("several")
        results = [self.run_local(self.spec(f"run-{name}", name)) for name in ("one", "wide", "several")]
        self.assertEqual(results[0]["metrics"], results[1]["metrics"])
        self.assertEqual(results[0]["metrics"], results[2]["metrics"])
        other = self.model("other", weights=tensors(seed=6)).name
        self.assertNotEqual(self.run_local(self.spec("run-other", other))["metrics"], results[0]["metrics"])

    def test_the_server_trains_weights_in_several_files_as_here(self):
        self.shards("sent")
        here = self.run_local(self.spec("sent-here", "sent"))
        spec = self.spec("sent-there", "sent")
        self.daemon.cli("submit", spec, "--wait")
        job = self.daemon.job("sent-there")
        self.assertEqual(int(job["spec"]["model"]["decoder"]["n_kv_head"]), 1)
        self.assertEqual(job["spec"]["model"]["pretrained"], "")
        # The server may use another number of threads.
        self.assertAlmostEqual(job["progress"]["metrics"]["train/loss"], here["metrics"]["train/loss"], places=5)
        self.assertIn("Llama or a family of its kind", json.dumps(job["plan"]["initial_weights"]))
        self.assertEqual(job["plan"]["initial_weights"]["missing"]["count"], 0)

    def test_two_jobs_on_one_base_hold_it_once(self):
        config = CONFIG | {"vocab_size": 1024, "hidden_size": 64, "intermediate_size": 128}
        self.model("base", config)
        names = ("on-base-1", "on-base-2")
        for name in names:
            spec = self.spec(name, "base", "  lora: {rank: 2, targets: [all-linear]}\nresources: {threads: 1}\n")
            self.write(spec.name, spec.read_text().replace("steps: 3", "steps: 100000000"))
            self.daemon.cli("submit", spec)
        for name in names:
            wait_until(lambda name=name: int(self.daemon.job(name)["progress"]["step"]) > 0, f"{name} trains")
        memory = [self.daemon.job(name)["plan"]["memory"] for name in names]
        mapped = int(memory[0]["mapped_bytes"])
        # All but rows that are no multiple of 64 bytes; here every tensor is one.
        self.assertEqual(mapped, 2 * sum(len(values) for _, values in tensors(config).values()))
        self.assertEqual(memory[0], memory[1])
        self.assertIn("mapped from the file", self.daemon.cli("plan", "--upload", spec).stdout)
        files = [mapped_kib(pid, self.daemon.state / "uploads") for pid in self.daemon.worker_pids()]
        files = [sums for sums in files if sums["Rss"] > 0]
        self.assertEqual(len(files), 2)
        pages = mapped / 1024 + 8  # and the pages that have parts of other tensors and the header
        for sums in files:
            self.assertGreater(sums["Rss"], mapped / 1024 - 1)
            self.assertEqual(sums["Private_Dirty"], 0)
        self.assertLess(sum(sums["Pss"] for sums in files), pages)
        for name in names:
            self.daemon.cli("cancel", name)

    def test_an_imported_model_keeps_its_numbers_and_can_be_a_base(self):
        folder = self.model("talks", CONFIG | {"vocab_size": 512})
        vocabulary = {letter: byte for byte, letter in byte_letters().items()}
        byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
        self.write("talks/tokenizer.json", json.dumps({
            "version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": byte_level,
            "post_processor": None, "decoder": byte_level, "model": {"type": "BPE", "vocab": vocabulary, "merges": []}}))
        self.daemon.cli("model", "import", folder, "--name", "talks")
        self.assertEqual({t["dtype"] for t in self.daemon.json("model", "get", "talks")["tensors"]}, {"BF16"})
        self.assertNotEqual(self.daemon.cli("generate", "talks", "--prompt", "a", "--tokens", "3").stdout, "")
        jobs = []
        for name, weights in (("from-folder", ""), ("from-import", "  initial_weights: {model: talks}\n")):
            spec = self.spec(name, "talks", weights + "  lora: {rank: 2, targets: [all-linear]}\n")
            self.daemon.cli("submit", spec, "--wait")
            jobs.append(self.daemon.job(name))
        memory = [job["plan"]["memory"] for job in jobs]
        self.assertGreater(int(memory[0]["mapped_bytes"]), 0)
        self.assertEqual(memory[0]["mapped_bytes"], memory[1]["mapped_bytes"])
        losses = [job["progress"]["metrics"]["train/loss"] for job in jobs]
        self.assertEqual(losses[0], losses[1])

    def test_the_recipe_decides_what_is_taken(self):
        self.model("part")
        plan = json.loads(subprocess.run(
            [BIN / "trainyard", "plan", "--local", "-o", "json",
             self.spec("part", "part", "  initial_weights: {exclude: [head.weight]}")],
            capture_output=True, text=True, check=True).stdout)
        self.assertEqual(plan["run"]["initial_weights"]["left_out"]["names"], ["head.weight"])
        done = subprocess.run([BIN / "trainyard", "plan", "--local",
                               self.spec("part-2", "part", "  initial_weights: {exclude: [nothing]}")],
                              capture_output=True, text=True, check=False)
        self.assert_refused(done, 2, "recipe.initial_weights.exclude[0]")

    def test_a_config_alone_can_be_planned_but_not_trained(self):
        self.write("alone/config.json", json.dumps(CONFIG))
        spec = self.spec("alone", "alone", "  lora: {rank: 2, targets: [all-linear]}")
        done = subprocess.run([BIN / "trainyard", "plan", "--local", spec], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("parameters", done.stdout)
        for command in (["local", "run"], ["submit"]):
            with self.subTest(command):
                done = self.daemon.cli(*command, spec, check=False)
                self.assert_refused(done, 2, "model.pretrained: alone has no weights, expected model.safetensors",
                                    "trainyard plan")

    def test_bad_folders_are_refused_by_name(self):
        self.refuse("missing", "missing: no such folder", exit_code=4)
        self.write("empty/readme", "")
        self.refuse("empty", "has no config.json", exit_code=4)
        for name, change, words in (
                ("family", {"model_type": "gemma3"}, ["model_type: 'gemma3' is not supported", "olmo2"]),
                ("experts", {"num_local_experts": 8}, ["num_local_experts", "mixtures of experts"]),
                ("head", {"tie_word_embeddings": True, "vocab_size": 48}, ["[32, 16]", "[48, 16]"]),
                ("wide", {"intermediate_size": 32}, ["has the shape [24, 16], expected [32, 16]"])):
            with self.subTest(name):
                self.model(f"bad-{name}", weights=tensors())
                self.write(f"bad-{name}/config.json", json.dumps(CONFIG | change))
                self.refuse(f"bad-{name}", *words)
        self.model("untied", weights={n: t for n, t in tensors().items() if n != "lm_head.weight"})
        self.refuse("untied", "tensor 'lm_head.weight' is missing", "tie_word_embeddings: false")
        self.model("tied", CONFIG | {"tie_word_embeddings": True}, weights=tensors())
        self.refuse("tied", "differs from 'model.embed_tokens.weight'", "tie_word_embeddings: true")
        self.write("pickled/config.json", json.dumps(CONFIG))
        self.write("pickled/pytorch_model.bin", b"PK")
        self.refuse("pickled", "pytorch_model.bin can run code", "model.safetensors")

    def test_more_tokens_than_the_table_has_are_refused(self):
        config = CONFIG | {"vocab_size": 8}
        self.model("few", config)
        done = subprocess.run([BIN / "trainyard", "plan", "--local", self.spec("few", "few")], capture_output=True,
                              text=True, check=False)
        self.assert_refused(done, 2, "vocab_size")

    def test_shards_that_lie_are_refused_with_file_and_tensor(self):
        def moved(parts, where):
            where["lm_head.weight"] = "a.safetensors" if where["lm_head.weight"][0] == "b" else "b.safetensors"

        def twice(parts, where):
            parts["a.safetensors"]["model.norm.weight"] = parts["b.safetensors"]["model.norm.weight"]

        def absent(parts, where):
            del parts["b.safetensors"]

        for name, change, words in (("moved", moved, ["tensor 'lm_head.weight' is in"]),
                                    ("twice", twice, ["tensor 'model.norm.weight' is in two files"]),
                                    ("absent", absent, ["names the file 'b.safetensors'"])):
            with self.subTest(name):
                self.shards(name, change=change)
                self.refuse(name, "model.safetensors.index.json", *words, exit_code=4 if name == "absent" else 2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
