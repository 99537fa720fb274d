// Checks names, attributes and inputs of a layer list, of all layers together. The time is linear
// in the number of layers.
#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "src/base/text.h"
#include "src/models/layer.h"

namespace trainyard {

namespace {

constexpr size_t kPartLengthMax = 63;
constexpr size_t kNameLengthMax = 255;
// Names that the training program uses for its own tensors.
constexpr std::array<std::string_view, 5> kReservedNames = {"input", "target", "loss", "step",
                                                            "learning_rate"};

bool is_part(std::string_view part) {
  return !part.empty() && part.size() <= kPartLengthMax && std::ranges::all_of(part, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  });
}

// A name consists of parts joined by "/", as names from blocks do: "layer1/0/conv1". The first part
// begins with a letter.
bool is_layer_name(std::string_view name) {
  if (name.size() > kNameLengthMax || name.empty() || name[0] < 'a' || name[0] > 'z') return false;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('/', begin), name.size());
    if (!is_part(name.substr(begin, end - begin))) return false;
    begin = end + 1;
  }
  return true;
}

// Returns whether `group` is the prefix of another name: "layer1/0/conv1" is in the groups "layer1"
// and "layer1/0".
bool is_group(const std::string& group, const std::set<std::string>& names) {
  const auto behind = names.lower_bound(group + "/");
  return behind != names.end() && behind->starts_with(group + "/");
}

// Resolves the names and inputs of all layers, and collects the problems.
class Resolver {
 public:
  explicit Resolver(std::string preset) : preset_(std::move(preset)) {}

  Result<std::vector<ResolvedLayer>> resolve(const std::vector<LayerSpec>& layers) {
    if (layers.empty()) {
      return field_error("FIELD_REQUIRED", "model", "is empty; expected a preset or layers");
    }
    if (layers.size() > kLayersMax) {
      return field_error("FIELD_OUT_OF_RANGE", "model.layers",
                         "has " + std::to_string(layers.size()) + " layers, expected at most " +
                             std::to_string(kLayersMax));
    }
    const std::vector<std::string> names = name_layers(layers);
    for (const LayerSpec& layer : layers) {
      if (!layer.name.empty()) later_.insert(layer.name);
    }
    for (size_t i = 0; i < layers.size(); ++i) resolve_layer(layers[i], names[i], i);
    check_all_used();
    if (!violations_.empty()) return violations_.to_error();
    return std::move(resolved_);
  }

 private:
  void resolve_layer(const LayerSpec& spec, const std::string& name, size_t index) {
    ResolvedLayer layer;
    layer.path = !spec.origin.empty() ? spec.origin
                 : preset_.empty()    ? "model.layers[" + std::to_string(index) + "]"
                                      : "model." + preset_;
    layer.kind = find_layer_kind(spec.op);
    layer.name = name;
    layer.where = layer.path + " " + quoted_value_single(name) +
                  (spec.block.empty() ? "" : " of block '" + spec.block + "'");
    // Report a problem in a block's layer once, not for each use of the block.
    if (!reported_.contains(layer.path)) {
      const size_t before = violations_.count();
      check_layer(spec, layer);
      if (violations_.count() > before) mark_reported(layer);
    } else {
      layer.inputs = spec.inputs;
    }
    if (violations_.empty()) {
      layer.attributes = spec.attributes;
      if (layer.kind->complete != nullptr) layer.kind->complete(layer.attributes);
    }
    names_.insert(layer.name);
    resolved_.push_back(std::move(layer));
  }

  void check_layer(const LayerSpec& spec, ResolvedLayer& layer) {
    check_name(spec, layer);
    if (layer.kind == nullptr) {
      refuse_op(spec.op, layer);
    } else {
      check_attributes(layer.kind->attributes, spec.attributes,
                       layer.path + "." + std::string(layer.kind->field), layer.where, violations_);
      resolve_inputs(spec, layer);
    }
  }

  void mark_reported(const ResolvedLayer& layer) {
    if (preset_.empty()) reported_.insert(layer.path);
  }

  // Quotes a layer's name for a message; a malformed name is escaped.
  static std::string quoted_value_single(const std::string& name) {
    return is_layer_name(name) ? "'" + name + "'" : quoted_value(name);
  }

  void check_name(const LayerSpec& spec, const ResolvedLayer& layer) {
    const std::string field = layer.path + ".name";
    if (!spec.name.empty() && !is_layer_name(spec.name)) {
      violations_.add("NAME_MALFORMED", field,
                      quoted_value(spec.name) + kNameRule + "; parts may be joined by /");
    } else if (std::ranges::find(kReservedNames, spec.name.substr(0, spec.name.find('/'))) !=
               kReservedNames.end()) {
      violations_.add("NAME_RESERVED", field,
                      "'" + spec.name + "' is reserved, expected any other name");
    } else if (names_.contains(layer.name)) {
      violations_.add("FIELD_DUPLICATE", field,
                      "'" + layer.name + "' is used twice, expected a name of its own");
    } else if (is_group(layer.name, later_)) {
      violations_.add("FIELD_DUPLICATE", field,
                      "'" + layer.name + "' also begins the names of other layers ('" + layer.name +
                          "/...'), expected a name of its own");
    }
  }

