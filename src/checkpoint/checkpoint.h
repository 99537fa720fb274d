// src/checkpoint/checkpoint.h: a job's state on disk, complete or not there at all.
//
//   <folder>/step-000000300/
//     weights.safetensors    parameters and state, by name
//     optimizer.safetensors  optimizer state, by name
//     state.json             step, seed, threads, backend, SHA-256 of the files and of itself
// A checkpoint is written to a temporary folder (state.json last), synced and renamed. Saving a
// step again moves the old folder to step-000000300.old until the new one is durable.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/base/files.h"
#include "src/base/result.h"
#include "src/checkpoint/safetensors.h"

namespace trainyard {

struct CheckpointState {
  int64_t step = 0;  // steps done; the next sample is a function of it
  uint64_t seed = 0;
  int threads = 0;  // recorded: bits are promised for equal thread counts
  std::string backend;
  std::string job_digest;  // of what defines the run; the trainer refuses another job's
  std::string extra_json;  // the trainer's own state (best metric, history)

  bool operator==(const CheckpointState&) const = default;
};

/// Writes one checkpoint and returns its folder. On any error the temporary folder is removed and
/// earlier checkpoints are untouched. The caller reports the error and continues: the next
/// checkpoint is a fresh attempt.
Result<std::filesystem::path> save_checkpoint(Files& files, const std::filesystem::path& folder,
                                              const CheckpointState& state,
                                              std::span<const TensorView> weights,
                                              std::span<const TensorView> optimizer);

/// Makes `temporary`, a complete checkpoint of `step` whose files are durable, the one in `folder`,
/// in whose file system it is: what save_checkpoint() does at its end. On an error it stays.
Status install_checkpoint(Files& files, const std::filesystem::path& temporary,
                          const std::filesystem::path& folder, int64_t step);
/// Where a checkpoint of `step` is put together before it is installed in `folder`;
/// prune_checkpoints() removes it.
std::filesystem::path temporary_checkpoint(const std::filesystem::path& folder, int64_t step);

struct LoadedCheckpoint {
  std::filesystem::path path;
  CheckpointState state;
  SafetensorsFile weights;
  SafetensorsFile optimizer;
};

/// The newest checkpoint in `folder` whose digests verify; a damaged one is skipped and its path is
/// added to `damaged` (may be null). NOT_FOUND/CHECKPOINT_NOT_FOUND if there is none at all,
/// DATA_LOSS/CHECKPOINT_DAMAGED if all are damaged. One that cannot be read just now may be intact:
/// it is not passed over for an older one, but STORAGE_ERROR or FILE_ACCESS_DENIED.
Result<LoadedCheckpoint> load_newest_checkpoint(const std::filesystem::path& folder,
                                                std::vector<std::filesystem::path>* damaged);

/// A checkpoint's folder by its name, whatever is in it.
struct CheckpointFolder {
  std::filesystem::path path;
  int64_t step = 0;
  bool old = false;  // moved aside while its step was being saved again
};
/// Newest first; of one step the regular folder before the one moved aside.
std::vector<CheckpointFolder> list_checkpoints(const std::filesystem::path& folder);
/// Its state, if it looks complete: the state intact, the sizes right.
std::optional<CheckpointState> find_state(const CheckpointFolder& checkpoint);
/// Digests of its files, as state.json has them.
struct CheckpointDigests {
  std::string weights_sha256;
  std::string optimizer_sha256;
};
/// Makes `from`, which looks complete, the checkpoint `state.step` in `folder` too, with another
/// state: the tensors' files are the same ones, by hard links. Durable, or not there at all.
/// NOT_FOUND if `from` was removed meanwhile.
Result<CheckpointDigests> link_checkpoint(Files& files, const CheckpointFolder& from,
                                          const std::filesystem::path& folder,
                                          const CheckpointState& state);
/// Reads all of it: DATA_LOSS/CHECKPOINT_DAMAGED, or what reading it says.
Status verify_checkpoint(const CheckpointFolder& checkpoint);

/// Which checkpoints stay: one that any of these names.
struct Retention {
  int newest = 2;           // so many of those that look complete, at least 1
  int64_t every_steps = 0;  // those whose step is a multiple of it; 0: none
  int64_t best_step = 0;    // that of this step; 0: none
};

/// Removes the checkpoints that do not stay, and leftovers of interrupted saves. What cannot be
/// removed now is removed the next time. Only one process saves into a folder at a time.
void prune_checkpoints(Files& files, const std::filesystem::path& folder,
                       const Retention& retention);

}  // namespace trainyard
