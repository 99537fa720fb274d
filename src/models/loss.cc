#include "src/models/loss.h"

#include <algorithm>
#include <optional>

#include "src/base/join.h"
#include "src/base/text.h"
#include "src/base/unicode.h"
#include "src/models/preset.h"

namespace trainyard {

namespace {

constexpr int64_t kClassesMax = 1 << 22;  // the same as in src/data/limits.h
constexpr double kSamplesMax = 1 << 20;   // with more samples, the loss over all classes is as fast
constexpr double kFactorMax = 1e6;        // bound of weights and deltas, far above any sensible one

using enum TargetForm;

AttributeRule smoothing_rule(bool required) {
  return real_rule("label_smoothing", required,
                   {.max = 1, .min_excluded = required, .max_excluded = true});
}

AttributeRule factor_rule(std::string_view name) {
  return real_rule(name, false, {.max = kFactorMax, .min_excluded = true});
}

std::string_view target_text(TargetForm target) {
  switch (target) {
    case kClass:
      return "a target of classes";
    case kNumeric:
      return "a numeric target";
    case kNextToken:
      return "the next token";
    case kInput:
      return "the input as target";
  }
  return "";
}

// Returns the reason why a loss does not fit the data although it fits the form of the target;
// empty if it fits.
std::string_view misfit(const LossKind& kind, const ModelInterface& data) {
  if (kind.field != "binary_cross_entropy") return "";
  if (data.target == kClass && data.outputs != 2) {
    return "is for two classes, but the dataset has more";
  }
  if (data.target == kInput && !data.bytes) {
    return "needs an input of shares from 0 to 1, such as the pixels of an 8-bit image, but this "
           "dataset has other values";
  }
  return "";
}

bool fits(const LossKind& kind, const ModelInterface& data) {
  return std::ranges::find(kind.targets, data.target) != kind.targets.end() &&
         misfit(kind, data).empty();
}

std::string fitting_fields(const ModelInterface& data) {
  std::string text;
  for (const LossKind& kind : loss_kinds()) {
    if (fits(kind, data)) text += (text.empty() ? "" : ", ") + std::string(kind.field);
  }
  return text;
}

const LossKind* choose_kind(const LossSpec& spec, const ModelInterface& data,
                            Violations& violations) {
  if (spec.op.empty()) {
    // For each target, loss_kinds() lists the most common loss first.
    return &*std::ranges::find_if(loss_kinds(), [&](const LossKind& k) { return fits(k, data); });
  }
  const LossKind* kind = find_loss_kind(spec.op);
  if (kind == nullptr) {
    violations.add("FIELD_UNSUPPORTED", "model.loss",
                   quoted_value(spec.op) + " is not known, expected " + fitting_fields(data));
    return nullptr;
  }
  if (fits(*kind, data)) return kind;
  const std::string_view why = misfit(*kind, data);
  violations.add("FIELD_UNSUPPORTED", "model.loss",
                 std::string(kind->field) + " " +
                     (why.empty() ? "does not fit " + std::string(target_text(data.target))
                                  : std::string(why)) +
                     ", expected " + fitting_fields(data));
  return kind;
}

// Checks what depends on the number of classes K, which the attribute rules cannot express.
void check_classes(const Attributes& attributes, const std::string& path, int64_t K,
                   Violations& violations) {
  const auto refuse = [&](const std::string& name, std::string description) {
    violations.add("FIELD_OUT_OF_RANGE", path + "." + name, std::move(description));
  };
  const int64_t ignored = attributes.get_int("ignore_index", 0);
  if (ignored >= K) {
    refuse("ignore_index",
           std::to_string(ignored) + " is not a class, expected 0.." + std::to_string(K - 1));
  }
  const int64_t samples = attributes.get_int("samples", 0);
  if (samples > K / 2) {
    refuse("samples", std::to_string(samples) + " is more than half of the " + std::to_string(K) +
                          " classes, expected 1.." + std::to_string(K / 2) +
                          ", or the loss softmax_cross_entropy, which counts all of them");
  }
  const std::vector<double> weights = attributes.get_floats("class_weights", {});
  if (attributes.find("class_weights") == nullptr) return;
  if (std::ssize(weights) != K) {
    refuse("class_weights", "has " + std::to_string(weights.size()) + " entries, expected " +
                                std::to_string(K) + ", one per class");
  }
  if (std::ranges::all_of(weights, [](double w) { return w == 0; })) {
    refuse("class_weights", "are all 0, expected at least one above 0");
  }
}

// Replaces `balanced` by a list of weights, computed from the number of rows per class. Returns
// false if that is impossible.
bool balance_weights(Attributes& attributes, const std::string& path, const ModelInterface& data,
                     Violations& violations) {
  const Attribute* given = attributes.find("class_weights");
  if (given == nullptr || !std::holds_alternative<std::string>(*given)) return true;
  const auto refuse = [&](const std::string& why) {
    violations.add("FIELD_UNSUPPORTED", path + ".class_weights",
                   "balanced " + why + ", expected a list of numbers");
    return false;
  };
  const std::vector<int64_t>& counts = data.class_counts;
  if (data.target == kNextToken) return refuse("needs a target of classes; text has none");
  if (counts.empty()) {
    return refuse(
        "needs the row count of each class, but the dataset was created before these were counted; "
        "delete it and upload it again");
  }
  int64_t rows = 0;
  for (size_t k = 0; k < counts.size(); ++k) {
    if (counts[k] == 0) {
      return refuse("has no weight for class " + std::to_string(k) +
                    " (counted from 0), which has no training rows");
    }
    rows += counts[k];
  }
  std::vector<double> weights;
  for (const int64_t count : counts) {
    weights.push_back(static_cast<double>(rows) /
                      (static_cast<double>(counts.size()) * static_cast<double>(count)));
  }
  attributes.set("class_weights", std::move(weights));
  return true;
}

// Replaces weights by class by a list, in which classes that are not named have the weight 1.
// Returns false if that is impossible.
template <typename Named>
bool list_weights(const Named& named, Attributes& attributes, const std::string& path,
                  const ModelInterface& data, Violations& violations) {
  const std::string field = path + ".class_weights";
  const std::vector<std::string>& classes = data.class_names;
  if (classes.empty()) {
    violations.add("FIELD_UNSUPPORTED", field,
                   data.target == kNextToken
                       ? "names classes, but text has none, expected a list of numbers"
                       : "names classes, which needs a dataset of at most " +
                             std::to_string(kNamedClassesMax) +
                             " classes, expected a list of numbers");
    return false;
  }
  std::vector<double> weights(classes.size(), 1);
  constexpr size_t kSuggestedMax = 4;  // the search for a similar class is slow
  const size_t before = violations.count();
  const auto quoted_classes = [&classes] {
    std::vector<std::string> quoted;
    for (const std::string& name : classes) quoted.push_back(quoted_value(name));
    return quoted;
  };
  for (const auto& [name, weight] : named) {
    const auto at = std::ranges::find(classes, nfc(name));
    if (at != classes.end()) {
      weights[static_cast<size_t>(at - classes.begin())] = static_cast<double>(weight);
      continue;
    }
    const std::optional<std::string> near =
        violations.count() - before < kSuggestedMax ? nearest_name(name, classes) : std::nullopt;
    violations.add("FIELD_UNSUPPORTED", field,
                   quoted_value(name) + " is not a class of the dataset, " +
                       (near ? "did you mean " + quoted_value(*near) + "?"
                             : "expected " + first_names(quoted_classes())));
  }
  if (violations.count() > before) return false;
  attributes.set("class_weights", std::move(weights));
  return true;
}

// Replaces class weights that are not a list by one. Returns false if that is impossible.
bool resolve_weights(Attributes& attributes, const std::string& path, const ModelInterface& data,
                     Violations& violations) {
  const Attribute* given = attributes.find("class_weights");
  if (given == nullptr) return true;
  if (const auto* whole = std::get_if<NamedInts>(given)) {
    return list_weights(NamedInts(*whole), attributes, path, data, violations);
  }
  if (const auto* numbers = std::get_if<NamedNumbers>(given)) {
    return list_weights(NamedNumbers(*numbers), attributes, path, data, violations);
  }
  return balance_weights(attributes, path, data, violations);
}

// Returns the data's interface with the target that the spec selects.
ModelInterface choose_target(const ModelSpec& spec, ModelInterface data, Violations& violations) {
  const PresetKind* preset = find_preset_kind(spec.preset);
  const bool implied = preset != nullptr && preset->reconstructs;
  const std::string field = implied ? "model." + spec.preset : "model.target";
  if (!spec.target.empty() && spec.target != "input") {
    violations.add("FIELD_UNSUPPORTED", "model.target",
                   quoted_value(spec.target) + " is not known, expected input");
    return data;
  }
  if (spec.target.empty() && !implied) return data;
  if (data.vocabulary > 0) {
    violations.add("FIELD_UNSUPPORTED", field,
                   "reproduces its input, which must be numbers or an image, not text");
    return data;
  }
  data.target = kInput;
  data.outputs = data.input.elements();
  return data;
}

// Returns the field by which the model requests its categorical columns as codes; empty if it does
// not.
std::string embedding_field(const ModelSpec& spec) {
  const PresetKind* preset = find_preset_kind(spec.preset);
  if (preset != nullptr && spec.parameters.find(kEmbeddingParameter) != nullptr &&
      std::ranges::find(preset->parameters, kEmbeddingParameter, &AttributeRule::name) !=
          preset->parameters.end()) {
    return "model." + spec.preset + "." + std::string(kEmbeddingParameter);
  }
  const auto find = [](const std::vector<LayerSpec>& layers, const std::string& path) {
    const auto layer = std::ranges::find(layers, "CategoryEmbedding", &LayerSpec::op);
    return layer == layers.end() ? std::string()
                                 : path + ".layers[" + std::to_string(layer - layers.begin()) +
                                       "].category_embedding";
  };
  std::string field = find(spec.layers, "model");
  for (size_t i = 0; i < spec.blocks.size() && field.empty(); ++i) {
    field = find(spec.blocks[i].layers, "model.blocks[" + std::to_string(i) + "]");
  }
  return field;
}

// Returns the data's interface with categories in the form that the model reads.
ModelInterface choose_categories(const ModelSpec& spec, ModelInterface data,
                                 Violations& violations) {
  const std::string field = embedding_field(spec);
  if (field.empty()) return data;
  if (data.categories.empty()) {
    violations.add("FIELD_UNUSED", field,
                   "has no effect: the dataset has no categorical columns; remove it, or list "
                   "columns whose numbers mean categories in dataset.csv.categorical");
    return data;
  }
  if (data.target == kInput) {
    violations.add("FIELD_UNSUPPORTED", field,
                   "does not work with the input as target, where each category is a number of its "
                   "own; remove it, or train on the dataset's target");
    return data;
  }
  return data.with_category_codes();
}

// Returns the data's interface with the model's vocabulary, which may be larger than the data's:
// its further tokens have a row in the table of embeddings, and where tokens are predicted a score,
// but never occur.
ModelInterface choose_vocabulary(const ModelSpec& spec, ModelInterface data,
                                 Violations& violations) {
  const PresetKind* preset = find_preset_kind(spec.preset);
  const int64_t vocabulary = spec.parameters.get_int(kVocabularyParameter, 0);
  if (preset == nullptr || vocabulary == 0 || data.vocabulary == 0 ||
      std::ranges::find(preset->parameters, kVocabularyParameter, &AttributeRule::name) ==
          preset->parameters.end()) {
    return data;
  }
  if (vocabulary < data.vocabulary) {
    violations.add(
        "FIELD_OUT_OF_RANGE", "model." + spec.preset + "." + std::string(kVocabularyParameter),
        std::to_string(vocabulary) + " is less than the dataset's vocabulary, expected " +
            std::to_string(data.vocabulary) + " or more");
    return data;
  }
  data.vocabulary = vocabulary;
  if (data.target == kNextToken) data.outputs = vocabulary;
  return data;
}

}  // namespace

const std::vector<LossKind>& loss_kinds() {
  AttributeRule weights;
  weights.kind = AttributeRule::Kind::kNamedNumbers;
  weights.name = "class_weights";
  weights.choices = {"balanced"};
  weights.max = kFactorMax;
  weights.count_max = kClassesMax;
  const AttributeRule ignored = integer_rule("ignore_index", false, 0, kClassesMax - 1);
  static const std::vector<LossKind> kinds = {
      {.op = "SoftmaxCrossEntropyLoss",
       .field = "softmax_cross_entropy",
       .targets = {kClass, kNextToken},
       .attributes = {smoothing_rule(false), weights, ignored},
       .classes = true},
      {.op = "KullbackLeiblerDivergence",
       .field = "kl_divergence",
       .targets = {kClass, kNextToken},
       .attributes = {smoothing_rule(true), ignored},
       .classes = true},
      {.op = "SampledSoftmaxCrossEntropyLoss",
       .field = "sampled_softmax",
       .targets = {kClass, kNextToken},
       .attributes = {integer_rule("samples", true, 1, kSamplesMax),
                      choice_rule("distribution", {"log_uniform", "uniform"}), ignored},
       .classes = true,
       .samples = true},
      {.op = "MeanSquaredError", .field = "mean_squared_error", .targets = {kNumeric, kInput}},
      {.op = "MeanAbsoluteError", .field = "mean_absolute_error", .targets = {kNumeric, kInput}},
      {.op = "HuberLoss",
       .field = "huber",
       .targets = {kNumeric, kInput},
       .attributes = {factor_rule("delta")}},
      {.op = "BinaryCrossEntropyLoss",
       .field = "binary_cross_entropy",
       .targets = {kClass, kInput},
       .attributes = {factor_rule("pos_weight")}}};
  return kinds;
}

const LossKind* find_loss_kind(std::string_view op) {
  const auto it = std::ranges::find(loss_kinds(), op, &LossKind::op);
  return it == loss_kinds().end() ? nullptr : &*it;
}

bool Objective::unit_input() const {
  return interface.target == kInput && loss->field == "binary_cross_entropy";
}

bool Objective::reads_scores() const {
  return interface.classification() && !loss->samples && interface.outputs <= kScoresReadMax;
}

Result<Objective> find_objective(const ModelSpec& spec, const ModelInterface& data) {
  Violations violations;
  Objective objective;
  objective.interface = choose_vocabulary(
      spec, choose_categories(spec, choose_target(spec, data, violations), violations), violations);
  objective.attributes = spec.loss.attributes;
  const LossKind* kind = choose_kind(spec.loss, objective.interface, violations);
  objective.loss = kind;
  if (kind != nullptr) {
    const std::string path = "model.loss." + std::string(kind->field);
    const size_t before = violations.count();
    check_attributes(kind->attributes, objective.attributes, path, path, violations);
    // The class checks need attributes of the right type.
    if (kind->classes && violations.count() == before &&
        resolve_weights(objective.attributes, path, objective.interface, violations)) {
      check_classes(objective.attributes, path, objective.interface.outputs, violations);
    }
    // The model outputs the score of the second class; the score of the first class is 0.
    if (objective.interface.target == kClass && !kind->classes) objective.interface.outputs = 1;
  }
  if (!violations.empty()) return violations.to_error();
  return objective;
}

}  // namespace trainyard