  void refuse_op(const std::string& op, const ResolvedLayer& layer) {
    std::vector<std::string> known;
    for (const LayerKind& kind : layer_kinds()) known.emplace_back(kind.op);
    std::string description = quoted_value(op) + " is not known";
    if (violations_.count() >= Violations::kMax) {
      // Only the count of further violations matters, so the slow search for a similar name is
      // skipped.
    } else if (const auto nearest = nearest_name(op, known)) {
      description += ", did you mean '" + *nearest + "'?";
    } else {
      description += ", expected one of";
      for (size_t i = 0; i < known.size(); ++i) description += (i > 0 ? ", " : " ") + known[i];
    }
    violations_.add("FIELD_UNKNOWN", layer.path + ".op", layer.where + ": op", description);
  }

  void resolve_inputs(const LayerSpec& spec, ResolvedLayer& layer) {
    const std::string field = layer.path + ".inputs";
    const std::string where = layer.where + ": inputs";
    layer.inputs = spec.inputs;
    if (layer.inputs.empty() && layer.kind->inputs_max > 0) {
      layer.inputs = {resolved_.empty() ? "input" : resolved_.back().name};
    }
    const auto count = static_cast<int64_t>(layer.inputs.size());
    const LayerKind& kind = *layer.kind;
    if (count < kind.inputs || count > kind.inputs_max) {
      violations_.add(
          "FIELD_OUT_OF_RANGE", field, where,
          "names " + std::to_string(count) + ", but " + spec.op + " takes " +
              std::to_string(kind.inputs) +
              (kind.inputs_max > kind.inputs ? " to " + std::to_string(kind.inputs_max) : ""));
    }
    for (const std::string& input : layer.inputs) {
      const std::string producer = input.substr(0, input.find('.'));
      if (producer == "input" || names_.contains(producer)) {
        used_.insert(producer);
        continue;
      }
      violations_.add("FIELD_UNKNOWN", field, where, unknown_input(producer, layer.name));
    }
  }

  std::string unknown_input(const std::string& input, const std::string& self) const {
    if (input == self) return "'" + input + "' is the layer itself, expected an earlier layer";
    if (later_.contains(input)) {
      return "'" + input + "' comes later, expected an earlier layer or 'input'";
    }
    std::string text = quoted_value(input) + " is not a layer";
    if (violations_.count() >= Violations::kMax)
      return text;  // further violations are only counted
    std::vector<std::string> known(names_.begin(), names_.end());
    known.emplace_back("input");
    if (const auto nearest = nearest_name(input, known)) {
      return text + ", did you mean '" + *nearest + "'?";
    }
    return text + ", expected an earlier layer or 'input'";
  }

  void check_all_used() {
    // After an error in the inputs, later layers would wrongly appear unused.
    if (!violations_.empty()) return;
    for (size_t i = 0; i + 1 < resolved_.size(); ++i) {
      const ResolvedLayer& layer = resolved_[i];
      if (used_.contains(layer.name) || reported_.contains(layer.path)) continue;
      mark_reported(layer);
      violations_.add("LAYER_UNUSED", layer.path, layer.where,
                      "nothing reads it; name it in the inputs of a later layer or remove it");
    }
  }

  std::string preset_;  // empty if the user wrote the layers
  Violations violations_;
  std::set<std::string> names_;
  std::set<std::string> later_;  // every name that the user gives to any layer
  std::set<std::string> used_;
  std::set<std::string> reported_;  // paths of layers with a reported problem
  std::vector<ResolvedLayer> resolved_;
};

}  // namespace

bool is_name_part(std::string_view part) {
  return is_part(part) && part[0] >= 'a' && part[0] <= 'z';
}

std::vector<std::string> name_layers(const std::vector<LayerSpec>& layers) {
  std::set<std::string> given;
  for (const LayerSpec& layer : layers) given.insert(layer.name);
  std::map<std::string, int64_t> counters;
  std::vector<std::string> names;
  for (const LayerSpec& layer : layers) {
    names.push_back(layer.name);
    if (!layer.name.empty()) continue;
    const LayerKind* kind = find_layer_kind(layer.op);
    const std::string stem = kind != nullptr             ? std::string(kind->field)
                             : is_name_part(layer.block) ? layer.block
                                                         : "layer";
    do {
      names.back() = stem + std::to_string(++counters[stem]);
    } while (given.contains(names.back()) || is_group(names.back(), given));
  }
  return names;
}

Result<std::vector<ResolvedLayer>> resolve_layers(const std::vector<LayerSpec>& layers,
                                                  const std::string& preset) {
  return Resolver(preset).resolve(layers);
}

}  // namespace trainyard
