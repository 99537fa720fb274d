// client/cli/local_spec.h: shared by the commands that work with a spec's files on this machine:
// `local run`, `plan`, `dataset preview`.
#pragma once

#include <filesystem>
#include <string>

#include "client/lib/spec_file.h"
#include "proto/convert/spec.h"
#include "src/base/result.h"
#include "src/data/schema.h"

namespace trainyard::cli {

/// Converts the spec for the engine; errors have line and column. Refuses a named dataset, which
/// exists only on a server; `command` is for the message.
Result<EngineSpec> local_engine(const client::SpecFile& spec, const std::string& command);

/// Ingests the spec's files as a typed dataset into `folder`.
Result<DatasetSchema> read_local_data(const client::SpecFile& spec,
                                      const std::filesystem::path& folder);

/// Returns the file of recipe.initial_weights: its path; or for a job's name, since there are no
/// jobs here, the weights in the folder of that name, written by `model export` or --out. Empty if
/// no file is needed.
std::filesystem::path local_weights(const client::SpecFile& spec, const Recipe& recipe);

}  // namespace trainyard::cli
