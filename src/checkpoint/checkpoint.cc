#include "src/checkpoint/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <optional>

#include "src/base/sha256.h"
#include "src/checkpoint/checkpoint_state.h"

namespace trainyard {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kOldSuffix = ".old";
constexpr std::string_view kTemporarySuffix = ".tmp";
constexpr std::string_view kRemovedSuffix = ".removed.tmp";  // also the name of a leftover
constexpr int64_t kStateBytesMax = int64_t{64} << 20;

std::string folder_name(int64_t step) {
  char name[32];
  std::snprintf(name, sizeof name, "step-%09lld", static_cast<long long>(step));
  return name;
}

std::optional<CheckpointFolder> find_candidate(const fs::path& path) {
  std::string name = path.filename().string();
  CheckpointFolder c{path, 0, name.ends_with(kOldSuffix)};
  if (c.old) name.resize(name.size() - kOldSuffix.size());
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const char* begin = name.data() + kPrefix.size();
  const char* end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(begin, end, c.step);
  if (error != std::errc() || stop != end || folder_name(c.step) != name) return std::nullopt;
  return c;
}

/// Creates `folder` and makes each new directory entry on the way durable.
Status create_durable(Files& files, const fs::path& folder) {
  std::vector<fs::path> parents;
  std::error_code ec;
  for (fs::path p = folder; !p.empty() && !fs::exists(p, ec); p = p.parent_path()) {
    parents.push_back(p.parent_path());
  }
  if (parents.empty()) return {};
  if (Status s = files.create_directories(folder); !s.ok()) return s;
  for (auto p = parents.rbegin(); p != parents.rend(); ++p) {
    if (Status s = files.sync_directory(*p); !s.ok()) return s;
  }
  return {};
}

Status write_into(Files& files, const fs::path& folder, CheckpointManifest manifest,
                  std::span<const TensorView> weights, std::span<const TensorView> optimizer) {
  if (Status s = files.create_directories(folder); !s.ok()) return s;
  const SafetensorsMetadata metadata = {{"format", "trainyard-1"},
                                        {"step", std::to_string(manifest.state.step)},
                                        {"seed", std::to_string(manifest.state.seed)}};
  const std::array<std::span<const TensorView>, 2> tensors = {weights, optimizer};
  for (size_t i = 0; i < kCheckpointFiles.size(); ++i) {
    const fs::path path = folder / kCheckpointFiles[i];
    ASSIGN_OR_RETURN(manifest.files[i].sha256,
                     write_safetensors_in_place(files, path, tensors[i], metadata));
    std::error_code ec;
    manifest.files[i].bytes = static_cast<int64_t>(fs::file_size(path, ec));
    if (ec) {
      return make_error(ErrorCode::kUnavailable, "STORAGE_ERROR",
                        "cannot stat " + path.string() + ": " + ec.message());
    }
  }
  const std::string state = to_state_json(manifest);
  const std::span<const std::byte> part = std::as_bytes(std::span(state));
  if (Status s = files.write_file(folder / "state.json", std::span(&part, 1)); !s.ok()) return s;
  return files.sync_directory(folder);
}

Result<CheckpointManifest> read_manifest(const fs::path& folder) {
  ASSIGN_OR_RETURN(const std::string text, read_file(folder / "state.json", kStateBytesMax));
  return parse_state_json(text);
}

Result<SafetensorsFile> open_verified(const fs::path& path, const CheckpointFileInfo& info) {
  ASSIGN_OR_RETURN(SafetensorsFile file,
                   SafetensorsFile::open(path, SafetensorsFile::Halves::kAccepted));
  const std::span<const std::byte> bytes = file.file_bytes();
  Sha256 digest;
  digest.update(bytes);
  if (static_cast<int64_t>(bytes.size()) != info.bytes || digest.finish() != info.sha256) {
    return make_error(ErrorCode::kDataLoss, "CHECKPOINT_DAMAGED",
                      path.filename().string() + " does not match its digest");
  }
  return file;
}

Result<LoadedCheckpoint> load(const fs::path& folder) {
  ASSIGN_OR_RETURN(CheckpointManifest manifest, read_manifest(folder));
  LoadedCheckpoint loaded;
  loaded.path = folder;
  loaded.state = std::move(manifest.state);
  ASSIGN_OR_RETURN(loaded.weights, open_verified(folder / kCheckpointFiles[0], manifest.files[0]));
  ASSIGN_OR_RETURN(loaded.optimizer,
                   open_verified(folder / kCheckpointFiles[1], manifest.files[1]));
  return loaded;
}

/// Returns the checkpoint's state if state.json is intact and the files have the recorded sizes.
/// Skips the digests that load() verifies, so that pruning after each checkpoint stays fast.
std::optional<CheckpointState> find_complete(const fs::path& folder) {
  Result<CheckpointManifest> manifest = read_manifest(folder);
  if (!manifest.ok()) return std::nullopt;
  for (size_t i = 0; i < kCheckpointFiles.size(); ++i) {
    std::error_code ec;
    const auto bytes = fs::file_size(folder / kCheckpointFiles[i], ec);
    if (ec || static_cast<int64_t>(bytes) != manifest->files[i].bytes) return std::nullopt;
  }
  return std::move(manifest->state);
}

bool looks_complete(const fs::path& folder) { return find_complete(folder).has_value(); }

/// Implements list_checkpoints(); `ec` is set if the listing may be incomplete.
std::vector<CheckpointFolder> list_all(const fs::path& folder, std::error_code& ec) {
  std::vector<CheckpointFolder> candidates;
  for (fs::directory_iterator it(folder, ec), end; !ec && it != end; it.increment(ec)) {
    if (std::optional<CheckpointFolder> c = find_candidate(it->path())) candidates.push_back(*c);
  }
  std::sort(candidates.begin(), candidates.end(),
            [](const CheckpointFolder& a, const CheckpointFolder& b) {
              return a.step != b.step ? a.step > b.step : a.old < b.old;
            });
  return candidates;
}

/// Removes a checkpoint's folder. It first gets the name of a leftover, so that a process that is
/// killed meanwhile leaves no half of a checkpoint under the name of a whole one.
Status discard(Files& files, const fs::path& path) {
  std::error_code ec;
  if (!fs::exists(path, ec)) return {};
  fs::path leftover = path;
  leftover += kRemovedSuffix;
  if (fs::exists(leftover, ec)) (void)files.remove_all(leftover);
  const bool renamed = files.rename_durable(path, leftover).ok();
  return files.remove_all(renamed ? leftover : path);  // a full disk may refuse the name
}

/// Returns whether the checkpoint that load() refused may still be intact (a read failed). False if
/// a file is missing: a checkpoint's folder gets its name only when complete, so the checkpoint is
/// damaged.
bool may_be_intact(const Error& refused) {
  return is_of_file_error(refused.reason) && refused.code != ErrorCode::kNotFound;
}

}  // namespace

