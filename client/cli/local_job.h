// client/cli/local_job.h: what `local run` and `plan` share: a spec's data read in this process,
// and where it would run.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "client/lib/spec_file.h"
#include "proto/convert/spec.h"
#include "src/base/result.h"
#include "src/data/schema.h"

namespace trainyard::cli {

/// A folder that is removed with the object.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// The spec for the engine; errors have line and column. Refuses a dataset without a path:
/// `command` has no named datasets.
Result<EngineSpec> local_engine(const client::SpecFile& spec, const std::string& command);

/// The spec's files as a typed dataset in `folder`.
Result<DatasetSchema> read_local_data(const client::SpecFile& spec,
                                      const std::filesystem::path& folder);

/// The file that recipe.initial_weights means here: its path, or, because there are no jobs here,
/// the weights in the folder of that name, written by `model export` or --out. Empty if it needs
/// none.
std::filesystem::path local_weights(const client::SpecFile& spec, const Recipe& recipe);

/// "cpu", "gpu" (the first that is visible) or "gpu-N" as the engine's name.
Result<std::string> pick_device(const std::string& wish);

/// The spec's devices by the engine's names, or those of `flag`: one, or several GPUs
/// ("gpu-0,gpu-1"). `auto` is the CPU: nothing here compares devices.
Result<std::vector<std::string>> pick_devices(const v1::Resources& resources,
                                              const std::string& flag);

/// `flag`, else the spec's, else all cores.
Result<int> pick_threads(const v1::Resources& resources, int64_t flag);

}  // namespace trainyard::cli
