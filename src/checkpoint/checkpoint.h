// src/checkpoint/checkpoint.h: a job's state on disk, saved atomically.
//
//   <folder>/step-000000300/
//     weights.safetensors    parameters and state, by name
//     optimizer.safetensors  optimizer state, by name
//     state.json             step, seed, threads, backend, SHA-256 of the files and of itself
// A checkpoint is written to a temporary folder (state.json last), synced and renamed. Saving a
// step again moves the old folder to step-000000300.old until the new one is durable. A folder that
// is to be removed is first renamed to a name that ends with .removed.tmp.
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
  int64_t step = 0;  // training steps completed; determines the next sample
  uint64_t seed = 0;
  int threads = 0;  // recorded because results are bit-identical only for equal thread counts
  std::string backend;
  std::string job_digest;  // digest of the settings that define the run; the trainer refuses
                           // another job's checkpoint
  std::string extra_json;  // the trainer's own state (best metric, history)

  bool operator==(const CheckpointState&) const = default;
};

/// Refuses a path whose folder does not exist (UNAVAILABLE/STORAGE_ERROR). A worker calls it before
/// it writes, so that a state folder that was moved or deleted meanwhile is not created anew.
Status check_parent_exists(const std::filesystem::path& path);

/// Writes one checkpoint and returns its folder. On any error the temporary folder is removed and
/// earlier checkpoints are untouched. The caller reports the error and continues: the next
/// checkpoint is a fresh attempt.
Result<std::filesystem::path> save_checkpoint(Files& files, const std::filesystem::path& folder,
                                              const CheckpointState& state,
                                              std::span<const TensorView> weights,
                                              std::span<const TensorView> optimizer);

/// Renames `temporary`, a complete and durable checkpoint of `step`, to its final name in `folder`
/// and keeps the previous folder of the step until that is durable. save_checkpoint() ends with
/// this. Both paths must be in one file system. On an error `temporary` stays.
Status install_checkpoint(Files& files, const std::filesystem::path& temporary,
                          const std::filesystem::path& folder, int64_t step);
/// Returns the folder in which a checkpoint of `step` is written before it is installed in
/// `folder`; prune_checkpoints() removes leftovers of that name.
std::filesystem::path temporary_checkpoint(const std::filesystem::path& folder, int64_t step);

struct LoadedCheckpoint {
  std::filesystem::path path;
  CheckpointState state;
  SafetensorsFile weights;
  SafetensorsFile optimizer;
};

/// Returns the newest checkpoint in `folder` whose digests verify. A damaged checkpoint is skipped
/// and its path is added to `damaged` (may be null). NOT_FOUND/CHECKPOINT_NOT_FOUND if `folder` has
/// no checkpoint, DATA_LOSS/CHECKPOINT_DAMAGED if all are damaged. STORAGE_ERROR or
/// FILE_ACCESS_DENIED if a checkpoint cannot be read: it may be intact, so no older one is loaded
/// instead.
Result<LoadedCheckpoint> load_newest_checkpoint(const std::filesystem::path& folder,
                                                std::vector<std::filesystem::path>* damaged);

/// A checkpoint's folder, recognized by its name; its content is not checked.
struct CheckpointFolder {
  std::filesystem::path path;
  int64_t step = 0;
  bool old = false;  // moved aside while its step was being saved again
};
/// Lists the newest step first; if a step has two folders, the regular one precedes the one moved
/// aside.
std::vector<CheckpointFolder> list_checkpoints(const std::filesystem::path& folder);
/// Returns the checkpoint's state if state.json is intact and the files have the recorded sizes,
/// else nothing.
std::optional<CheckpointState> find_state(const CheckpointFolder& checkpoint);
/// Returns whether a file of the checkpoint is missing: its folder got its name with all of them.
bool is_half_removed(const CheckpointFolder& checkpoint);
/// SHA-256 digests of the files, as recorded in state.json.
struct CheckpointDigests {
  std::string weights_sha256;
  std::string optimizer_sha256;
};
/// Copies `from`, which must look complete, to a checkpoint of `state.step` in `folder`, with
/// `state` in place of its own. The tensor files are hard links to those of `from`. The copy is
/// durable, or on an error does not exist. NOT_FOUND if `from` was removed meanwhile.
Result<CheckpointDigests> link_checkpoint(Files& files, const CheckpointFolder& from,
                                          const std::filesystem::path& folder,
                                          const CheckpointState& state);
/// Reads the whole checkpoint. DATA_LOSS/CHECKPOINT_DAMAGED, or the error of the read.
Status verify_checkpoint(const CheckpointFolder& checkpoint);

/// The checkpoints that prune_checkpoints() keeps: each that at least one member selects.
struct Retention {
  int newest = 2;           // number of the newest checkpoints that look complete, at least 1
  int64_t every_steps = 0;  // keeps steps that are multiples of this; 0: none
  int64_t best_step = 0;    // keeps the checkpoint of this step; 0: none
};

/// Removes the checkpoints that `retention` does not keep, and leftovers of interrupted saves. A
/// removal that fails is repeated at the next call. Only one process may save into a folder at a
/// time.
void prune_checkpoints(Files& files, const std::filesystem::path& folder,
                       const Retention& retention);

}  // namespace trainyard
