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
      .unprefixed = {"score."},
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
               {"ln_f.{p}", {"ln_f.{p}"}},
               {"score.weight", {"score.weight"}}},
      .unneeded = {{"*h.*.attn.bias", "a causal mask"},
                   {"*h.*.attn.masked_bias", "a constant of the causal mask"},
                   {"lm_head.weight", "the head uses the weight of wte, or classifies"}}};
}

/// The rows of Llama's network without the two normalizations of a block, whose names differ.
std::vector<NameRow> llama_rows() {
  return {{"embed.weight", {"embed_tokens.weight"}},
          {"h{i}_q.{p}", {"layers.{i}.self_attn.q_proj.{p}"}},
          {"h{i}_k.{p}", {"layers.{i}.self_attn.k_proj.{p}"}},
          {"h{i}_v.{p}", {"layers.{i}.self_attn.v_proj.{p}"}},
          {"h{i}_o.{p}", {"layers.{i}.self_attn.o_proj.{p}"}},
          {"h{i}_q_norm.{p}", {"layers.{i}.self_attn.q_norm.{p}"}},
          {"h{i}_k_norm.{p}", {"layers.{i}.self_attn.k_norm.{p}"}},
          {"h{i}_gate.{p}", {"layers.{i}.mlp.gate_proj.{p}"}},
          {"h{i}_up.{p}", {"layers.{i}.mlp.up_proj.{p}"}},
          {"h{i}_down.{p}", {"layers.{i}.mlp.down_proj.{p}"}},
          {"norm.{p}", {"norm.{p}"}},
          {"head.weight", {"lm_head.weight"}},
          {"score.weight", {"score.weight"}}};
}

std::vector<UnneededTensors> unneeded_by_llama() {
  return {{"*rotary_emb.inv_freq", "follows from the settings of rotary positions"},
          {"lm_head.weight", "the head uses the weight of embed, or classifies"}};
}

NamingScheme llama() {
  NamingScheme scheme{.title = "transformers' Llama or a family of its kind",
                      .presets = "decoder",
                      .marks = {"layers.{i}.self_attn.q_proj.weight"},
                      .prefixes = {"model."},
                      .unprefixed = {"lm_head.", "score."},
                      .rows = llama_rows(),
                      .unneeded = unneeded_by_llama()};
  scheme.rows.push_back({"h{i}_attn_norm.{p}", {"layers.{i}.input_layernorm.{p}"}});
  scheme.rows.push_back({"h{i}_mlp_norm.{p}", {"layers.{i}.post_attention_layernorm.{p}"}});
  return scheme;
}

NamingScheme olmo2() {
  NamingScheme scheme{.title = "transformers' OLMo 2",
                      .presets = "decoder",
                      .marks = {"layers.{i}.post_feedforward_layernorm.weight"},
                      .prefixes = {"model."},
                      .unprefixed = {"lm_head.", "score."},
                      .rows = llama_rows(),
                      .unneeded = unneeded_by_llama()};
  scheme.rows.push_back({"h{i}_attn_norm.{p}", {"layers.{i}.post_attention_layernorm.{p}"}});
  scheme.rows.push_back({"h{i}_mlp_norm.{p}", {"layers.{i}.post_feedforward_layernorm.{p}"}});
  return scheme;
}

std::vector<NamingScheme> text_without_preset() {
  return {{.title = "BERT or a model of its kind, such as RoBERTa",
           .presets = "",
           .marks = {"encoder.layer.{i}.attention.self.query.weight"},
           .prefixes = {"bert.", "roberta.", "electra.", "camembert."}},
          {.title = "DistilBERT",
           .presets = "",
           .marks = {"transformer.layer.{i}.attention.q_lin.weight"},
           .prefixes = {"distilbert."}}};
}

}  // namespace

std::vector<NamingScheme> text_schemes() {
  std::vector<NamingScheme> all = {gpt2(), olmo2(), llama()};
  for (NamingScheme& scheme : text_without_preset()) all.push_back(std::move(scheme));
  return all;
}

}  // namespace trainyard
