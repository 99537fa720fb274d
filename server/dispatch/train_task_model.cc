// TrainTask's part that reads the model which a worker delivers.
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "server/dispatch/job_files.h"
#include "server/dispatch/train_task.h"
#include "src/base/files.h"
#include "src/base/sha256.h"

namespace trainyard::server {

Result<NewModel> TrainTask::read_model(const v1::Outcome& outcome) const {
  const std::filesystem::path file = options_.paths.model(job_.uid) / "model.safetensors";
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
