#include "src/pretrained/adapter_folder.h"

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "src/base/files.h"
#include "src/base/text.h"
#include "src/checkpoint/weights_file.h"
#include "src/checkpoint/weights_index.h"
#include "src/models/families/config_object.h"
#include "src/models/lora.h"
#include "src/models/preset.h"

namespace trainyard {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kAdapterConfig = "adapter_config.json";
constexpr const char* kAdapterWeights = "adapter_model.safetensors";
constexpr int64_t kAdapterConfigBytesMax = 1 << 20;

/// Settings that say how the adapter was made or is stored, and change nothing that it computes.
constexpr std::string_view kWithoutEffectOnAdapters[] = {"base_model_name_or_path",
                                                         "task_type",
                                                         "inference_mode",
                                                         "revision",
                                                         "auto_mapping",
                                                         "peft_version",
                                                         "init_lora_weights",
                                                         "fan_in_fan_out",
                                                         "exclude_modules",
                                                         "runtime_config",
                                                         "loftq_config",
                                                         "eva_config",
                                                         "corda_config",
                                                         "lora_ga_config",
                                                         "layers_pattern",
                                                         "megatron_*",
                                                         "qalora_group_size",
                                                         "ensure_weight_*",
                                                         "arrow_config",
                                                         "*_kwargs",
                                                         "inference_*",
                                                         "monteclora_config"};

std::vector<std::string> read_targets(ConfigObject& config) {
  const Json* const value = config.find("target_modules");
  if (value != nullptr && value->is_string()) {
    const std::string name = config.text("target_modules", "");
    const auto target = lora_target_of(name);
    if (target) return {*target};
    config.refuse("target_modules", "is the pattern " + quoted_value(name) +
                                        ", expected a list of names, or all-linear");
    return {};
  }
  std::vector<std::string> targets;
  for (const std::string& module : config.texts("target_modules")) {
    if (const auto target = lora_target_of(module)) {
      targets.push_back(*target);
    } else {
      config.refuse("target_modules", "has " + quoted_value(module) +
                                          ", which is no module of the presets decoder and gpt2");
    }
  }
  if (targets.empty()) config.refuse("target_modules", "names no module");
  return targets;
}

void refuse_other_kinds(ConfigObject& config) {
  // PEFT names the last layers of all its classifiers.
  for (const std::string& module : config.texts("modules_to_save")) {
    if (module == kClassifierHead || module == "classifier") continue;
    config.refuse("modules_to_save", "has " + quoted_value(module) +
                                         ", expected at most score, the "
                                         "last layer of a classifier");
  }
  if (const std::string bias = config.text("bias", "none"); bias != "none") {
    config.refuse("bias", "is " + quoted_value(bias) + ", expected none");
  }
  config.expect_flag("use_dora", false);
  for (const std::string_view pattern : kWithoutEffectOnAdapters) config.ignore(pattern);
  config.refuse_unread("this setting of adapters is not supported");
}

std::vector<std::pair<fs::path, WeightsFile>> open_parts(std::vector<fs::path> paths,
                                                         Status& status) {
  std::vector<std::pair<fs::path, WeightsFile>> parts;
  for (fs::path& path : paths) {
    auto file = WeightsFile::open(path);
    if (!file.ok()) {
      status = std::move(file).error();
      return {};
    }
    parts.emplace_back(std::move(path), std::move(file).value());
  }
  return parts;
}

}  // namespace

Result<AdapterFolder> read_adapter_folder(const fs::path& folder) {
  ASSIGN_OR_RETURN(const std::string text,
                   read_file(folder / kAdapterConfig, kAdapterConfigBytesMax));
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    return make_error(ErrorCode::kInvalidArgument, "MODEL_FILE_INVALID",
                      std::string(kAdapterConfig) + " is not a JSON object");
  }
  Violations problems;
  ConfigObject config(json, std::string(kAdapterConfig) + ": ", problems);
  AdapterFolder adapter;
  const std::string type = config.text("peft_type", "");
  if (type != "LORA") config.refuse("peft_type", "is " + quoted_value(type) + ", expected LORA");
  adapter.lora.rank = config.integer("r", 1, 1024);
  adapter.lora.alpha = config.positive("lora_alpha", 8);
  adapter.lora.dropout = config.real("lora_dropout", 0);
  if (config.flag("use_rslora", false)) adapter.lora.rank_scaling = kRankScalingSqrt;
  adapter.lora.targets = read_targets(config);
  refuse_other_kinds(config);
  if (!problems.empty()) return problems.to_error();
  adapter.weights = folder / kAdapterWeights;
  std::error_code ignored;
  if (fs::is_regular_file(adapter.weights, ignored)) return adapter;
  return make_error(ErrorCode::kNotFound, "FILE_NOT_FOUND",
                    folder.string() + " has no " + kAdapterWeights);
}

Result<fs::path> join_adapter(const fs::path& weights, const fs::path& adapter,
                              const fs::path& folder) {
  std::vector<fs::path> paths;
  if (is_weights_index(weights)) {
    ASSIGN_OR_RETURN(const WeightsIndex index, WeightsIndex::read(weights));
    for (const std::string& file : index.files) paths.push_back(weights.parent_path() / file);
  } else {
    paths.push_back(weights);
  }
  paths.push_back(adapter);
  Status status;
  const auto parts = open_parts(std::move(paths), status);
  if (!status.ok()) return std::move(status).error();
  Json map = Json::object();
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string link = "part-" + std::to_string(i) + ".safetensors";
    std::error_code error;
    fs::create_symlink(fs::absolute(parts[i].first), folder / link, error);
    if (error) return file_error("cannot link", folder / link, error.value());
    for (const FileTensor& tensor : parts[i].second.tensors()) map[tensor.name] = link;
  }
  fs::path index = folder / "model.safetensors.index.json";
  const std::string text = Json{{"metadata", Json::object()}, {"weight_map", map}}.dump();
  if (Status s = replace_file(local_files(), index, text); !s.ok()) return std::move(s).error();
  return index;
}

}  // namespace trainyard
