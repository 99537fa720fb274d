// src/models/families/family.h: language models as their libraries describe them. A family's row
// says what config.json of a folder of transformers means as a preset with parameters, and which
// tensors the folder's weights must have.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.h"
#include "src/models/model_spec.h"

namespace trainyard {

inline constexpr size_t kModelConfigBytesMax = size_t{1} << 20;

/// A tensor of the weights, by the library's name.
struct ExpectedTensor {
  std::string name;
  Shape shape;
};

struct LanguageModel {
  std::string family;  // "llama", as config.json names it
  std::string title;   // "Llama"
  ModelSpec network;   // the preset decoder or gpt2 with its parameters
  std::string dtype;   // the type of the weights according to the config: "BF16"; empty if unknown
  int64_t vocabulary = 0;     // rows of the table of tokens
  int64_t positions_max = 0;  // the longest text that the model was made for, in tokens
  bool tied_head = false;     // the last layer uses the table of tokens
  int64_t classes = 0;        // of a classifier (score.weight); 0: the model predicts tokens
  std::vector<ExpectedTensor> tensors;
  /// Settings of the config that have no effect here, one sentence each.
  std::vector<std::string> notes;

  int64_t parameter_count() const;
};

/// Reads the text of a config.json. Every setting that changes what the network computes is either
/// expressed by the result or refused: MODEL_UNSUPPORTED names all such settings and what is
/// accepted. MODEL_FILE_INVALID for a text that is no config.
Result<LanguageModel> read_model_config(std::string_view text);

/// Returns the names of the families: "llama", "mistral", ...
std::vector<std::string> family_names();

struct FamilyName {
  std::string_view type;          // "llama"
  std::string_view architecture;  // "LlamaForCausalLM"
  std::string_view classifier;    // "LlamaForSequenceClassification"; empty: there is none
};
/// Returns all families, simpler ones first.
std::vector<FamilyName> family_list();

struct TensorShape {
  std::string_view name;
  const Shape& shape;
};
/// Checks that the tensors of the weights are exactly those of the model: MODEL_FILE_INVALID names
/// the first one that is missing, unknown or has another shape. Names may lack or have the prefixes
/// of the model's naming scheme.
Status check_tensors(const LanguageModel& model, const std::vector<TensorShape>& tensors);

}  // namespace trainyard
