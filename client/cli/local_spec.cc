#include "client/cli/local_spec.h"

#include <system_error>
#include <vector>

#include "client/lib/dataset_upload.h"
#include "proto/convert/data.h"
#include "src/base/files.h"
#include "src/data/dataset.h"

namespace trainyard::cli {
namespace {

namespace fs = std::filesystem;

}  // namespace

Result<EngineSpec> local_engine(const client::SpecFile& spec, const std::string& command) {
  if (!spec.has_data()) {
    return make_error(
        ErrorCode::kInvalidArgument, "FIELD_REQUIRED",
        "dataset: '" + command + "' reads files itself and has no named datasets; give a path");
  }
  v1::JobSpec job_spec = spec.job_spec();
  job_spec.mutable_dataset()->set_name("local");
  const v1::Recipe& recipe = job_spec.recipe();
  if (recipe.has_batch_size() && recipe.batch_size() == 0) {
    return spec.with_positions(field_error(
        "FIELD_UNSUPPORTED", "recipe.batch_size",
        "only a server can choose auto, from the rates that it has measured, and '" + command +
            "' uses no server; write a number, such as 64" +
            (command == "plan --local" ? ", or let the server plan with 'plan --upload'" : "")));
  }
  auto engine = to_engine(job_spec);
  if (!engine.ok()) return spec.with_positions(std::move(engine).error());
  return engine;
}

Result<DatasetSchema> read_local_data(const client::SpecFile& spec, const fs::path& folder) {
  ASSIGN_OR_RETURN(const client::LocalDataset local,
                   client::local_dataset(spec.file.dataset(), spec.folder));
  for (const fs::path& path : local.paths) {
    if (path.empty()) {
      return field_error("FIELD_UNSUPPORTED", "dataset.server_path",
                         "this command reads files itself; give the path of a file on this machine "
                         "('plan --upload' lets the server plan)");
    }
    std::error_code ignored;
    if (!fs::is_regular_file(path, ignored) && !client::is_data_folder(spec.file.dataset(), path)) {
      return make_error(ErrorCode::kNotFound, "FILE_NOT_FOUND", path.string() + ": no such file");
    }
  }
  ASSIGN_OR_RETURN(const IngestRequest request, to_ingest_request(local.spec, local.paths));
  return ingest(request, folder, local_files());
}

fs::path local_weights(const client::SpecFile& spec, const Recipe& recipe) {
  const std::string& source = recipe.initial_weights.source;
  if (source.empty()) return {};
  return spec.has_weights() ? spec.weights_path() : spec.folder / source / "model.safetensors";
}

}  // namespace trainyard::cli
