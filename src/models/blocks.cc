#include "src/models/blocks.h"

#include <algorithm>
#include <map>
#include <set>

#include "src/base/text.h"
#include "src/models/layer.h"

namespace trainyard {

namespace {

constexpr size_t kBlocksMax = 256;
constexpr size_t kNamesMax = 64;             // inputs or parameters of a block
constexpr size_t kUsesMax = 4 * kLayersMax;  // nested blocks may give several uses per layer
// Limit of the characters in names and values of settings of all expanded layers, in which a
// block's layers count once per use: 1000 for each of kLayersMax layers.
constexpr size_t kWrittenMax = 1000 * kLayersMax;

std::string index(const std::string& path, size_t i) {
  return path + "[" + std::to_string(i) + "]";
}

std::string not_known(const std::string& name, const std::vector<std::string>& known,
                      const std::string& what) {
  std::string text = quoted_value(name) + " is not " + what;
  if (const auto nearest = nearest_name(name, known)) {
    return text + ", did you mean '" + *nearest + "'?";
  }
  if (known.empty()) return text + "; none exist here";
  text += ", expected one of";
  for (size_t i = 0; i < known.size(); ++i) text += (i > 0 ? ", " : " ") + known[i];
  return text;
}

std::vector<std::string> inputs_of(const BlockSpec& block) {
  return block.inputs.empty() ? std::vector<std::string>{"input"} : block.inputs;
}

size_t length_of(const Attribute& value) {
  return std::visit(
      [](const auto& v) -> size_t {
        if constexpr (requires { v.size(); }) {
          return 1 + v.size();
        } else {
          return 1;
        }
      },
      value);
}

size_t length_of(const LayerSpec& layer) {
  size_t length = layer.name.size();
  for (const std::string& input : layer.inputs) length += 1 + input.size();
  for (const auto& [name, value] : layer.attributes.items()) {
    length += name.size() + length_of(value);
  }
  for (const auto& [name, parameter] : layer.bind) length += name.size() + parameter.size();
  return length;
}

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

// Checks blocks without expanding them, and computes the size of the expansion.
class BlockChecker {
 public:
  explicit BlockChecker(const ModelSpec& spec) : spec_(spec) {}

  Status check() {
    if (spec_.blocks.size() > kBlocksMax) {
      return field_error("FIELD_OUT_OF_RANGE", "model.blocks",
                         "has " + std::to_string(spec_.blocks.size()) +
                             " blocks, expected at most " + std::to_string(kBlocksMax));
    }
    for (size_t i = 0; i < spec_.blocks.size(); ++i) check_lists(spec_.blocks[i], i);
    if (!violations_.empty()) return violations_.to_error();
    for (size_t i = 0; i < spec_.blocks.size(); ++i) check_block(spec_.blocks[i], i);
    const Size total = check_layers(spec_.layers, "model.layers", nullptr);
    for (size_t i = 0; i < spec_.blocks.size() && violations_.empty(); ++i) {
      if (used_.contains(spec_.blocks[i].name)) continue;
      violations_.add("LAYER_UNUSED", index("model.blocks", i),
                      index("model.blocks", i) + " '" + spec_.blocks[i].name + "'",
                      "nothing uses it; remove it or use it in a layer");
    }
    const auto refuse = [&](size_t most, const char* of) {
      violations_.add("FIELD_OUT_OF_RANGE", "model.layers",
                      "has more than " + std::to_string(most) + of +
                          " after its blocks are expanded, expected at most that many");
    };
    if (violations_.empty() && total.layers > kLayersMax) refuse(kLayersMax, " layers");
    if (violations_.empty() && total.uses > kUsesMax) refuse(kUsesMax, " uses of blocks");
    if (!violations_.empty()) return violations_.to_error();
    return {};
  }

 private:
  /// Size of an expanded layer list. Each number is capped at one more than its limit.
  struct Size {
    size_t layers = 0;
    size_t uses = 0;  // uses of blocks, including those inside blocks
  };

