#include "src/artifact/model_artifact.h"

#include <nlohmann/json.hpp>

#include "src/data/limits.h"
#include "src/models/model_json.h"

namespace trainyard {

namespace {

using Json = nlohmann::json;

constexpr int64_t kFormatVersion = 1;
constexpr int64_t kModelJsonMax = 2 * kSchemaBytesMax;  // the schema in it has one name per line
constexpr const char* kInfoFile = "model.json";
constexpr const char* kAdapterFile = "adapter_model.safetensors";  // the name that PEFT expects
constexpr const char* kAdapterConfigFile = "adapter_config.json";

Error invalid(const std::string& what) {
  return make_error(ErrorCode::kInvalidArgument, "MODEL_FILE_INVALID", "model.json: " + what);
}

std::string info_to_json(const ModelInfo& info) {
  Json metrics = Json::object();
  for (const MetricPoint& m : info.metrics) metrics[m.key] = m.value;  // NaN becomes null
  Json json = {{"format_version", kFormatVersion},
               {"producer", "trainyard " TRAINYARD_VERSION},
               {"model", Json::parse(model_to_json(info.model))},
               {"schema", info.schema.to_json()},
               {"preprocessing", Json::parse(info.preprocessing.to_json())},
               {"metrics", std::move(metrics)},
               {"steps", info.steps},
               {"parameter_count", info.parameter_count},
               {"precision", std::string(name_of(info.precision))}};
  if (!info.confusion.empty()) json["confusion_matrix"] = info.confusion;
  if (!info.best_metric.empty()) {
    json["best"] = {
        {"metric", info.best_metric}, {"value", info.best_value}, {"step", info.best_step}};
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<ModelInfo> info_from_json(const std::string& text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return invalid("not a JSON object");
  for (const char* key : {"format_version", "steps", "parameter_count"}) {
    if (!json.contains(key) || !json[key].is_number_integer()) {
      return invalid(std::string(key) + " is missing");
    }
  }
  for (const char* key : {"model", "schema", "preprocessing", "metrics"}) {
    if (!json.contains(key) || !json[key].is_object()) {
      return invalid(std::string(key) + " is missing");
    }
  }
  if (const auto version = json["format_version"].get<int64_t>(); version != kFormatVersion) {
    return invalid("format_version " + std::to_string(version) + " is not known, expected " +
                   std::to_string(kFormatVersion));
  }
  ModelInfo info;
  info.steps = json["steps"].get<int64_t>();
  info.parameter_count = json["parameter_count"].get<int64_t>();
  ASSIGN_OR_RETURN(info.model, model_from_json(json["model"].dump()));
  ASSIGN_OR_RETURN(info.schema, DatasetSchema::from_json(json["schema"]));
  ASSIGN_OR_RETURN(info.preprocessing, Preprocessing::from_json(json["preprocessing"].dump()));
  if (json.contains("precision")) {
    const Json& name = json["precision"];
    const auto precision =
        name.is_string() ? find_precision(name.get<std::string>()) : std::nullopt;
    if (!precision)
      return invalid("precision " + name.dump() +
                     " is not known, expected fp32, tf32, bf16 or fp16");
    info.precision = *precision;
  }
  for (const auto& [key, value] : json["metrics"].items()) {
    if (value.is_number()) info.metrics.push_back({key, info.steps, value.get<double>()});
  }
  return info;
}

}  // namespace

std::string model_info_text(const ModelInfo& info) { return info_to_json(info); }

Status write_model_info(Files& files, const std::filesystem::path& folder, const ModelInfo& info) {
  return replace_file(files, folder / kInfoFile, info_to_json(info));
}

Result<ModelInfo> read_model_info(const std::filesystem::path& file) {
  ASSIGN_OR_RETURN(const std::string text, read_file(file, kModelJsonMax));
  ASSIGN_OR_RETURN(ModelInfo info, info_from_json(text));
  if (!info.preprocessing.fits(info.schema)) {
    return invalid("the preprocessing does not fit the schema");
  }
  return info;
}

Status write_model(Files& files, const std::filesystem::path& folder, const ModelInfo& info,
                   std::span<const TensorView> weights, const LoraModel* adapter) {
  std::filesystem::path temporary = folder;
  temporary += ".tmp";
  if (Status s = files.remove_all(temporary); !s.ok()) return s;
  const auto write = [&]() -> Status {
    if (Status s = files.create_directories(temporary); !s.ok()) return s;
    // "format: pt" is required by the safetensors readers of Python libraries.
    const SafetensorsMetadata metadata = {{"format", "pt"},
                                          {"producer", "trainyard " TRAINYARD_VERSION}};
    auto digest = write_safetensors(files, temporary / kModelWeightsFile, weights, metadata);
    if (!digest.ok()) return std::move(digest).error();
    if (adapter != nullptr) {
      digest = write_safetensors(files, temporary / kAdapterFile, adapter->adapter, metadata);
      if (!digest.ok()) return std::move(digest).error();
      Status s = replace_file(files, temporary / kAdapterConfigFile, adapter->adapter_config);
      if (!s.ok()) return s;
    }
    if (Status s = replace_file(files, temporary / kInfoFile, info_to_json(info)); !s.ok()) {
      return s;
    }
    // Both writers have synced the temporary folder; the renames in install_model() sync its
    // parent.
    return install_model(files, temporary, folder);
  };
  Status s = write();
  if (!s.ok()) (void)files.remove_all(temporary);  // the next write removes leftovers
  return s;
}

Status install_model(Files& files, const std::filesystem::path& temporary,
                     const std::filesystem::path& folder) {
  std::filesystem::path replaced = folder;
  replaced += ".old";
  if (Status s = files.remove_all(replaced); !s.ok()) return s;
  std::error_code ignored;
  if (std::filesystem::exists(folder, ignored)) {
    if (Status s = files.rename_durable(folder, replaced); !s.ok()) return s;
  }
  Status s = files.rename_durable(temporary, folder);
  if (s.ok()) (void)files.remove_all(replaced);
  return s;
}

Result<LoadedModel> read_model(const std::filesystem::path& folder) {
  LoadedModel loaded;
  ASSIGN_OR_RETURN(loaded.info, read_model_info(folder / kInfoFile));
  ASSIGN_OR_RETURN(loaded.objective, find_objective(loaded.info.model, loaded.info.interface()));
  if (loaded.objective.interface.category_codes != loaded.info.preprocessing.category_codes) {
    return invalid("the preprocessing does not encode categories as the model expects");
  }
  ASSIGN_OR_RETURN(loaded.weights, SafetensorsFile::open(folder / kModelWeightsFile,
                                                         SafetensorsFile::Halves::kAccepted));
  return loaded;
}

Result<const TensorView*> find_weight(const SafetensorsFile& weights, const TensorInfo& tensor) {
  const TensorView* view = weights.find(tensor.name);
  if (view != nullptr && view->type == tensor.type) return view;
  return make_error(ErrorCode::kInvalidArgument, "MODEL_FILE_INVALID",
                    "model.safetensors: tensor " + tensor.name +
                        (view == nullptr ? " is missing" : " has another shape or type") +
                        ", expected " + tensor.type.shape.to_string());
}

}  // namespace trainyard
