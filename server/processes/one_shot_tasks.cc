#include "server/processes/one_shot_tasks.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "proto/convert/run.h"
#include "server/config/log.h"
#include "server/processes/scratch.h"
#include "server/processes/worker_sandbox.h"
#include "src/base/sha256.h"
#include "src/runtime/cuda_error.h"

namespace trainyard::server {
namespace {

/// The options that differ between the kinds.
struct KindOptions {
  const char* kind;    // for logs
  const char* reason;  // prefix of the reasons of `busy` and `late`, without _BUSY and _TIMEOUT
  int waiting_max;
  int64_t time_max_ms;
  const char* busy;
  const char* late;
};

// Only one worker of each kind runs at a time: some prepare kernels on the cores that jobs compute
// on, others read from the same disk.
constexpr KindOptions kMeasureOptions = {"measure",
                                         "PLAN",
                                         32,
                                         20'000,
                                         "too many plans are waiting; call again in a moment",
                                         "preparing the kernels took too long"};
constexpr KindOptions kInspectOptions = {
    "inspect",
    "INSPECT",
    32,
    20'000,
    "too many files are waiting to be read; call again in a moment",
    "reading the file's header took too long"};
constexpr KindOptions kImportOptions = {
    "import",
    "IMPORT",
    8,
    3'600'000,
    "too many models are waiting to be imported; call again later",
    "writing the model took more than an hour"};
constexpr KindOptions kCheckOptions = {"check",
                                       "CHECK",
                                       64,  // more than the GPUs of one machine
                                       300'000,
                                       "too many devices are waiting for their check",
                                       "its check took more than five minutes"};
constexpr KindOptions kDigestOptions = {
    "digest",
    "DIGEST",
    32,
    3'600'000,
    "too many datasets are waiting to be read; call again later",
    "reading the server's files took more than an hour"};
constexpr KindOptions kCalibrateOptions = {
    "calibrate",
    "CALIBRATION",
    1,
    120'000,  // suffices for the ops that every forecast needs, on a slow machine
    "rates of another device are being measured",
    "it took more than two minutes"};
// Seconds, approximately, that the measurements may take.
constexpr double kCalibrateSecondsMax = 3;

OneShotRunner make_runner(Supervisor& supervisor, const StatePaths& paths, const KindOptions& of) {
  const std::string reason = of.reason;
  return {supervisor,
          {.paths = paths,
           .kind = of.kind,
           .running_max = 1,
           .waiting_max = of.waiting_max,
           .time_max_ms = of.time_max_ms,
           .busy = make_error(ErrorCode::kResourceExhausted, reason + "_BUSY", of.busy),
           .late = make_error(ErrorCode::kDeadlineExceeded, reason + "_TIMEOUT", of.late)}};
}

Error misreported(const char* what) {
  return make_error(ErrorCode::kInternal, "WORKER_PROTOCOL_ERROR",
                    std::string("the worker reported ") + what);
}

/// Adds the outcome's tensors; refuses shapes that no tensor can have.
Status take_tensors(const v1::Outcome& outcome, std::vector<v1::WeightTensor>& tensors) {
  for (const v1::WeightTensor& tensor : outcome.tensors()) {
    if (!to_engine(tensor).shape.fits()) return misreported("a tensor of an impossible shape");
    tensors.push_back(tensor);
  }
  return {};
}

std::string text_at(const v1::Outcome& outcome, const char* key) {
  const auto it = outcome.metadata().find(key);
  return it == outcome.metadata().end() ? "" : it->second;
}

/// Returns the measured memory overhead in bytes; 0 if the worker could not measure it.
int64_t overhead_of(const v1::Outcome& outcome) {
  const std::string text = text_at(outcome, kOverheadKey);
  int64_t bytes = 0;
  const char* const end = text.data() + text.size();
  const auto [behind, error] = std::from_chars(text.data(), end, bytes);
  return error == std::errc() && behind == end && bytes > 0 ? bytes : 0;
}

Result<CheckPassed> checked(const std::string& device, const Result<v1::Outcome>& outcome) {
  if (outcome.ok()) {
    CheckPassed passed{overhead_of(*outcome), text_at(*outcome, kWarningKey)};
    spdlog::info("event=device_checked {} overhead_bytes={}", kv("device", device),
                 passed.overhead_bytes);
    if (!passed.warning.empty()) {
      spdlog::warn("event=device_degraded {} {}", kv("device", device),
                   kv("message", passed.warning));
    }
    return passed;
  }
  // The inventory logs faults of the host, once for each fault and not for each check.
  if (outcome.error().reason == kHostFault) return outcome.error();
  const bool busy = outcome.error().reason == kDeviceBusy;
  spdlog::log(busy ? spdlog::level::info : spdlog::level::warn, "event={} {} {}",
              busy ? "device_busy" : "device_check_failed", kv("device", device),
              kv("message", outcome.error().message));
  return outcome.error();
}

Result<std::vector<SourceContent>> contents_of(const v1::Outcome& outcome, int count) {
  std::vector<SourceContent> contents;
  for (int i = 0; i < outcome.digests_size(); ++i) {
    SourceContent& content = contents.emplace_back();
    content.sha256 = outcome.digests(i);
    if (i < outcome.stamps_size()) content.stamp = outcome.stamps(i);
  }
  const bool whole = std::ranges::all_of(
      contents, [](const SourceContent& c) { return c.sha256.empty() || is_sha256_hex(c.sha256); });
  if (std::ssize(contents) != count || !whole) return misreported("malformed digests");
  return contents;
}

}  // namespace

OneShotTasks::OneShotTasks(Supervisor& supervisor, StatePaths paths,
                           std::vector<std::filesystem::path> allowed_roots)
    : paths_(std::move(paths)),
      allowed_roots_(std::move(allowed_roots)),
      runners_{make_runner(supervisor, paths_, kMeasureOptions),
               make_runner(supervisor, paths_, kInspectOptions),
               make_runner(supervisor, paths_, kImportOptions),
               make_runner(supervisor, paths_, kCheckOptions),
               make_runner(supervisor, paths_, kDigestOptions),
               make_runner(supervisor, paths_, kCalibrateOptions)} {}

void OneShotTasks::drain() {
  for (OneShotRunner& runner : runners_) runner.drain();
}

void OneShotTasks::measure(v1::MeasureTask task, const std::string& gpu_uuid, Done<int64_t> done) {
  v1::WorkerSandbox sandbox = computing_sandbox(task.device());
  add_readable(sandbox, task.dataset_dir());
  v1::Assignment assignment;
  *assignment.mutable_measure() = std::move(task);
  const auto answer = [done = std::move(done)](Result<v1::Outcome> outcome) {
    if (!outcome.ok()) return done(std::move(outcome).error());
    if (outcome->workspace_bytes() < 0) return done(misreported("a negative workspace"));
    done(outcome->workspace_bytes());
  };
  runners_[kMeasure].run(std::move(assignment), std::move(sandbox), answer, {gpu_uuid});
}

void OneShotTasks::inspect(const std::string& sha256, Done<std::vector<v1::WeightTensor>> done) {
  v1::WorkerSandbox sandbox = parsing_sandbox();
  add_readable(sandbox, paths_.upload(sha256));
  v1::Assignment assignment;
  assignment.mutable_inspect()->set_path(paths_.upload(sha256).string());
  const auto answer = [done = std::move(done)](Result<v1::Outcome> outcome) {
    if (!outcome.ok()) return done(std::move(outcome).error());
    std::vector<v1::WeightTensor> tensors;
    if (Status s = take_tensors(*outcome, tensors); !s.ok()) return done(s.error());
    done(std::move(tensors));
  };
  runners_[kInspect].run(std::move(assignment), std::move(sandbox), answer);
}

void OneShotTasks::import_model(const std::string& weights_sha256,
                                const std::string& description_sha256, const std::string& uid,
                                Done<ImportedModel> done) {
  v1::Assignment assignment;
  v1::InspectTask& task = *assignment.mutable_inspect();
  task.set_path(paths_.upload(weights_sha256).string());
  task.set_description_path(paths_.upload(description_sha256).string());
  const std::filesystem::path scratch = paths_.scratch(uid);
  const std::filesystem::path written = scratch / "model";
  task.set_model_output(written.string());
  if (Status s = make_scratch(local_files(), scratch); !s.ok()) return done(s.error());
  v1::WorkerSandbox sandbox = parsing_sandbox();
  add_readable(sandbox, task.path());
  add_readable(sandbox, task.description_path());
  add_scratch(sandbox, scratch);
  const auto answer = [done = std::move(done), scratch, written,
                       place = paths_.model(uid)](Result<v1::Outcome> outcome) {
    Status taken = outcome.ok() ? take_result(local_files(), written, place) : Status();
    (void)local_files().remove_all(scratch);
    if (!outcome.ok()) return done(std::move(outcome).error());
    if (!taken.ok()) return done(std::move(taken).error());
    if (outcome->digests_size() != 1) return done(misreported("no digest of its model"));
    ImportedModel model{outcome->digests(0), outcome->schema(), {}};
    if (Status s = take_tensors(*outcome, model.tensors); !s.ok()) return done(s.error());
    done(std::move(model));
  };
  runners_[kImport].run(std::move(assignment), std::move(sandbox), answer);
}

void OneShotTasks::check_device(const Device& device, int threads, CheckedInventory::Done done) {
  v1::Assignment assignment;
  assignment.mutable_check_device()->set_device(device.name);
  assignment.mutable_check_device()->set_threads(threads);
  const auto answer = [name = device.name, done = std::move(done)](Result<v1::Outcome> outcome) {
    done(checked(name, outcome));
  };
  runners_[kCheckDevice].run(std::move(assignment), computing_sandbox(device.name), answer,
                             {device.uuid});
}

void OneShotTasks::digest(const v1::DatasetSpec& spec, Done<std::vector<SourceContent>> done) {
  v1::Assignment assignment;
  v1::DigestTask& task = *assignment.mutable_digest();
  *task.mutable_spec() = spec;
  for (const std::filesystem::path& root : allowed_roots_) task.add_allowed_roots(root.string());
  const auto answer = [count = spec.sources_size(),
                       done = std::move(done)](Result<v1::Outcome> outcome) {
    if (!outcome.ok()) return done(std::move(outcome).error());
    done(contents_of(*outcome, count));
  };
  v1::WorkerSandbox sandbox = parsing_sandbox();
  add_server_sources(sandbox, spec);
  runners_[kDigest].run(std::move(assignment), std::move(sandbox), answer);
}

void OneShotTasks::calibrate(const Device& device, int32_t threads, v1::Recipe::Precision precision,
                             Done<std::string> done) {
  v1::Assignment assignment;
  v1::CalibrateTask& task = *assignment.mutable_calibrate();
  task.set_device(device.name);
  task.set_threads(threads);
  task.set_precision(precision);
  task.set_seconds_max(kCalibrateSecondsMax);
  const auto answer = [done = std::move(done)](Result<v1::Outcome> outcome) {
    if (!outcome.ok()) return done(std::move(outcome).error());
    done(std::move(*outcome->mutable_rates()));
  };
  runners_[kCalibrate].run(std::move(assignment), computing_sandbox(device.name), answer,
                           {device.uuid});
}

}  // namespace trainyard::server
