// client/cli/job_file.h: a job's spec file as commands read it. An ONNX file (model.onnx) is
// replaced with its layers and weights, as if by `model import`.
#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "client/cli/session.h"
#include "client/cli/temporary_folder.h"
#include "client/lib/spec_file.h"

namespace trainyard::cli {

/// client::read_spec_file(), which also tells a data file from a job file.
Result<client::SpecFile> read_job_spec(const std::filesystem::path& path,
                                       std::span<const std::string> sets,
                                       std::span<const std::string> grids = {});

/// Imports model.onnx: its layers are the model's, and its weights the initial ones, unless the
/// recipe names others; those go into a file in `scratch`, which must outlive the spec. Notes about
/// the import go to stderr.
Status import_onnx(Session& session, TemporaryFolder& scratch, client::SpecFile& spec);

/// Both.
Result<client::SpecFile> read_job_file(Session& session, const std::filesystem::path& path,
                                       std::span<const std::string> sets, TemporaryFolder& scratch,
                                       std::span<const std::string> grids = {});

}  // namespace trainyard::cli