Status check_parent_exists(const fs::path& path) {
  std::error_code ec;
  const fs::path parent = path.parent_path();
  if (parent.empty() || fs::exists(parent, ec)) return {};
  return make_error(ErrorCode::kUnavailable, "STORAGE_ERROR",
                    parent.string() + " no longer exists; nothing is written there");
}

std::vector<CheckpointFolder> list_checkpoints(const fs::path& folder) {
  std::error_code ignored;
  return list_all(folder, ignored);
}

std::optional<CheckpointState> find_state(const CheckpointFolder& checkpoint) {
  std::optional<CheckpointState> state = find_complete(checkpoint.path);
  return state && state->step == checkpoint.step ? std::move(state) : std::nullopt;
}

bool is_half_removed(const CheckpointFolder& checkpoint) {
  std::error_code ec;
  const auto is_missing = [&](const char* name) {
    return !fs::exists(checkpoint.path / name, ec) && !ec;
  };
  return is_missing("state.json") || std::ranges::any_of(kCheckpointFiles, is_missing);
}

Status verify_checkpoint(const CheckpointFolder& checkpoint) {
  ASSIGN_OR_RETURN(const LoadedCheckpoint loaded, load(checkpoint.path));
  if (loaded.state.step == checkpoint.step) return {};
  return make_error(ErrorCode::kDataLoss, "CHECKPOINT_DAMAGED",
                    "it belongs to step " + std::to_string(loaded.state.step));
}

Result<fs::path> save_checkpoint(Files& files, const fs::path& folder, const CheckpointState& state,
                                 std::span<const TensorView> weights,
                                 std::span<const TensorView> optimizer) {
  TRAINYARD_CHECK(state.step >= 0, "a checkpoint of step " + std::to_string(state.step));
  const fs::path temporary = temporary_checkpoint(folder, state.step);
  const auto save = [&]() -> Status {
    if (Status s = create_durable(files, folder); !s.ok()) return s;
    if (Status s = files.remove_all(temporary); !s.ok()) return s;
    if (Status s = write_into(files, temporary, {state, {}}, weights, optimizer); !s.ok()) return s;
    return install_checkpoint(files, temporary, folder, state.step);
  };
  if (Status s = save(); !s.ok()) {
    (void)files.remove_all(temporary);
    return std::move(s).error();
  }
  return folder / folder_name(state.step);
}

fs::path temporary_checkpoint(const fs::path& folder, int64_t step) {
  return folder / (folder_name(step) + std::string(kTemporarySuffix));
}