  // Limits the lengths of the lists first, because later checks compare names with all entries.
  void check_lists(const BlockSpec& block, size_t i) {
    check_count(block.inputs, index("model.blocks", i) + ".inputs");
    check_count(block.parameters, index("model.blocks", i) + ".parameters");
  }
  void check_count(const std::vector<std::string>& names, const std::string& path) {
    if (names.size() <= kNamesMax) return;
    violations_.add("FIELD_OUT_OF_RANGE", path,
                    "has " + std::to_string(names.size()) + " names, expected at most " +
                        std::to_string(kNamesMax));
  }
  // Returns whether further violations would only be counted. Checks that take long stop then.
  bool is_full() const { return violations_.count() >= Violations::kMax; }

  void check_block(const BlockSpec& block, size_t i) {
    const std::string path = index("model.blocks", i);
    const std::string where =
        path + " " + (is_name_part(block.name) ? "'" + block.name + "'" : quoted_value(block.name));
    if (!is_name_part(block.name)) {
      violations_.add("NAME_MALFORMED", path + ".name", quoted_value(block.name) + kNameRule);
    } else if (sizes_.contains(block.name)) {
      violations_.add("FIELD_DUPLICATE", path + ".name",
                      "'" + block.name + "' is used twice, expected a name of its own");
    }
    check_names(block.inputs, path + ".inputs", where + ": inputs");
    check_names(block.parameters, path + ".parameters", where + ": parameters");
    for (const auto& [name, value] : block.defaults.items()) {
      if (contains(block.parameters, name)) continue;
      violations_.add("FIELD_UNKNOWN", path + ".defaults." + name, where + ": defaults",
                      not_known(name, block.parameters, "a parameter of the block"));
    }
    if (block.layers.empty()) {
      violations_.add("FIELD_REQUIRED", path + ".layers", where + ": layers",
                      "is empty, expected at least one layer");
    }
    const Size size = check_layers(block.layers, path + ".layers", &block);
    check_all_read(block, path, where);
    sizes_.emplace(block.name, size);
    blocks_.emplace(block.name, &block);
    known_.push_back(block.name);
  }

  void check_names(const std::vector<std::string>& names, const std::string& path,
                   const std::string& where) {
    std::set<std::string> seen;
    for (const std::string& name : names) {
      if (!is_name_part(name)) {
        violations_.add("NAME_MALFORMED", path, where, quoted_value(name) + kNameRule);
      } else if (!seen.insert(name).second) {
        violations_.add("FIELD_DUPLICATE", path, where, "'" + name + "' is given twice");
      }
    }
  }

  // Refuses parameters and inputs that no layer of the block reads, since they would have no
  // effect.
  void check_all_read(const BlockSpec& block, const std::string& path, const std::string& where) {
    if (!violations_.empty()) return;
    std::set<std::string> read;
    for (size_t i = 0; i < block.layers.size(); ++i) {
      const LayerSpec& layer = block.layers[i];
      for (const auto& [attribute, parameter] : layer.bind) read.insert(parameter + "()");
      for (const std::string& input : layer.inputs) read.insert(input.substr(0, input.find('.')));
      if (i == 0 && layer.inputs.empty()) read.insert(inputs_of(block)[0]);
    }
    for (const std::string& input : inputs_of(block)) {
      if (read.contains(input)) continue;
      violations_.add("BLOCK_INPUT_UNUSED", path + ".inputs", where + ": inputs",
                      "no layer of the block reads '" + input + "'; remove it or name it");
    }
    for (const std::string& parameter : block.parameters) {
      if (read.contains(parameter + "()")) continue;
      violations_.add("BLOCK_PARAMETER_UNUSED", path + ".parameters", where + ": parameters",
                      "no layer of the block takes '" + parameter + "'; remove it or bind it");
    }
  }

  Size check_layers(const std::vector<LayerSpec>& layers, const std::string& path,
                    const BlockSpec* block) {
    Size total;
    for (size_t i = 0; i < layers.size() && !is_full(); ++i) {
      const LayerSpec& layer = layers[i];
      const std::string field = index(path, i);
      if (block != nullptr && contains(inputs_of(*block), layer.name)) {
        violations_.add("FIELD_DUPLICATE", field + ".name",
                        "'" + layer.name + "' is an input of the block, expected another name");
      }
      check_bind(layer, field, block);
      const Size size = layer.op == kUseOp ? check_use(layer, field) : Size{1, 0};
      total = {std::min(total.layers + size.layers, kLayersMax + 1),
               std::min(total.uses + size.uses, kUsesMax + 1)};
    }
    return total;
  }

