// client/cli/job_file.h: reads a job's spec file for the commands. An ONNX file (model.onnx) is
// replaced by its layers and weights, as if by `model import`.
#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "client/cli/pretrained_model.h"
#include "client/cli/session.h"
#include "client/cli/temporary_folder.h"
#include "client/lib/spec_file.h"

namespace trainyard::cli {

/// Does the same as client::read_spec_file(), with a helpful error if the file is data instead of a
/// job file.
Result<client::SpecFile> read_job_spec(const std::filesystem::path& path,
                                       std::span<const std::string> sets,
                                       std::span<const std::string> grids = {});

/// Imports model.onnx: the model gets its layers, and its weights become the initial weights unless
/// the recipe names others. The weights are written to a file in `scratch`, which must outlive the
/// spec. Notes about the import go to stderr.
Status import_onnx(Session& session, TemporaryFolder& scratch, client::SpecFile& spec);

/// Does what makes a spec file's models fields of the job: import_onnx(), import_pretrained(),
/// unpack_tokenizer() and import_adapter().
Status import_models(Session& session, TemporaryFolder& scratch, client::SpecFile& spec,
                     WeightsNeed need = WeightsNeed::kNumbers);

/// Calls read_job_spec() and import_models(). Refuses a model whose folder has no
/// weights.
Result<client::SpecFile> read_job_file(Session& session, const std::filesystem::path& path,
                                       std::span<const std::string> sets, TemporaryFolder& scratch,
                                       std::span<const std::string> grids = {});

}  // namespace trainyard::cli
