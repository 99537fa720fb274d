#include "server/worker/node_measure.h"

#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <thread>
#include <utility>

#include "server/inventory/cpu_device.h"
#include "server/worker/outcome.h"
#include "server/worker/remote_files.h"
#include "server/worker/worker.h"
#include "src/base/wait_for_stop.h"
#include "src/forecast/rates.h"
#include "src/runtime/nvml.h"
#include "src/runtime/open_backend.h"
#include "src/runtime/visible_gpus.h"

namespace trainyard {
namespace {

// The daemon gives the task one minute to end after its outcome.
constexpr std::chrono::seconds kMeasureMax{30};
constexpr std::chrono::seconds kSendTimeout{10};

/// Identifies the build by its version and size, since other builds have other kernels. The file's
/// time is not used, because a scheduler may copy the file for each job.
std::string own_build() {
  std::error_code ec;
  const auto bytes = std::filesystem::file_size("/proc/self/exe", ec);
  return std::string(TRAINYARD_VERSION) + "-" + std::to_string(ec ? 0 : bytes);
}

v1::NodeFacts facts_of(const NodeMeasureOptions& options) {
  const Device cpu = server::read_cpu_device({});
  v1::NodeFacts facts;
  facts.set_cpu_model(cpu.model);
  facts.set_cores(static_cast<int32_t>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN))));
  facts.set_cores_given(cpu.cores);
  facts.set_memory_bytes(cpu.memory_bytes);
  facts.set_build(own_build());
  if (options.end_time_s > options.begin_s) {
    facts.set_time_limit_seconds(options.end_time_s - options.begin_s);
  }
  if (options.devices.empty() || !parse_gpu_name(options.devices.front())) return facts;
  const auto nvml = Nvml::load(kNvmlLibrary);
  if (!nvml.ok()) return facts;
  const auto gpus = (*nvml)->read_devices();
  if (!gpus.ok()) return facts;
  const auto gpu = std::ranges::find_if(
      *gpus, [&](const NvmlDevice& d) { return "devices/" + d.name == options.devices.front(); });
  if (gpu == gpus->end() || !gpu->error.empty()) return facts;
  facts.set_gpu_model(gpu->model);
  facts.set_gpu_free_bytes(std::max<int64_t>(0, gpu->memory_bytes - gpu->memory_used_bytes));
  return facts;
}

}  // namespace

NodeMeasure::NodeMeasure(v1::WorkerService::Stub& stub, ReportStream& stream,
                         NodeMeasureOptions options)
    : stub_(stub), stream_(stream), options_(std::move(options)), facts_(facts_of(options_)) {
  stream_.set_on_command([this](const v1::WorkerCommand& command) {
    if (!command.has_calibrate()) return;
    const MutexLock lock(mu_);
    asked_ = command.calibrate();
  });
}

NodeMeasure::~NodeMeasure() { stream_.set_on_command(nullptr); }

void NodeMeasure::run(const std::stop_token& stop) const {
  std::optional<v1::CalibrateTask> asked;
  {
    const MutexLock lock(mu_);
    asked = asked_;
  }
  const bool no_time =
      options_.end_time_s > 0 && std::time(nullptr) + kMeasureMax.count() >= options_.end_time_s;
  if (!asked || no_time || stop.stop_requested()) return;
  std::stop_source over;
  const std::stop_callback stopped(stop, [&] { over.request_stop(); });
  const std::jthread timer([&](const std::stop_token& done) {
    wait_for_stop(done, kMeasureMax);
    over.request_stop();
  });
  std::string rates;
  const v1::Outcome outcome = outcome_of([&]() -> Result<v1::Outcome> {
    ASSIGN_OR_RETURN(rates, measure(*std::move(asked), over.get_token()));
    return succeeded();
  });
  if (outcome.kind() != v1::Outcome::SUCCEEDED) {
    std::fprintf(stderr, "trainyard-worker: event=node_not_measured message=\"%s\"\n",
                 outcome.message().c_str());
    return;
  }
  v1::SendRatesRequest request;
  request.set_task(options_.task);
  request.set_nonce(options_.nonce);
  request.set_rates(std::move(rates));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kSendTimeout);
  v1::SendRatesResponse response;
  if (const grpc::Status s = stub_.SendRates(&context, request, &response); !s.ok()) {
    std::fprintf(stderr, "trainyard-worker: event=rates_not_sent message=\"%s\"\n",
                 error_of(s).message.c_str());
  }
}

Result<std::string> NodeMeasure::measure(v1::CalibrateTask task,
                                         const std::stop_token& stop) const {
  if (options_.devices.empty()) {
    return make_error(ErrorCode::kInternal, "INTERNAL", "the job had no device");
  }
  // Open all of the job's devices, since this process has made exactly those visible to CUDA.
  ASSIGN_OR_RETURN(const std::vector<RankDevice> devices,
                   open_devices(options_.devices, task.threads()));
  task.set_device(options_.devices.front());
  ASSIGN_OR_RETURN(DeviceRates rates, measure_rates(*devices.front().backend, task, stop));
  rates.process_seconds = options_.start.count();
  return to_json_text(rates);
}

}  // namespace trainyard