  void check_bind(const LayerSpec& layer, const std::string& field, const BlockSpec* block) {
    for (const auto& [attribute, parameter] : layer.bind) {
      if (is_full()) return;
      const std::string at = field + ".bind." + attribute;
      if (block == nullptr) {
        violations_.add("FIELD_UNUSED", at, "has no effect outside a block; give the value itself");
      } else if (!contains(block->parameters, parameter)) {
        violations_.add(
            "FIELD_UNKNOWN", at,
            not_known(parameter, block->parameters, "a parameter of block '" + block->name + "'"));
      }
      if (layer.attributes.find(attribute) != nullptr) {
        violations_.add("FIELD_DUPLICATE", at,
                        "'" + attribute + "' is both bound and given, expected only one of them");
      }
    }
  }

  Size check_use(const LayerSpec& layer, const std::string& field) {
    used_.insert(layer.block);
    const std::string at = field + ".use";
    const auto found = blocks_.find(layer.block);
    if (found == blocks_.end()) {
      violations_.add("FIELD_UNKNOWN", at + ".block", unknown_block(layer.block));
      return {1, 1};
    }
    const BlockSpec& block = *found->second;
    const int64_t repeat = layer.repeat.value_or(1);
    if (repeat < 1 || repeat > static_cast<int64_t>(kLayersMax)) {
      violations_.add(
          "FIELD_OUT_OF_RANGE", at + ".repeat",
          std::to_string(repeat) + " is out of range, expected 1.." + std::to_string(kLayersMax));
      return {1, 1};
    }
    check_arguments(layer, at, block);
    const size_t given = std::max<size_t>(layer.inputs.size(), 1);
    if (given != inputs_of(block).size()) {
      violations_.add("FIELD_OUT_OF_RANGE", field + ".inputs",
                      "names " + std::to_string(given) + ", but block '" + block.name + "' takes " +
                          std::to_string(inputs_of(block).size()));
    }
    const auto times = static_cast<size_t>(repeat);
    const Size size = sizes_.at(block.name);
    return {std::min(size.layers * times, kLayersMax + 1),
            std::min((1 + size.uses) * times, kUsesMax + 1)};
  }

  void check_arguments(const LayerSpec& layer, const std::string& at, const BlockSpec& block) {
    const auto check_known = [&](const std::string& name) {
      if (is_full() || contains(block.parameters, name)) return;
      violations_.add(
          "FIELD_UNKNOWN", at + ".with." + name,
          not_known(name, block.parameters, "a parameter of block '" + block.name + "'"));
    };
    for (const auto& [name, value] : layer.attributes.items()) check_known(name);
    for (const auto& [name, parameter] : layer.bind) check_known(name);
    for (const std::string& name : block.parameters) {
      if (layer.attributes.find(name) != nullptr || layer.bind.contains(name) ||
          block.defaults.find(name) != nullptr) {
        continue;
      }
      violations_.add("FIELD_REQUIRED", at + ".with." + name,
                      "is required: block '" + block.name + "' has no default for it");
    }
  }

  std::string unknown_block(const std::string& name) const {
    const auto later = std::ranges::find(spec_.blocks, name, &BlockSpec::name);
    if (later != spec_.blocks.end()) {
      return "'" + name + "' is this block itself or comes later, expected an earlier block";
    }
    return not_known(name, known_, "a block");
  }

  const ModelSpec& spec_;
  Violations violations_;
  std::map<std::string, const BlockSpec*> blocks_;  // blocks checked so far
  std::map<std::string, Size> sizes_;
  std::vector<std::string> known_;
  std::set<std::string> used_;
};

// Expands blocks that BlockChecker has accepted.
class BlockExpander {
 public:
  explicit BlockExpander(const ModelSpec& spec) {
    for (size_t i = 0; i < spec.blocks.size(); ++i) {
      const BlockSpec& block = spec.blocks[i];
      blocks_[block.name] = {&block, index("model.blocks", i) + ".layers",
                             name_layers(block.layers)};
    }
  }

