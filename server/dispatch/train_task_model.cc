// TrainTask's part for the files of a worker: where it may read and write, and the model that it
// delivers.
#include <cerrno>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "server/dispatch/job_files.h"
#include "server/dispatch/train_task.h"
#include "server/processes/scratch.h"
#include "server/processes/worker_sandbox.h"
#include "src/base/files.h"
#include "src/base/sha256.h"

namespace trainyard::server {

v1::WorkerSandbox TrainTask::sandbox() const {
  const StatePaths& paths = options_.paths;
  if (job_.devices != std::vector<std::string>{"devices/cpu"}) return {};
  const JobBrief brief = brief_of(job_);
  v1::WorkerSandbox sandbox =
      training_sandbox(paths.job(job_.uid), brief.on_cpu.bytes + brief.mapped.bytes);
  add_readable(sandbox, paths.dataset(options_.dataset_digest));
  // Without the weights' path the assignment is refused anyway.
  if (const Result<std::string> weights = initial_weights_path(); weights.ok()) {
    add_readable(sandbox, *weights);
  }
  add_readable(sandbox, paths.algorithms());
  return sandbox;
}

Result<NewModel> TrainTask::read_model(const v1::Outcome& outcome) const {
  const std::filesystem::path place = options_.paths.model(job_.uid);
  if (Status s = take_result(local_files(), options_.paths.written_model(job_.uid), place);
      !s.ok()) {
    Error error = std::move(s).error();
    if (is_of_file_error(error.reason)) return error;
    return make_error(ErrorCode::kInvalidArgument, "MODEL_FILE_INVALID", std::move(error.message));
  }
  const std::filesystem::path file = place / "model.safetensors";
  NewModel model;
  std::error_code ec;
  model.size_bytes = static_cast<int64_t>(std::filesystem::file_size(file, ec));
  if (ec) return file_error("cannot read its model", file, ec.value());
  if (Status s = check_delivered_model(file.parent_path()); !s.ok()) return std::move(s).error();
  ASSIGN_OR_RETURN(model.digest, sha256_file(file));
  model.parameter_count = parameter_count_;
  model.schema = options_.schema;
  model.schema.clear_warnings();  // they describe the dataset, not the model
  model.tensors.assign(outcome.tensors().begin(), outcome.tensors().end());
  return model;
}

}  // namespace trainyard::server
