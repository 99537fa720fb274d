#include "server/worker/worker.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "proto/convert/data.h"
#include "proto/convert/run.h"
#include "proto/convert/spec.h"
#include "server/inventory/checked_inventory.h"
#include "server/worker/outcome.h"
#include "server/worker/serve.h"
#include "server/worker/server_source.h"
#include "server/worker/wire_reporter.h"
#include "src/base/sha256.h"
#include "src/calibration/calibrate.h"
#include "src/calibration/device_check.h"
#include "src/checkpoint/weights_file.h"
#include "src/data/dataset.h"
#include "src/data/problems.h"
#include "src/inference/imported_model.h"
#include "src/job/reporter.h"
#include "src/job/train_job.h"
#include "src/runtime/nvml.h"
#include "src/runtime/open_backend.h"
#include "src/train/session.h"
#include "src/train/trainer.h"

namespace trainyard {
namespace {

constexpr size_t kTensorTableBytesMax = 2 << 20;  // a message may have 4 MiB

/// Returns the names and shapes of the file's tensors, without values.
Result<v1::Outcome> tensor_table(const std::filesystem::path& path) {
  ASSIGN_OR_RETURN(const WeightsFile file, WeightsFile::open(path));
  v1::Outcome outcome = succeeded();
  for (const FileTensor& t : file.tensors()) *outcome.add_tensors() = to_proto(t);
  if (outcome.ByteSizeLong() <= kTensorTableBytesMax) return outcome;
  return make_error(ErrorCode::kInvalidArgument, "MODEL_FILE_INVALID",
                    "safetensors: the names and shapes of " +
                        std::to_string(file.tensors().size()) +
                        " tensors take more than the 2 MiB that are accepted");
}

/// Makes a model of uploaded weights and a description of their network.
Result<v1::Outcome> make_model(const v1::InspectTask& task) {
  const std::filesystem::path output = task.model_output();
  ASSIGN_OR_RETURN(const ModelInfo info,
                   import_model(local_files(), task.description_path(), task.path(), output));
  ASSIGN_OR_RETURN(v1::Outcome outcome, tensor_table(output / kModelWeightsFile));
  ASSIGN_OR_RETURN(*outcome.add_digests(), sha256_file(output / kModelWeightsFile));
  *outcome.mutable_schema() = to_proto(info.schema);
  return outcome;
}

Result<v1::Outcome> run_inspect(const v1::InspectTask& task) {
  return task.model_output().empty() ? tensor_table(task.path()) : make_model(task);
}

Result<v1::Outcome> run_train(const v1::TrainTask& task, ReportStream& stream,
                              const std::stop_token& stop, Uplink* uplink,
                              const std::shared_ptr<Peers>& peers) {
  const auto begin = std::chrono::steady_clock::now();
  ASSIGN_OR_RETURN(const EngineSpec spec, to_engine(task.spec()));
  std::vector<std::string> names(task.devices().begin(), task.devices().end());
  if (names.empty()) names.push_back(task.device());
  const auto algorithms = std::make_shared<Algorithms>(Algorithms::Options{task.algorithms_dir()});
  ASSIGN_OR_RETURN(const std::vector<RankDevice> devices,
                   open_devices(names, task.threads(), algorithms, peers));
  TrainJob job;
  job.model = spec.model;
  job.recipe = spec.recipe;
  job.dataset = task.dataset_dir();
  job.initial_weights = task.initial_weights_path();
  job.checkpoints = task.checkpoint_dir();
  job.model_output = task.model_dir();
  job.threads = task.threads();
  job.names_faults = task.names_faults();
  job.allows_resident_rows = !task.rows_stay_on_host();
  WireReporter reporter(stream, begin, uplink);
  ASSIGN_OR_RETURN(const TrainResult result, train(job, devices, local_files(), reporter, stop));

  v1::Outcome outcome = succeeded();
  outcome.set_steps_done(result.steps_done);
  for (const MetricPoint& point : result.final_metrics)
    (*outcome.mutable_final_metrics())[point.key] = point.value;
  for (v1::ConfusionMatrix& matrix : to_proto(result.confusion, result.classes)) {
    *outcome.add_confusion_matrices() = std::move(matrix);
  }
  for (const MetricPoint& point : result.baselines) {
    v1::Baseline& baseline = *outcome.add_baselines();
    baseline.set_metric(point.key);
    baseline.set_value(point.value);
  }
  for (const std::string& warning : result.warnings) outcome.add_warnings(warning);
  *outcome.mutable_times() = reporter.to_wire(result.times);
  outcome.set_arena_planned_bytes(result.arena_planned_bytes);
  outcome.set_arena_used_bytes(result.arena_used_bytes);
  // A model with too many tensors for a table is still valid.
  if (auto table = tensor_table(job.model_output / "model.safetensors"); table.ok()) {
    *outcome.mutable_tensors() = std::move(*table->mutable_tensors());
  }
  if (uplink != nullptr) {
    if (Status s = uplink->model_written(job.model_output); !s.ok()) return std::move(s).error();
  }
  return outcome;
}

Result<v1::Outcome> run_digest(const v1::DigestTask& task) {
  const std::vector<std::filesystem::path> roots(task.allowed_roots().begin(),
                                                 task.allowed_roots().end());
  v1::Outcome outcome = succeeded();
  for (int i = 0; i < task.spec().sources_size(); ++i) {
    const v1::DatasetSource& source = task.spec().sources(i);
    std::string& digest = *outcome.add_digests();
    std::string& stamp = *outcome.add_stamps();
    if (source.server_path().empty()) continue;
    ASSIGN_OR_RETURN(const ServerSource opened, ServerSource::open(source, i, roots));
    stamp = opened.trusted_stamp(std::time(nullptr));
    ASSIGN_OR_RETURN(digest, opened.digest());
    if (Status s = opened.check_unchanged(); !s.ok()) return std::move(s).error();
  }
  return outcome;
}

Result<v1::Outcome> run_ingest(const v1::IngestTask& task) {
  std::vector<std::filesystem::path> paths(task.source_paths().begin(), task.source_paths().end());
  const std::vector<std::filesystem::path> roots(task.allowed_roots().begin(),
                                                 task.allowed_roots().end());
  std::vector<ServerSource> opened;
  for (int i = 0; i < task.spec().sources_size(); ++i) {
    const v1::DatasetSource& source = task.spec().sources(i);
    if (source.server_path().empty()) continue;
    ASSIGN_OR_RETURN(ServerSource of_server, ServerSource::open(source, i, roots));
    const std::string stamp = i < task.stamps_size() ? task.stamps(i) : "";
    if (Status s = of_server.check_content(source.sha256(), stamp); !s.ok()) {
      return std::move(s).error();
    }
    paths[static_cast<size_t>(i)] = of_server.path();
    opened.push_back(std::move(of_server));
  }
  ASSIGN_OR_RETURN(const IngestRequest request, to_ingest_request(task.spec(), paths));
  Result<DatasetSchema> ingested = ingest(request, task.output_dir(), local_files());
  if (!ingested.ok()) {
    Error error = ingested.error();
    for (const ServerSource& source : opened) error = source.with_name(std::move(error));
    error.message = message_with_all(error);  // a failed dataset keeps only the message
    return error;
  }
  const DatasetSchema& schema = *ingested;
  for (const ServerSource& source : opened) {  // on an error the requester deletes the output
    if (Status s = source.check_unchanged(); !s.ok()) return std::move(s).error();
  }
  v1::Outcome outcome = succeeded();
  *outcome.mutable_schema() = to_proto(schema);
  return outcome;
}

Result<v1::Outcome> run_measure(const v1::MeasureTask& task) {
  ASSIGN_OR_RETURN(EngineSpec spec, to_engine(task.spec()));
  auto weights = std::make_shared<std::vector<FileTensor>>();
  for (const v1::WeightTensor& t : task.weights()) weights->push_back(to_engine(t));
  spec.recipe.initial_weights.tensors = std::move(weights);
  ASSIGN_OR_RETURN(const DatasetSchema schema, read_schema(task.dataset_dir()));
  const v1::Resources& resources = task.spec().resources();
  const int64_t ranks = int64_t{std::max(1, resources.gpus())} * std::max(1, resources.nodes());
  ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend,
                   open_backend(task.device(), task.threads()));
  ASSIGN_OR_RETURN(const RunShape shape,
                   check_recipe(spec.recipe, spec.model, schema, ranks, backend->traits()));
  ASSIGN_OR_RETURN(RunPrograms programs, compile_run(spec.model, spec.recipe, schema, shape));
  // Only uses stored choices of algorithms and times none: the device may be busy, and a job that
  // starts there needs the memory.
  backend->use_algorithms(
      std::make_shared<Algorithms>(Algorithms::Options{task.algorithms_dir(), /*times=*/false}));
  if (Status s = check_kernels(programs, *backend); !s.ok()) return std::move(s).error();
  v1::Outcome outcome = succeeded();
  outcome.set_workspace_bytes(measure_workspace(std::move(programs), *backend));
  return outcome;
}

/// Returns the GPU's readings by NVML; nothing for the CPU, or if NVML does not have them.
std::optional<NvmlDevice> read_gpu(const Result<std::unique_ptr<Nvml>>& nvml,
                                   const std::string& device) {
  if (!nvml.ok()) return std::nullopt;
  const auto gpus = (*nvml)->read_devices();
  if (!gpus.ok()) return std::nullopt;
  for (const NvmlDevice& gpu : *gpus) {
    if (device == "devices/" + gpu.name) return gpu;
  }
  return std::nullopt;
}

/// Returns the GPU's memory in use by all processes together; 0 if it is not known.
int64_t used_bytes(const Result<std::unique_ptr<Nvml>>& nvml, const std::string& device) {
  const auto gpu = read_gpu(nvml, device);
  return gpu ? gpu->memory_used_bytes : 0;
}

/// Samples the power draw of a GPU from its creation on.
class PowerMeter {
 public:
  explicit PowerMeter(const std::string& device)
      : thread_([this, device](const std::stop_token& stop) { run(device, stop); }) {}
  /// Returns the power draw in watts while the GPU computed; 0 if it is not known. The GPU is idle
  /// between networks, so this is the mean of the larger half of the samples.
  double stop() {
    thread_.request_stop();
    thread_.join();
    std::ranges::sort(watts_, std::greater());
    watts_.resize((watts_.size() + 1) / 2);
    const double sum = std::accumulate(watts_.begin(), watts_.end(), 0.0);
    return watts_.empty() ? 0 : sum / static_cast<double>(watts_.size());
  }

