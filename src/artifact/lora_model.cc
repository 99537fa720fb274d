#include "src/artifact/lora_model.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>

#include "src/models/lora.h"

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

/// Returns a name in PyTorch's form, such as "layer1.0.fc" for "layer1/0/fc"; PyTorch separates
/// modules by dots.
std::string module_name(std::string layer) {
  std::ranges::replace(layer, '/', '.');
  return layer;
}

}  // namespace

LoraModel split_lora(const Recipe& recipe, std::span<const TensorView> weights) {
  std::map<std::string_view, const TensorView*> by_name;
  for (const TensorView& t : weights) by_name[t.name] = &t;
  LoraModel out;
  std::vector<std::string> modules;
  for (const TensorView& t : weights) {
    if (is_lora(t.name)) {
      const std::string_view suffix = t.name.ends_with(kLoraA) ? kLoraA : kLoraB;
      const std::string module = module_name(without(t.name, suffix));
      if (suffix == kLoraA) modules.push_back(module);
      out.adapter.push_back({"base_model.model." + module + std::string(suffix), t.type, t.bytes});
      continue;
    }
    const std::string layer = t.name.ends_with(".weight") ? without(t.name, ".weight") : "";
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
  const nlohmann::json config = {{"peft_type", "LORA"},
                                 {"r", recipe.lora.rank},
                                 {"lora_alpha", recipe.lora.alpha},
                                 {"lora_dropout", recipe.lora.dropout},
                                 {"use_rslora", recipe.lora.rank_scaling == kRankScalingSqrt},
                                 {"target_modules", modules},
                                 {"bias", "none"},
                                 {"fan_in_fan_out", false},
                                 {"inference_mode", true},
                                 {"base_model_name_or_path", recipe.initial_weights.source},
                                 {"task_type", nullptr}};
  out.adapter_config = config.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  return out;
}

}  // namespace trainyard
