// Writes an imported model as files: the layer list in the format users write, and the weights.
#include <charconv>

#include "src/base/check.h"
#include "src/checkpoint/safetensors.h"
#include "src/models/layer.h"
#include "src/onnx/import_model.h"

namespace trainyard::onnx {
namespace {

/// Returns the shortest text that reads back as the same float (attributes in ONNX are floats). A
/// number with an exponent gets a point, because readers of YAML 1.1 would read it as text
/// otherwise.
std::string text_of(double value) {
  char buffer[32];
  const auto [end, error] =
      std::to_chars(buffer, buffer + sizeof buffer, static_cast<float>(value));
  TRAINYARD_CHECK(error == std::errc(), "a float has less than 32 characters");
  std::string text(buffer, end);
  const size_t exponent = text.find('e');
  if (exponent != std::string::npos && text.find('.') == std::string::npos) {
    text.insert(exponent, ".0");
  }
  return text;
}

template <typename T>
std::string list_of(const std::vector<T>& values) {
  std::string text = "[";
  for (const T& v : values) {
    if (text.size() > 1) text += ", ";
    if constexpr (std::is_same_v<T, double>) {
      text += text_of(v);
    } else {
      text += std::to_string(v);
    }
  }
  return text + "]";
}

std::string text_of(const Attribute& value, const AttributeRule& rule) {
  if (rule.kind == AttributeRule::Kind::kBool) {
    return std::get<int64_t>(value) != 0 ? "true" : "false";
  }
  if (const auto* i = std::get_if<int64_t>(&value)) return std::to_string(*i);
  if (const auto* d = std::get_if<double>(&value)) return text_of(*d);
  if (const auto* s = std::get_if<std::string>(&value))
    return *s;  // a choice or the name of a layer
  if (const auto* l = std::get_if<std::vector<int64_t>>(&value)) return list_of(*l);
  return list_of(std::get<std::vector<double>>(value));
}

}  // namespace

std::string layers_to_yaml(const std::vector<LayerSpec>& layers) {
  std::string text = "layers:\n";
  std::string before = "input";
  for (const LayerSpec& layer : layers) {
    const LayerKind* kind = find_layer_kind(layer.op);
    TRAINYARD_CHECK(kind != nullptr, "no layer is named " + layer.op);
    std::string attributes;
    // The order of the rules is that of the documentation.
    for (const AttributeRule& rule : kind->attributes) {
      const Attribute* value = layer.attributes.find(rule.name);
      if (value == nullptr) continue;
      attributes +=
          (attributes.empty() ? "" : ", ") + std::string(rule.name) + ": " + text_of(*value, rule);
    }
    text += "  - " + std::string(kind->field) + ":";
    if (!attributes.empty()) text += " {" + attributes + "}";
    text += "\n    name: " + layer.name + "\n";
    if (!layer.inputs.empty() && layer.inputs != std::vector<std::string>{before}) {
      text += "    inputs: [";
      for (const std::string& input : layer.inputs) {
        text += (&input == &layer.inputs.front() ? "" : ", ") + input;
      }
      text += "]\n";
    }
    before = layer.name;
  }
  return text;
}

Status write_imported(Files& files, const ImportedModel& model,
                      const std::filesystem::path& folder) {
  std::error_code ignored;
  if (std::filesystem::exists(std::filesystem::symlink_status(folder, ignored))) {
    return make_error(ErrorCode::kAlreadyExists, "FILE_EXISTS",
                      folder.string() + " exists; expected the name of a new folder");
  }
  std::vector<TensorView> views;
  for (const ImportedWeight& w : model.weights) {
    views.push_back({w.name, {w.shape, DType::kF32}, std::as_bytes(std::span(w.values))});
  }
  std::filesystem::path temporary = folder;
  temporary += ".tmp";
  const auto write = [&]() -> Status {
    if (Status s = files.remove_all(temporary); !s.ok()) return s;
    if (Status s = files.create_directories(temporary); !s.ok()) return s;
    const auto digest =
        write_safetensors(files, temporary / kWeightsFile, views,
                          {{"format", "pt"}, {"producer", "trainyard " TRAINYARD_VERSION}});
    if (!digest.ok()) return digest.error();
    const Status s = replace_file(files, temporary / kLayersFile, layers_to_yaml(model.layers));
    return s.ok() ? files.rename_durable(temporary, folder) : s;
  };
  Status s = write();
  if (!s.ok()) (void)files.remove_all(temporary);
  return s;
}

}  // namespace trainyard::onnx
