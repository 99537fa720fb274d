#include "src/models/model_json.h"

#include <nlohmann/json.hpp>

namespace trainyard {

namespace {

using Json = nlohmann::json;

Json to_json(const Attributes& attributes) {
  Json json = Json::object();
  for (const auto& [name, value] : attributes.items()) {
    std::visit([&json, &key = name](const auto& v) { json[key] = v; }, value);
  }
  return json;
}

Error invalid(const std::string& what) {
  return make_error(ErrorCode::kInvalidArgument, "MODEL_FILE_INVALID", "model spec: " + what);
}

Result<Attributes> attributes_from_json(const Json& json) {
  if (!json.is_object()) return invalid("attributes must be an object");
  Attributes attributes;
  for (const auto& [name, value] : json.items()) {
    if (value.is_number_integer()) {
      attributes.set(name, value.get<int64_t>());
    } else if (value.is_number_float()) {
      attributes.set(name, value.get<double>());
    } else if (value.is_string()) {
      attributes.set(name, value.get<std::string>());
    } else if (value.is_array()) {
      std::vector<int64_t> list;
      for (const Json& entry : value) {
        if (!entry.is_number_integer()) return invalid("attribute lists hold whole numbers");
        list.push_back(entry.get<int64_t>());
      }
      attributes.set(name, std::move(list));
    } else {
      return invalid("attribute of an unknown type");
    }
  }
  return attributes;
}

// The text of `key`, or empty where it is absent.
Result<std::string> text_of(const Json& json, const char* key) {
  const auto it = json.find(key);
  if (it == json.end()) return std::string();
  if (!it->is_string()) return invalid(std::string(key) + " must be text");
  return it->get<std::string>();
}

Result<LayerSpec> layer_from_json(const Json& json) {
  if (!json.is_object()) return invalid("a layer must be an object");
  LayerSpec layer;
  ASSIGN_OR_RETURN(layer.name, text_of(json, "name"));
  ASSIGN_OR_RETURN(layer.op, text_of(json, "op"));
  if (const auto inputs = json.find("inputs"); inputs != json.end()) {
    if (!inputs->is_array()) return invalid("inputs must be a list of names");
    for (const Json& input : *inputs) {
      if (!input.is_string()) return invalid("inputs must be a list of names");
      layer.inputs.push_back(input.get<std::string>());
    }
  }
  if (const auto attributes = json.find("attributes"); attributes != json.end()) {
    ASSIGN_OR_RETURN(layer.attributes, attributes_from_json(*attributes));
  }
  return layer;
}

}  // namespace

std::string model_to_json(const ModelSpec& spec) {
  Json json = Json::object();
  if (!spec.preset.empty()) {
    json["preset"] = spec.preset;
    json["parameters"] = to_json(spec.parameters);
  }
  if (!spec.layers.empty()) {
    Json layers = Json::array();
    for (const LayerSpec& layer : spec.layers) {
      Json item = {{"op", layer.op}, {"attributes", to_json(layer.attributes)}};
      if (!layer.name.empty()) item["name"] = layer.name;
      if (!layer.inputs.empty()) item["inputs"] = layer.inputs;
      layers.push_back(std::move(item));
    }
    json["layers"] = std::move(layers);
  }
  if (!spec.loss.empty()) json["loss"] = spec.loss;
  // Names come from outside: bytes that are not UTF-8 must not become an exception.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<ModelSpec> model_from_json(std::string_view text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return invalid("not a JSON object");
  ModelSpec spec;
  ASSIGN_OR_RETURN(spec.preset, text_of(json, "preset"));
  ASSIGN_OR_RETURN(spec.loss, text_of(json, "loss"));
  if (const auto parameters = json.find("parameters"); parameters != json.end()) {
    ASSIGN_OR_RETURN(spec.parameters, attributes_from_json(*parameters));
  }
  if (const auto layers = json.find("layers"); layers != json.end()) {
    if (!layers->is_array()) return invalid("layers must be a list");
    for (const Json& item : *layers) {
      ASSIGN_OR_RETURN(LayerSpec layer, layer_from_json(item));
      spec.layers.push_back(std::move(layer));
    }
  }
  return spec;
}

}  // namespace trainyard
