#include "src/models/lora.h"

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
};

}  // namespace

bool is_lora_target(std::string_view target, std::string_view layer, bool is_last) {
  if (target == "all-linear" || target == "all_linear") return !is_last;
  if (glob_match(target, layer)) return true;
  for (const ModuleName& module : kModuleNames) {
    if (module.name == target && glob_match(module.layers, layer)) return true;
  }
  return false;
}

}  // namespace trainyard
