#include "src/models/lora.h"

#include <algorithm>
#include <array>

#include "src/base/glob.h"

namespace trainyard {
namespace {

/// The names by which PEFT's configurations name the linear modules of a transformer, and the
/// layers of the presets decoder and gpt2 that are these modules.
struct ModuleName {
  std::string_view name, layers;
};
constexpr std::array kModuleNames = {
    ModuleName{"q_proj", "h*_q"},         ModuleName{"k_proj", "h*_k"},
    ModuleName{"v_proj", "h*_v"},         ModuleName{"o_proj", "h*_o"},
    ModuleName{"gate_proj", "h*_gate"},   ModuleName{"up_proj", "h*_up"},
    ModuleName{"down_proj", "h*_down"},   ModuleName{"c_attn", "h*_attn_qkv"},
    ModuleName{"c_proj", "h*_attn_proj"}, ModuleName{"c_proj", "h*_mlp_proj"},
    ModuleName{"c_fc", "h*_mlp_fc"},      ModuleName{"lm_head", "head"},
    ModuleName{"score", "score"},
};

/// Returns the first number that is a part of a dotted name by itself: "3" of "model.layers.3.mlp".
std::string_view layer_number(std::string_view name) {
  while (!name.empty()) {
    const std::string_view part = name.substr(0, name.find('.'));
    if (!part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos) {
      return part;
    }
    name.remove_prefix(std::min(part.size() + 1, name.size()));
  }
  return {};
}

}  // namespace

bool is_lora_target(std::string_view target, std::string_view layer, bool is_last) {
  if (target == "all-linear" || target == "all_linear") return !is_last;
  if (glob_match(target, layer)) return true;
  for (const ModuleName& module : kModuleNames) {
    if (module.name == target && glob_match(module.layers, layer)) return true;
  }
  return false;
}

std::optional<std::string> lora_target_of(std::string_view module) {
  if (module == "all-linear") return std::string(module);
  const size_t dot = module.rfind('.');
  const std::string_view last = dot == std::string_view::npos ? module : module.substr(dot + 1);
  for (const ModuleName& known : kModuleNames) {
    if (known.name != last) continue;
    if (dot == std::string_view::npos) return std::string(module);
    const std::string_view number = layer_number(module);
    const size_t star = known.layers.find('*');
    if (star == std::string_view::npos) return std::string(known.layers);
    const bool is_other_branch =
        known.name == "c_proj" &&
        (module.find(".mlp.") != module.npos) != (known.layers.find("mlp") != known.layers.npos);
    if (number.empty() || is_other_branch) continue;
    return std::string(known.layers).replace(star, 1, number);
  }
  return std::nullopt;
}

}  // namespace trainyard