 private:
  void run(const std::string& device, const std::stop_token& stop) {
    constexpr auto kSampleInterval = std::chrono::milliseconds(20);
    const auto nvml = Nvml::load(kNvmlLibrary);
    while (!stop.stop_requested()) {
      const auto gpu = read_gpu(nvml, device);
      if (!gpu || !gpu->power_watts) return;
      watts_.push_back(*gpu->power_watts);
      std::this_thread::sleep_for(kSampleInterval);
    }
  }
  std::vector<double> watts_;  // used only by the thread until it has ended
  std::jthread thread_;
};

Result<v1::Outcome> run_check_device(const v1::CheckDeviceTask& task) {
  const auto nvml = Nvml::load(kNvmlLibrary);
  const int64_t used_before = used_bytes(nvml, task.device());
  ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend,
                   open_backend(task.device(), task.threads()));
  const DeviceCheck check =
      check_device(*backend, *make_cpu_backend(std::max(1, task.threads())),
                   [](const DeviceCheckRow& row) { return row.failure.empty(); });
  if (const std::string failure = check.failure(); !failure.empty()) {
    return make_error(ErrorCode::kFailedPrecondition, "DEVICE_CHECK_FAILED", failure);
  }
  v1::Outcome outcome = succeeded();
  // The memory that stays in use after the networks were freed: the context, the code of kernels
  // and libraries, and the backend's own memory. No job runs on the device in the meantime.
  if (const int64_t used_now = used_bytes(nvml, task.device());
      used_before > 0 && used_now > used_before) {
    (*outcome.mutable_metadata())[server::kOverheadKey] = std::to_string(used_now - used_before);
  }
  if (const std::string warning = backend->warning(); !warning.empty()) {
    (*outcome.mutable_metadata())[server::kWarningKey] = warning;
  }
  return outcome;
}

