// src/checkpoint/checkpoint_state.h: state.json of a checkpoint. It contains the digests of the
// other files and of itself, so that a flipped bit anywhere in the folder is detected.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "src/base/result.h"
#include "src/checkpoint/checkpoint.h"

namespace trainyard {

inline constexpr std::array<const char*, 2> kCheckpointFiles = {"weights.safetensors",
                                                                "optimizer.safetensors"};

struct CheckpointFileInfo {
  std::string sha256;
  int64_t bytes = 0;
};
struct CheckpointManifest {
  CheckpointState state;
  std::array<CheckpointFileInfo, kCheckpointFiles.size()>
      files;  // in the order of kCheckpointFiles
};

std::string to_state_json(const CheckpointManifest& manifest);
/// Refuses any text that differs by a byte from the output of to_state_json().
Result<CheckpointManifest> parse_state_json(std::string_view text);

}  // namespace trainyard
