#include "src/models/families/expected_tensors.h"

#include <algorithm>
#include <map>

#include "src/base/glob.h"
#include "src/base/text.h"
#include "src/models/naming/naming.h"

namespace trainyard {
namespace {

class Tensors {
 public:
  void add(std::string name, Shape shape) { list_.push_back({std::move(name), std::move(shape)}); }
  /// Adds the weight of a dense layer, and its bias if it has one.
  void add_dense(const std::string& layer, int64_t units, int64_t inputs, bool bias) {
    add(layer + ".weight", {units, inputs});
    if (bias) add(layer + ".bias", {units});
  }
  std::vector<ExpectedTensor> take() { return std::move(list_); }

 private:
  std::vector<ExpectedTensor> list_;
};

/// Returns the naming scheme of the model's preset whose names the expected tensors have.
const NamingScheme* scheme_of(const LanguageModel& model) {
  const auto& schemes = naming_schemes();
  const auto it = std::ranges::find_if(schemes, [&](const NamingScheme& scheme) {
    return scheme.presets == model.network.preset &&
           std::ranges::any_of(model.tensors, [&](const ExpectedTensor& tensor) {
             return has_mark(scheme, tensor.name);
           });
  });
  return it == schemes.end() ? nullptr : &*it;
}

std::string without_prefix(const NamingScheme* scheme, std::string_view name) {
  if (scheme == nullptr) return std::string(name);
  for (const std::string_view prefix : scheme->prefixes) {
    if (name.starts_with(prefix)) return std::string(name.substr(prefix.size()));
  }
  return std::string(name);
}

bool is_unneeded(const NamingScheme* scheme, std::string_view name) {
  return scheme != nullptr &&
         std::ranges::any_of(scheme->unneeded, [&](const UnneededTensors& tensors) {
           return glob_match(tensors.pattern, name);
         });
}

Error tensor_error(std::string_view name, const std::string& what) {
  return make_error(ErrorCode::kInvalidArgument, "MODEL_FILE_INVALID",
                    "tensor " + quoted_value(name) + " " + what);
}

}  // namespace

std::vector<ExpectedTensor> decoder_tensors(const FamilySizes& s) {
  Tensors tensors;
  tensors.add("model.embed_tokens.weight", {s.vocabulary, s.width});
  const int64_t query = s.heads * s.head_dim, key = s.kv_heads * s.head_dim;
  for (int64_t i = 0; i < s.layers; ++i) {
    const std::string layer = "model.layers." + std::to_string(i) + ".";
    const std::string attention = layer + "self_attn.", mlp = layer + "mlp.";
    if (!s.norm_after) tensors.add(layer + "input_layernorm.weight", {s.width});
    tensors.add_dense(attention + "q_proj", query, s.width, s.qkv_bias);
    tensors.add_dense(attention + "k_proj", key, s.width, s.qkv_bias);
    tensors.add_dense(attention + "v_proj", key, s.width, s.qkv_bias);
    if (s.qk_norm != "none") {
      const bool whole = s.qk_norm == "all";
      tensors.add(attention + "q_norm.weight", {whole ? query : s.head_dim});
      tensors.add(attention + "k_norm.weight", {whole ? key : s.head_dim});
    }
    tensors.add_dense(attention + "o_proj", s.width, query, s.out_bias);
    tensors.add(layer + "post_attention_layernorm.weight", {s.width});
    tensors.add_dense(mlp + "gate_proj", s.hidden, s.width, s.mlp_bias);
    tensors.add_dense(mlp + "up_proj", s.hidden, s.width, s.mlp_bias);
    tensors.add_dense(mlp + "down_proj", s.width, s.hidden, s.mlp_bias);
    if (s.norm_after) tensors.add(layer + "post_feedforward_layernorm.weight", {s.width});
  }
  tensors.add("model.norm.weight", {s.width});
  if (!s.tied) tensors.add("lm_head.weight", {s.vocabulary, s.width});
  return tensors.take();
}

std::vector<ExpectedTensor> gpt2_tensors(int64_t layers, int64_t width, int64_t vocabulary,
                                         int64_t positions) {
  Tensors tensors;
  tensors.add("transformer.wte.weight", {vocabulary, width});
  tensors.add("transformer.wpe.weight", {positions, width});
  const auto add_norm = [&](const std::string& name) {
    tensors.add(name + ".weight", {width});
    tensors.add(name + ".bias", {width});
  };
  const auto add_product = [&](const std::string& name, int64_t inputs, int64_t outputs) {
    tensors.add(name + ".weight", {inputs, outputs});
    tensors.add(name + ".bias", {outputs});
  };
  for (int64_t i = 0; i < layers; ++i) {
    const std::string layer = "transformer.h." + std::to_string(i) + ".";
    add_norm(layer + "ln_1");
    add_product(layer + "attn.c_attn", width, 3 * width);
    add_product(layer + "attn.c_proj", width, width);
    add_norm(layer + "ln_2");
    add_product(layer + "mlp.c_fc", width, 4 * width);
    add_product(layer + "mlp.c_proj", 4 * width, width);
  }
  add_norm("transformer.ln_f");
  return tensors.take();
}

Status check_tensors(const LanguageModel& model, const std::vector<TensorShape>& tensors) {
  const NamingScheme* const scheme = scheme_of(model);
  std::map<std::string, const TensorShape*> by_name;
  for (const TensorShape& tensor : tensors) {
    by_name.emplace(without_prefix(scheme, tensor.name), &tensor);
  }
  for (const ExpectedTensor& expected : model.tensors) {
    const auto it = by_name.find(without_prefix(scheme, expected.name));
    if (it == by_name.end()) {
      const bool is_head = expected.name == "lm_head.weight";
      return tensor_error(expected.name,
                          is_head ? "is missing: config.json says tie_word_embeddings: false, so "
                                    "the last layer has a table of its own"
                                  : "is missing, which config.json needs");
    }
    const Shape& shape = it->second->shape;
    if (shape != expected.shape) {
      return tensor_error(it->second->name, "has the shape " + shape.to_string() + ", expected " +
                                                expected.shape.to_string() + " by config.json");
    }
    by_name.erase(it);
  }
  for (const auto& [bare, tensor] : by_name) {
    if (is_unneeded(scheme, tensor->name)) continue;
    return tensor_error(tensor->name,
                        "is not of the network that config.json describes (" + model.title + ")");
  }
  return {};
}

}  // namespace trainyard
