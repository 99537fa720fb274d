// src/onnx/import_model.h: converts an ONNX file to a layer list, and weights by parameter name.
//
// The layer list could have been written by a user, and does not refer to ONNX. Preprocessing that
// this program itself wrote into a file (interface.h) is left out, because a job has its own.
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
  /// Sizes of dimensions that are open in the file, by dimension name.
  std::map<std::string, int64_t> sizes = {};
  std::string output = {};  // which of the file's outputs; empty: the first
  /// False: the file computes a single sample, and none of its dimensions is the batch.
  bool batched = true;
};

struct ImportedWeight {
  std::string name;  // "conv1.weight"
  Shape shape;
  std::vector<float> values;
};

/// An entry of recipe.parameter_groups, which freezes or trains the parameters that match.
struct FreezeRule {
  std::string match;
  bool freeze = true;
};

struct ImportedModel {
  std::vector<LayerSpec> layers;
  std::vector<ImportedWeight> weights;  // all parameters and states of the layers

  std::string input;         // the input's name in the file
  Shape input_shape;         // of one sample
  int64_t input_batch = -1;  // index of the batch dimension in the file, -1: none; in the layers
                             // the batch is always dimension 0
  int64_t vocabulary = 0;    // > 0: the input is tokens below this number
  std::string output;
  Shape output_shape;  // of one sample
  int64_t output_batch = -1;

  int64_t opset = 0;
  int64_t nodes = 0;         // nodes on which the output depends
  int64_t folded_nodes = 0;  // those of `nodes` that are computed during the import
  int64_t parameter_count = 0;
  /// Rules that freeze the layers' parameters whose values are fixed in the file. Empty unless the
  /// file names its parameters (trained_parameters.h).
  std::vector<FreezeRule> freezes;
  std::vector<std::string> notes;  // messages for the user, one sentence each
};

/// Errors: ONNX_INVALID for a broken file; ONNX_UNSUPPORTED for a file that no layer list can
/// express. The latter names all unknown operations, or the first node that is used in an
/// unsupported way.
Result<ImportedModel> import_model(const OnnxFile& file, const ImportOptions& options);
Result<ImportedModel> import_model(const std::filesystem::path& file, const ImportOptions& options);

/// Returns the layers in the format of a job file: "layers:
///   - gemm: {units: 10}
///     name: fc1
/// ".
std::string layers_to_yaml(const std::vector<LayerSpec>& layers);

inline constexpr const char* kWeightsFile = "model.safetensors";
inline constexpr const char* kLayersFile = "model.yaml";

/// Writes kLayersFile and kWeightsFile into a new folder.
Status write_imported(Files& files, const ImportedModel& model,
                      const std::filesystem::path& folder);

}  // namespace trainyard::onnx