/// Runs with a lower CPU priority, so that jobs which start in the meantime go first.
Result<v1::Outcome> run_calibrate(const v1::CalibrateTask& task, const std::stop_token& stop) {
  constexpr int kNice = 10;
  (void)::setpriority(PRIO_PROCESS, 0, kNice);
  ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend,
                   open_backend(task.device(), task.threads()));
  ASSIGN_OR_RETURN(const DeviceRates rates, measure_rates(*backend, task, stop));
  v1::Outcome outcome = succeeded();
  outcome.set_rates(to_json_text(rates));
  return outcome;
}

Result<v1::Outcome> dispatch(const v1::Assignment& assignment, ReportStream& stream,
                             const std::stop_token& stop, Uplink* uplink,
                             const std::shared_ptr<Peers>& peers) {
  switch (assignment.kind_case()) {
    case v1::Assignment::kTrain:
      return run_train(assignment.train(), stream, stop, uplink, peers);
    case v1::Assignment::kDigest:
      return run_digest(assignment.digest());
    case v1::Assignment::kIngest:
      return run_ingest(assignment.ingest());
    case v1::Assignment::kMeasure:
      return run_measure(assignment.measure());
    case v1::Assignment::kServe:
      return run_serve(assignment.serve(), stream, stop);
    case v1::Assignment::kCheckDevice:
      return run_check_device(assignment.check_device());
    case v1::Assignment::kCalibrate:
      return run_calibrate(assignment.calibrate(), stop);
    case v1::Assignment::kInspect:
      return run_inspect(assignment.inspect());
    case v1::Assignment::KIND_NOT_SET:
      break;
  }
  return make_error(ErrorCode::kFailedPrecondition, "WORKER_PROTOCOL_ERROR",
                    "the assignment has an unknown kind");
}

}  // namespace

Result<DeviceRates> measure_rates(Backend& backend, const v1::CalibrateTask& task,
                                  const std::stop_token& stop) {
  CalibrateOptions options;
  options.precision = to_engine(task.precision());
  if (task.seconds_max() > 0) options.seconds_max = task.seconds_max();
  PowerMeter power(task.device());
  ASSIGN_OR_RETURN(DeviceRates rates, calibrate(backend, options, stop));
  rates.watts = power.stop();
  return rates;
}

v1::Outcome run_assignment(const v1::Assignment& assignment, ReportStream& stream,
                           std::stop_token stop, Uplink* uplink,
                           const std::shared_ptr<Peers>& peers) noexcept {
  return outcome_of([&] { return dispatch(assignment, stream, stop, uplink, peers); });
}

}  // namespace trainyard
