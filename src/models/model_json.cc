#include "src/models/model_json.h"

#include <algorithm>
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
    } else if (value.is_object()) {
      NamedInts named;
      for (const auto& [key, entry] : value.items()) {
        if (!entry.is_number_integer()) return invalid("attributes by name hold whole numbers");
        named[key] = entry.get<int64_t>();
      }
      attributes.set(name, std::move(named));
    } else if (value.is_array()) {
      const auto all = [&](auto predicate) { return std::ranges::all_of(value, predicate); };
      if (all([](const Json& entry) { return entry.is_number_integer(); })) {
        attributes.set(name, value.get<std::vector<int64_t>>());
      } else if (all([](const Json& entry) { return entry.is_number(); })) {
        attributes.set(name, value.get<std::vector<double>>());
      } else {
        return invalid("attribute lists hold numbers");
      }
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

// A list of names, or none where it is absent.
Result<std::vector<std::string>> names_of(const Json& json, const char* key) {
  std::vector<std::string> names;
  const auto it = json.find(key);
  if (it == json.end()) return names;
  if (!it->is_array()) return invalid(std::string(key) + " must be a list of names");
  for (const Json& name : *it) {
    if (!name.is_string()) return invalid(std::string(key) + " must be a list of names");
    names.push_back(name.get<std::string>());
  }
  return names;
}

Result<LayerSpec> layer_from_json(const Json& json) {
  if (!json.is_object()) return invalid("a layer must be an object");
  LayerSpec layer;
  ASSIGN_OR_RETURN(layer.name, text_of(json, "name"));
  ASSIGN_OR_RETURN(layer.op, text_of(json, "op"));
  ASSIGN_OR_RETURN(layer.block, text_of(json, "block"));
  ASSIGN_OR_RETURN(layer.inputs, names_of(json, "inputs"));
  if (const auto attributes = json.find("attributes"); attributes != json.end()) {
    ASSIGN_OR_RETURN(layer.attributes, attributes_from_json(*attributes));
  }
  if (const auto repeat = json.find("repeat"); repeat != json.end()) {
    if (!repeat->is_number_integer()) return invalid("repeat must be a whole number");
    layer.repeat = repeat->get<int64_t>();
  }
  if (const auto bind = json.find("bind"); bind != json.end()) {
    if (!bind->is_object()) return invalid("bind must be an object");
    for (const auto& [attribute, parameter] : bind->items()) {
      if (!parameter.is_string()) return invalid("bind holds names");
      layer.bind[attribute] = parameter.get<std::string>();
    }
  }
  return layer;
}

Result<std::vector<LayerSpec>> layers_from_json(const Json& json) {
  std::vector<LayerSpec> layers;
  const auto list = json.find("layers");
  if (list == json.end()) return layers;
  if (!list->is_array()) return invalid("layers must be a list");
  for (const Json& item : *list) {
    ASSIGN_OR_RETURN(LayerSpec layer, layer_from_json(item));
    layers.push_back(std::move(layer));
  }
  return layers;
}

Result<BlockSpec> block_from_json(const Json& json) {
  if (!json.is_object()) return invalid("a block must be an object");
  BlockSpec block;
  ASSIGN_OR_RETURN(block.name, text_of(json, "name"));
  ASSIGN_OR_RETURN(block.inputs, names_of(json, "inputs"));
  ASSIGN_OR_RETURN(block.parameters, names_of(json, "parameters"));
  if (const auto defaults = json.find("defaults"); defaults != json.end()) {
    ASSIGN_OR_RETURN(block.defaults, attributes_from_json(*defaults));
  }
  ASSIGN_OR_RETURN(block.layers, layers_from_json(json));
  return block;
}

Json to_json(const std::vector<LayerSpec>& layers) {
  Json list = Json::array();
  for (const LayerSpec& layer : layers) {
    Json item = {{"op", layer.op}, {"attributes", to_json(layer.attributes)}};
    if (!layer.name.empty()) item["name"] = layer.name;
    if (!layer.inputs.empty()) item["inputs"] = layer.inputs;
    if (!layer.bind.empty()) item["bind"] = layer.bind;
    if (!layer.block.empty()) item["block"] = layer.block;
    if (layer.repeat.has_value()) item["repeat"] = *layer.repeat;
    list.push_back(std::move(item));
  }
  return list;
}

Json to_json(const BlockSpec& block) {
  Json json = {{"name", block.name}, {"layers", to_json(block.layers)}};
  if (!block.inputs.empty()) json["inputs"] = block.inputs;
  if (!block.parameters.empty()) json["parameters"] = block.parameters;
  if (!block.defaults.items().empty()) json["defaults"] = to_json(block.defaults);
  return json;
}

}  // namespace

std::string model_to_json(const ModelSpec& spec) {
  Json json = Json::object();
  if (!spec.preset.empty()) {
    json["preset"] = spec.preset;
    json["parameters"] = to_json(spec.parameters);
  }
  if (!spec.layers.empty()) json["layers"] = to_json(spec.layers);
  for (const BlockSpec& block : spec.blocks) json["blocks"].push_back(to_json(block));
  if (!spec.target.empty()) json["target"] = spec.target;
  // A name alone where that says all: so it was written before losses had attributes.
  if (!spec.loss.attributes.items().empty()) {
    json["loss"] = {{"op", spec.loss.op}, {"attributes", to_json(spec.loss.attributes)}};
  } else if (!spec.loss.op.empty()) {
    json["loss"] = spec.loss.op;
  }
  // Names come from outside: bytes that are not UTF-8 must not become an exception.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<ModelSpec> model_from_json(std::string_view text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return invalid("not a JSON object");
  ModelSpec spec;
  ASSIGN_OR_RETURN(spec.preset, text_of(json, "preset"));
  ASSIGN_OR_RETURN(spec.target, text_of(json, "target"));
  if (const auto loss = json.find("loss"); loss != json.end() && loss->is_object()) {
    ASSIGN_OR_RETURN(spec.loss.op, text_of(*loss, "op"));
    if (const auto attributes = loss->find("attributes"); attributes != loss->end()) {
      ASSIGN_OR_RETURN(spec.loss.attributes, attributes_from_json(*attributes));
    }
  } else {
    ASSIGN_OR_RETURN(spec.loss.op, text_of(json, "loss"));
  }
  if (const auto parameters = json.find("parameters"); parameters != json.end()) {
    ASSIGN_OR_RETURN(spec.parameters, attributes_from_json(*parameters));
  }
  ASSIGN_OR_RETURN(spec.layers, layers_from_json(json));
  if (const auto blocks = json.find("blocks"); blocks != json.end()) {
    if (!blocks->is_array()) return invalid("blocks must be a list");
    for (const Json& item : *blocks) {
      ASSIGN_OR_RETURN(BlockSpec block, block_from_json(item));
      spec.blocks.push_back(std::move(block));
    }
  }
  return spec;
}

}  // namespace trainyard