Status install_checkpoint(Files& files, const fs::path& temporary, const fs::path& folder,
                          int64_t step) {
  const fs::path final_path = folder / folder_name(step);
  fs::path old = final_path;
  old += kOldSuffix;
  std::error_code ec;
  if (fs::exists(final_path, ec)) {
    // A damaged regular folder must not replace an intact older copy of this step.
    if (!fs::exists(old, ec) || looks_complete(final_path)) {
      if (Status s = discard(files, old); !s.ok()) return s;
      if (Status s = files.rename_durable(final_path, old); !s.ok()) return s;
    } else if (Status s = discard(files, final_path); !s.ok()) {
      return s;
    }
  }
  if (Status s = files.rename_durable(temporary, final_path); !s.ok()) return s;
  (void)discard(files, old);  // prune_checkpoints() tries again
  return {};
}

Result<CheckpointDigests> link_checkpoint(Files& files, const CheckpointFolder& from,
                                          const fs::path& folder, const CheckpointState& state) {
  const fs::path final_path = folder / folder_name(state.step);
  fs::path temporary = final_path;
  temporary += kTemporarySuffix;
  const auto link = [&]() -> Result<CheckpointDigests> {
    ASSIGN_OR_RETURN(CheckpointManifest manifest, read_manifest(from.path));
    manifest.state = state;
    if (Status s = create_durable(files, folder); !s.ok()) return std::move(s).error();
    if (Status s = files.create_directories(temporary); !s.ok()) return std::move(s).error();
    for (const char* name : kCheckpointFiles) {
      if (Status s = files.link_file(from.path / name, temporary / name); !s.ok()) {
        return std::move(s).error();
      }
    }
    const std::string text = to_state_json(manifest);
    const std::span<const std::byte> part = std::as_bytes(std::span(text));
    if (Status s = files.write_file(temporary / "state.json", std::span(&part, 1)); !s.ok()) {
      return std::move(s).error();
    }
    if (Status s = files.sync_directory(temporary); !s.ok()) return std::move(s).error();
    if (Status s = files.rename_durable(temporary, final_path); !s.ok()) {
      return std::move(s).error();
    }
    return CheckpointDigests{manifest.files[0].sha256, manifest.files[1].sha256};
  };
  Result<CheckpointDigests> digests = link();
  if (!digests.ok()) (void)files.remove_all(temporary);
  return digests;
}

Result<LoadedCheckpoint> load_newest_checkpoint(const fs::path& folder,
                                                std::vector<fs::path>* damaged) {
  std::error_code ec;
  const std::vector<CheckpointFolder> candidates = list_all(folder, ec);
  if (ec && ec != std::errc::no_such_file_or_directory) {
    return file_error("cannot list the checkpoints in", folder, ec.value());
  }
  for (const CheckpointFolder& c : candidates) {
    Result<LoadedCheckpoint> loaded = load(c.path);
    if (loaded.ok() && loaded->state.step == c.step) return loaded;
    if (!loaded.ok() && may_be_intact(loaded.error())) return loaded;
    if (damaged != nullptr) damaged->push_back(c.path);
  }
  if (candidates.empty()) {
    return make_error(ErrorCode::kNotFound, "CHECKPOINT_NOT_FOUND", "there is no checkpoint");
  }
  return make_error(ErrorCode::kDataLoss, "CHECKPOINT_DAMAGED",
                    "none of the " + std::to_string(candidates.size()) +
                        " checkpoints is intact; restart the job from step 0");
}

void prune_checkpoints(Files& files, const fs::path& folder, const Retention& retention) {
  int whole = 0;
  int64_t last_whole_step = -1;
  const auto stays = [&](int64_t step) {
    if (whole < std::max(retention.newest, 1)) return true;
    if (step == 0) return false;  // a job stopped before its first step left this checkpoint
    return (retention.every_steps > 0 && step % retention.every_steps == 0) ||
           step == retention.best_step;
  };
  for (const CheckpointFolder& c : list_checkpoints(folder)) {
    if (!stays(c.step) || c.step == last_whole_step) {
      (void)discard(files, c.path);
    } else if (looks_complete(c.path)) {
      ++whole;
      last_whole_step = c.step;
    }
  }
  std::error_code ec;
  std::vector<fs::path> leftovers;
  for (fs::directory_iterator it(folder, ec), end; !ec && it != end; it.increment(ec)) {
    const std::string name = it->path().filename().string();
    if (name.starts_with(kPrefix) && name.ends_with(kTemporarySuffix)) {
      leftovers.push_back(it->path());
    }
  }
  for (const fs::path& path : leftovers) (void)files.remove_all(path);
}

}  // namespace trainyard
