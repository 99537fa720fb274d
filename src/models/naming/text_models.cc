// The names of transformers' language models.
#include "src/models/naming/naming.h"

namespace trainyard {

namespace {

// The projections are Conv1D layers, whose weights are [inputs, outputs].
NamingScheme gpt2() {
  return {
      .title = "transformers' GPT-2",
      .presets = "gpt2",
      .marks = {"h.{i}.attn.c_attn.weight"},
      .prefixes = {"transformer."},
      .rows = {{"wte.weight", {"wte.weight"}},
               {"wpe.weight", {"wpe.weight"}, Arrangement::kFirstRows},
               {"h{i}_ln_1.{p}", {"h.{i}.ln_1.{p}"}},
               {"h{i}_attn_qkv.weight", {"h.{i}.attn.c_attn.weight"}, Arrangement::kTransposed},
               {"h{i}_attn_qkv.bias", {"h.{i}.attn.c_attn.bias"}},
               {"h{i}_attn_proj.weight", {"h.{i}.attn.c_proj.weight"}, Arrangement::kTransposed},
               {"h{i}_attn_proj.bias", {"h.{i}.attn.c_proj.bias"}},
               {"h{i}_ln_2.{p}", {"h.{i}.ln_2.{p}"}},
               {"h{i}_mlp_fc.weight", {"h.{i}.mlp.c_fc.weight"}, Arrangement::kTransposed},
               {"h{i}_mlp_fc.bias", {"h.{i}.mlp.c_fc.bias"}},
               {"h{i}_mlp_proj.weight", {"h.{i}.mlp.c_proj.weight"}, Arrangement::kTransposed},
               {"h{i}_mlp_proj.bias", {"h.{i}.mlp.c_proj.bias"}},
               {"ln_f.{p}", {"ln_f.{p}"}}},
      .unneeded = {{"*h.*.attn.bias", "a causal mask"},
                   {"*h.*.attn.masked_bias", "a constant of the causal mask"},
                   {"lm_head.weight", "the head uses the weight of wte"}}};
}

std::vector<NamingScheme> text_without_preset() {
  return {{.title = "BERT or a model of its kind, such as RoBERTa",
           .presets = "",
           .marks = {"encoder.layer.{i}.attention.self.query.weight"},
           .prefixes = {"bert.", "roberta.", "electra.", "camembert."}},
          {.title = "DistilBERT",
           .presets = "",
           .marks = {"transformer.layer.{i}.attention.q_lin.weight"},
           .prefixes = {"distilbert."}},
          {.title = "a language model of Llama's kind",
           .presets = "",
           .marks = {"layers.{i}.self_attn.q_proj.weight"},
           .prefixes = {"model.", "model.decoder."}}};
}

}  // namespace

std::vector<NamingScheme> text_schemes() {
  std::vector<NamingScheme> all = {gpt2()};
  for (NamingScheme& scheme : text_without_preset()) all.push_back(std::move(scheme));
  return all;
}

}  // namespace trainyard
