#include "server/supervisor/device_check.h"

#include <spdlog/spdlog.h>

#include <charconv>
#include <utility>

#include "server/config/log.h"
#include "src/runtime/cuda_error.h"

namespace trainyard::server {
namespace {

std::string text_at(const v1::Outcome& outcome, const char* key) {
  const auto it = outcome.metadata().find(key);
  return it == outcome.metadata().end() ? "" : it->second;
}

/// What the worker has measured; 0 if it could not.
int64_t overhead_of(const v1::Outcome& outcome) {
  const std::string text = text_at(outcome, kOverheadKey);
  int64_t bytes = 0;
  const char* const end = text.data() + text.size();
  const auto [behind, error] = std::from_chars(text.data(), end, bytes);
  return error == std::errc() && behind == end && bytes > 0 ? bytes : 0;
}

}  // namespace

DeviceCheckRunner::DeviceCheckRunner(Supervisor& supervisor, StatePaths paths)
    : errands_(supervisor, {.paths = std::move(paths),
                            .kind = "check",
                            .running_max = 1,
                            .waiting_max = 64,  // GPUs of one machine
                            .time_max_ms = 300'000,
                            .busy = make_error(ErrorCode::kResourceExhausted, "CHECK_BUSY",
                                               "too many devices are waiting for their check"),
                            .late = make_error(ErrorCode::kDeadlineExceeded, "CHECK_TIMEOUT",
                                               "its check took more than five minutes")}) {}

void DeviceCheckRunner::run(const Device& device, int threads, CheckedInventory::Done done) {
  v1::Assignment assignment;
  assignment.mutable_check_device()->set_device(device.name);
  assignment.mutable_check_device()->set_threads(threads);
  errands_.run(std::move(assignment),
               [name = device.name, done = std::move(done)](const Result<v1::Outcome>& outcome) {
                 if (outcome.ok()) {
                   const CheckPassed passed{overhead_of(*outcome), text_at(*outcome, kWarningKey)};
                   spdlog::info("event=device_checked {} overhead_bytes={}", kv("device", name),
                                passed.overhead_bytes);
                   if (!passed.warning.empty()) {
                     spdlog::warn("event=device_degraded {} {}", kv("device", name),
                                  kv("message", passed.warning));
                   }
                   return done(passed);
                 }
                 const bool busy = outcome.error().reason == kDeviceBusy;
                 spdlog::log(busy ? spdlog::level::info : spdlog::level::warn, "event={} {} {}",
                             busy ? "device_busy" : "device_check_failed", kv("device", name),
                             kv("message", outcome.error().message));
                 done(outcome.error());
               },
               {device.uuid});
}

}  // namespace trainyard::server
