#include "client/cli/local_job.h"

#include <stdlib.h>
#include <algorithm>

#include <system_error>
#include <vector>

#include "client/cli/options.h"
#include "client/lib/dataset_upload.h"
#include "proto/convert/data.h"
#include "src/base/cores.h"
#include "src/base/files.h"
#include "src/base/text.h"
#include "src/data/dataset.h"
#include "src/runtime/open_backend.h"
#include "src/runtime/visible_gpus.h"

namespace trainyard::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kThreadsMax = 256;

}  // namespace

TemporaryFolder::TemporaryFolder() {
  std::string path = (fs::temp_directory_path() / "trainyard-local-XXXXXX").string();
  TRAINYARD_CHECK(::mkdtemp(path.data()) != nullptr,
                  "a temporary folder can be created in " + path);
  path_ = path;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

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
        "auto is chosen by a server, by the rates that it has measured, and '" + command +
            "' asks none; write a number, such as 64" +
            (command == "plan --local" ? ", or ask the server with 'plan --upload'" : "")));
  }
  auto engine = to_engine(job_spec);
  if (!engine.ok()) return spec.with_positions(std::move(engine).error());
  return engine;
}

Result<DatasetSchema> read_local_data(const client::SpecFile& spec, const fs::path& folder) {
  const std::vector<fs::path> paths = client::dataset_paths(spec.file.dataset(), spec.folder);
  for (const fs::path& path : paths) {
    if (path.empty()) {
      return field_error("FIELD_UNSUPPORTED", "dataset.server_path",
                         "this command reads files itself; give the path of a file on this machine "
                         "('plan --upload' asks the server)");
    }
    std::error_code ignored;
    if (!fs::is_regular_file(path, ignored) && !client::is_data_folder(spec.file.dataset(), path)) {
      return make_error(ErrorCode::kNotFound, "FILE_NOT_FOUND", path.string() + ": no such file");
    }
  }
  ASSIGN_OR_RETURN(const IngestRequest request,
                   to_ingest_request(client::dataset_spec(spec.file.dataset()), paths));
  return ingest(request, folder, local_files());
}

fs::path local_weights(const client::SpecFile& spec, const Recipe& recipe) {
  const std::string& source = recipe.initial_weights.source;
  if (source.empty()) return {};
  return spec.has_weights() ? spec.weights_path() : spec.folder / source / "model.safetensors";
}

Result<std::string> pick_device(const std::string& wish) {
  if (wish == "cpu") return std::string("devices/cpu");
  if (wish == "gpu") return nth_visible_gpu(0);
  if (parse_gpu_name("devices/" + wish)) return "devices/" + wish;
  return usage_error("--device: " + quoted_value(wish) + ", expected cpu, gpu or gpu-N");
}

Result<std::vector<std::string>> pick_devices(const v1::Resources& resources,
                                              const std::string& flag) {
  std::vector<std::string> devices;
  if (flag.empty()) {
    const bool is_gpu = resources.device() == v1::Resources::GPU;
    const int count = std::max(1, resources.gpus());
    if (count > 1 && !is_gpu) {
      return field_error("FIELD_UNUSED", "resources.gpus",
                         std::to_string(count) + " needs resources.device: gpu");
    }
    for (int i = 0; i < count; ++i) {
      ASSIGN_OR_RETURN(std::string device,
                       is_gpu ? nth_visible_gpu(i) : Result<std::string>("devices/cpu"));
      devices.push_back(std::move(device));
    }
    if (Status s = check_devices(devices, "resources.gpus"); !s.ok()) return std::move(s).error();
    return devices;
  }
  for (size_t at = 0; at <= flag.size();) {
    const size_t end = std::min(flag.find(',', at), flag.size());
    ASSIGN_OR_RETURN(std::string device, pick_device(flag.substr(at, end - at)));
    devices.push_back(std::move(device));
    at = end + 1;
  }
  if (Status s = check_devices(devices, "--device"); !s.ok()) return std::move(s).error();
  return devices;
}

Result<int> pick_threads(const v1::Resources& resources, int64_t flag) {
  if (flag < 0 || flag > kThreadsMax) {
    return usage_error("--threads: expected 1..256");
  }
  if (flag > 0) return static_cast<int>(flag);
  return resources.threads() > 0 ? resources.threads() : usable_cores();
}

}  // namespace trainyard::cli
