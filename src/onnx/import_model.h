// src/onnx/import_model.h: an ONNX file as a layer list and weights by the names of its parameters.
//
// The layer list is what a user could have written; nothing of ONNX is left in it. Preprocessing
// that this program has put into a file (interface.h) is left out: a job has its own.
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "src/base/files.h"
#include "src/models/model_spec.h"
#include "src/onnx/onnx_file.h"

namespace trainyard::onnx {

struct ImportOptions {
  std::map<std::string, int64_t> sizes = {};  // of dimensions that are open in the file, by name
  std::string output = {};                    // of the file's outputs; empty: the first
  /// False: the file computes one sample; none of its dimensions is the batch.
  bool batched = true;
};

struct ImportedWeight {
  std::string name;  // "conv1.weight"
  Shape shape;
  std::vector<float> values;
};

/// An entry of recipe.parameter_groups.
struct FreezeRule {
  std::string match;
  bool freeze = true;
};

struct ImportedModel {
  std::vector<LayerSpec> layers;
  std::vector<ImportedWeight> weights;  // of all parameters and states of the layers

  std::string input;         // its name in the file
  Shape input_shape;         // of one sample
  int64_t input_batch = -1;  // the dimension of the file that is the batch; -1: none. Here it is 0
  int64_t vocabulary = 0;    // > 0: the input is tokens below it
  std::string output;
  Shape output_shape;  // of one sample
  int64_t output_batch = -1;

  int64_t opset = 0;
  int64_t nodes = 0;         // that the output depends on
  int64_t folded_nodes = 0;  // of them: computed here, once
  int64_t parameter_count = 0;
  /// Freeze the parameters of the layers whose values are fixed in the file. Only for files that
  /// name their parameters (trained_parameters.h).
  std::vector<FreezeRule> freezes;
  std::vector<std::string> notes;  // what a user should know, a sentence each
};

/// Refusals: ONNX_INVALID, a broken file; ONNX_UNSUPPORTED, one that no layer list can say, which
/// names all operations that are not known, or the first node that is used in a way that is not.
Result<ImportedModel> import_model(const OnnxFile& file, const ImportOptions& options);
Result<ImportedModel> import_model(const std::filesystem::path& file, const ImportOptions& options);

/// The layers as a job file has them: "layers:\n  - gemm: {units: 10}\n    name: fc1\n".
std::string layers_to_yaml(const std::vector<LayerSpec>& layers);

inline constexpr const char* kWeightsFile = "model.safetensors";
inline constexpr const char* kLayersFile = "model.yaml";

/// Writes kLayersFile and kWeightsFile into a new folder.
Status write_imported(Files& files, const ImportedModel& model,
                      const std::filesystem::path& folder);

}  // namespace trainyard::onnx
