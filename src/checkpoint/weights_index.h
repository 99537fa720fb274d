// src/checkpoint/weights_index.h: the index of weights that are split over several safetensors
// files, as transformers writes it: {"metadata": {"total_size": bytes}, "weight_map": {tensor:
// file}}.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/base/result.h"

namespace trainyard {

struct WeightsIndex {
  std::string name;                         // of the index, for messages
  std::vector<std::string> files;           // sorted, each once; all in the index's folder
  std::map<std::string, size_t> of_tensor;  // the index of each tensor's file in `files`
  std::optional<int64_t> total_bytes;

  /// MODEL_FILE_INVALID for a text that is no index, or that names a file outside of its folder.
  static Result<WeightsIndex> read(const std::filesystem::path& path);

  /// Checks that the tensors which the files have are those that the index lists, each once and in
  /// its file: MODEL_FILE_INVALID names the tensor and the file. `shards`: the file of each tensor;
  /// `bytes`: of all tensors.
  Status check(std::span<const std::string> tensors, std::span<const size_t> shards,
               int64_t bytes) const;
};

}  // namespace trainyard
