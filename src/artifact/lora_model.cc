#include "src/artifact/lora_model.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>

#include "src/checkpoint/typed_bytes.h"
#include "src/models/lora.h"
#include "src/models/naming/naming.h"
#include "src/models/preset.h"

namespace trainyard {
namespace {

std::string without(std::string_view name, std::string_view suffix) {
  return std::string(name.substr(0, name.size() - suffix.size()));
}

std::vector<float> floats_of(const TensorView& t) {
  std::vector<std::byte> widened;
  const std::span<const std::byte> bytes = typed_bytes(t, widened);
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

/// Returns W + scale * B A. Sums are kept in double, so that the only float rounding is that of the
/// result.
std::vector<std::byte> merge(const TensorView& weight, const TensorView& a, const TensorView& b,
                             double scale) {
  std::vector<float> w = floats_of(weight);
  const std::vector<float> va = floats_of(a), vb = floats_of(b);
  const auto rank = static_cast<size_t>(a.type.shape[0]);
  const auto inputs = static_cast<size_t>(a.type.shape[1]);
  std::vector<double> row(inputs);
  for (size_t o = 0; o * inputs < w.size(); ++o) {
    std::ranges::fill(row, 0.0);
    for (size_t r = 0; r < rank; ++r) {
      const double factor = scale * static_cast<double>(vb[o * rank + r]);
      for (size_t i = 0; i < inputs; ++i)
        row[i] += factor * static_cast<double>(va[r * inputs + i]);
    }
    for (size_t i = 0; i < inputs; ++i) {
      float& value = w[o * inputs + i];
      value = static_cast<float>(static_cast<double>(value) + row[i]);
    }
  }
  const std::span<const std::byte> bytes = std::as_bytes(std::span(w));
  return {bytes.begin(), bytes.end()};
}

/// The modules of the program that made a model, by the layers here.
class Modules {
 public:
  explicit Modules(const ModelSpec& model) {
    if (model.preset != "decoder" && model.preset != "gpt2") return;
    for (const NamingScheme& scheme : naming_schemes()) {
      if (scheme.presets == model.preset) schemes_.push_back(&scheme);
    }
  }
  bool is_language_model() const { return !schemes_.empty(); }
  /// Returns true if the modules store their weights transposed (transformers' Conv1D).
  bool are_transposed() const { return are_transposed_; }

  /// Returns the module of a layer, with dots as in PyTorch: "model.layers.0.self_attn.q_proj" for
  /// h0_q of a decoder, "layer1.0.fc" for layer1/0/fc.
  std::string name_of(std::string layer) {
    constexpr std::string_view kWeight = ".weight";
    for (const NamingScheme* scheme : schemes_) {
      const auto names = library_names(*scheme, layer + std::string(kWeight));
      if (!names || names->names.size() != 1) continue;
      are_transposed_ = are_transposed_ || names->arrangement == Arrangement::kTransposed;
      return without(names->names.front(), kWeight);
    }
    std::ranges::replace(layer, '/', '.');
    return layer;
  }

 private:
  std::vector<const NamingScheme*> schemes_;
  bool are_transposed_ = false;
};

std::string last_part(const std::string& module) { return module.substr(module.rfind('.') + 1); }

/// Returns what PEFT's target_modules says: the last part of names where all modules with that part
/// are adapted, else whole names. `modules`: all modules that have a weight.
std::vector<std::string> target_modules(const std::vector<std::string>& adapted,
                                        const std::vector<std::string>& modules) {
  std::map<std::string, int64_t> open;  // the modules by their last part that are not adapted
  for (const std::string& module : modules) ++open[last_part(module)];
  for (const std::string& module : adapted) --open[last_part(module)];
  std::vector<std::string> targets;
  for (const std::string& module : adapted) {
    const std::string last = last_part(module);
    const std::string target = open[last] == 0 ? last : module;
    if (std::ranges::find(targets, target) == targets.end()) targets.push_back(target);
  }
  return targets;
}

const std::string& base_name(const InitialWeights& weights) {
  return weights.title.empty() ? weights.source : weights.title;
}

nlohmann::json adapter_config(const Recipe& recipe, const Modules& modules,
                              std::vector<std::string> targets, bool classifies) {
  nlohmann::json config = {
      {"peft_type", "LORA"},
      {"r", recipe.lora.rank},
      {"lora_alpha", recipe.lora.alpha},
      {"lora_dropout", recipe.lora.dropout},
      {"use_rslora", recipe.lora.rank_scaling == kRankScalingSqrt},
      {"target_modules", std::move(targets)},
      {"bias", "none"},
      {"fan_in_fan_out", modules.are_transposed()},
      {"inference_mode", true},
      {"base_model_name_or_path", base_name(recipe.initial_weights)},
      {"task_type", modules.is_language_model() ? nlohmann::json("CAUSAL_LM") : nlohmann::json()}};
  if (classifies) {
    config["task_type"] = "SEQ_CLS";
    config["modules_to_save"] = nlohmann::json::array({kClassifierHead});
  }
  return config;
}

}  // namespace

LoraModel split_lora(const ModelSpec& network, const Recipe& recipe,
                     std::span<const TensorView> weights) {
  std::map<std::string_view, const TensorView*> by_name;
  for (const TensorView& t : weights) by_name[t.name] = &t;
  LoraModel out;
  Modules names(network);
  std::vector<std::string> adapted, modules;
  const std::string head = std::string(kClassifierHead) + ".weight";
  const bool classifies = names.is_language_model() && by_name.contains(head) &&
                          !by_name.contains(std::string(kClassifierHead) + std::string(kLoraA));
  if (classifies) {
    const TensorView& t = *by_name.at(head);
    out.adapter.push_back({std::string(kPeftPrefix) + head, t.type, t.bytes});
  }
  for (const TensorView& t : weights) {
    if (is_lora(t.name)) {
      const std::string_view suffix = t.name.ends_with(kLoraA) ? kLoraA : kLoraB;
      const std::string module = names.name_of(without(t.name, suffix));
      if (suffix == kLoraA) adapted.push_back(module);
      out.adapter.push_back(
          {std::string(kPeftPrefix) + module + std::string(suffix), t.type, t.bytes});
      continue;
    }
    const std::string layer = t.name.ends_with(".weight") ? without(t.name, ".weight") : "";
    if (!layer.empty()) modules.push_back(names.name_of(layer));
    const std::string name_a = layer + std::string(kLoraA);
    const auto a = by_name.find(name_a);
    if (a == by_name.end()) {
      std::vector<std::byte>& widened = out.storage.emplace_back();
      out.weights.push_back({t.name, t.type, typed_bytes(t, widened)});
      continue;
    }
    const TensorView& b = *by_name.at(layer + std::string(kLoraB));
    out.storage.push_back(merge(t, *a->second, b, lora_scale(recipe.lora)));
    out.weights.push_back({t.name, t.type, out.storage.back()});
  }
  const nlohmann::json config =
      adapter_config(recipe, names, target_modules(adapted, modules), classifies);
  out.adapter_config = config.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  return out;
}

}  // namespace trainyard
