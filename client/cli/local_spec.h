// client/cli/local_spec.h: what commands share that work on a spec's files here: `local run`,
// `plan`, `dataset preview`.
#pragma once

#include <filesystem>
#include <string>

#include "client/lib/spec_file.h"
#include "proto/convert/spec.h"
#include "src/base/result.h"
#include "src/data/schema.h"

namespace trainyard::cli {

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

}  // namespace trainyard::cli