  Result<std::vector<LayerSpec>> expand(const std::vector<LayerSpec>& layers) {
    const std::vector<std::string> names = name_layers(layers);
    (void)expand_list(layers, names, {{"input", "input"}}, "input", {}, {"", "model.layers", ""});
    if (written_ > kWrittenMax) {
      return field_error("FIELD_OUT_OF_RANGE", "model.layers",
                         "has more than " + std::to_string(kWrittenMax) +
                             " characters of names and values of settings after its blocks are "
                             "expanded, expected at most that many");
    }
    return std::move(out_);
  }

 private:
  struct Block {
    const BlockSpec* spec = nullptr;
    std::string path;
    std::vector<std::string> names;
  };
  // The full name of a layer by its name within the block: "conv1" -> "layer1/0/conv1".
  using Scope = std::map<std::string, std::string>;
  struct Place {
    std::string prefix;  // "layer1/0/"
    std::string path;    // "model.blocks[0].layers"
    std::string block;   // the block's name
  };

  // Translates a reference inside a block to a full name. A name outside the scope is replaced by a
  // name that no earlier layer has, so that resolve_layers refuses it with its usual message.
  static std::string translate(const std::string& reference, const Scope& scope,
                               const std::string& prefix) {
    const std::string head = reference.substr(0, reference.find('.'));
    const auto found = scope.find(head);
    if (found == scope.end()) return prefix + reference;
    const std::string rest = reference.substr(head.size());
    if (!rest.empty() && found->second.find('.') != std::string::npos) return prefix + reference;
    return found->second + rest;
  }

  // Appends the layers of the list and returns the name of the last one's output.
  std::string expand_list(const std::vector<LayerSpec>& layers,
                          const std::vector<std::string>& names, Scope scope, std::string before,
                          const Attributes& parameters, const Place& place) {
    for (size_t i = 0; i < layers.size() && written_ <= kWrittenMax; ++i) {
      LayerSpec layer = layers[i];
      layer.name = place.prefix + names[i];
      layer.origin = index(place.path, i);
      for (std::string& input : layer.inputs) input = translate(input, scope, place.prefix);
      if (layer.inputs.empty()) layer.inputs = {before};
      for (const auto& [attribute, parameter] : layer.bind) {
        layer.attributes.set(attribute, *parameters.find(parameter));
      }
      layer.bind.clear();
      written_ += length_of(layer);
      before = layer.op == kUseOp ? expand_use(layer) : layer.name;
      scope[names[i]] = before;
      if (layer.op == kUseOp) continue;
      layer.block = place.block;
      out_.push_back(std::move(layer));
    }
    return before;
  }

  std::string expand_use(const LayerSpec& use) {
    const Block& block = blocks_.at(use.block);
    Attributes parameters = block.spec->defaults;
    for (const auto& [name, value] : use.attributes.items()) parameters.set(name, value);
    const std::vector<std::string> inputs = inputs_of(*block.spec);
    std::string x = use.inputs[0];
    for (int64_t r = 0; r < use.repeat.value_or(1) && written_ <= kWrittenMax; ++r) {
      Scope scope;
      for (size_t i = 0; i < inputs.size(); ++i) scope[inputs[i]] = i == 0 ? x : use.inputs[i];
      std::string prefix = use.name + "/";
      if (use.repeat.has_value()) prefix += std::to_string(r) + "/";
      x = expand_list(block.spec->layers, block.names, std::move(scope), x, parameters,
                      {std::move(prefix), block.path, block.spec->name});
    }
    return x;
  }

  std::map<std::string, Block> blocks_;
  std::vector<LayerSpec> out_;
  size_t written_ = 0;  // sum of length_of() over all layers so far, including uses of blocks
};

}  // namespace

bool uses_blocks(const ModelSpec& spec) {
  return !spec.blocks.empty() || std::ranges::any_of(spec.layers, [](const LayerSpec& layer) {
    return layer.op == kUseOp || !layer.bind.empty();
  });
}

Result<std::vector<LayerSpec>> expand_blocks(const ModelSpec& spec) {
  if (Status s = BlockChecker(spec).check(); !s.ok()) return std::move(s).error();
  return BlockExpander(spec).expand(spec.layers);
}

}  // namespace trainyard
