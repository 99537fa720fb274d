#include "server/supervisor/device_check.h"

#include <spdlog/spdlog.h>

#include <charconv>
#include <utility>

#include "server/config/log.h"

namespace trainyard::server {
namespace {

constexpr int kRunningMax = 1;
constexpr int kWaitingMax = 64;  // GPUs of one machine
constexpr int64_t kTimeMaxMs = 300'000;

/// What the worker has measured; 0 where it could not.
int64_t overhead_of(const v1::Outcome& outcome) {
  const auto it = outcome.metadata().find(kOverheadKey);
  if (it == outcome.metadata().end()) return 0;
  int64_t bytes = 0;
  const char* const end = it->second.data() + it->second.size();
  const auto [behind, error] = std::from_chars(it->second.data(), end, bytes);
  return error == std::errc() && behind == end && bytes > 0 ? bytes : 0;
}

}  // namespace

DeviceCheckRunner::DeviceCheckRunner(Supervisor& supervisor, StatePaths paths)
    : errands_(supervisor, {std::move(paths), "check", kRunningMax, kWaitingMax, kTimeMaxMs,
                            make_error(ErrorCode::kResourceExhausted, "CHECK_BUSY",
                                       "too many devices wait for their check"),
                            make_error(ErrorCode::kDeadlineExceeded, "CHECK_TIMEOUT",
                                       "its check took more than five minutes")}) {}

void DeviceCheckRunner::run(const std::string& device, int threads, CheckedInventory::Done done) {
  v1::Assignment assignment;
  assignment.mutable_check_device()->set_device(device);
  assignment.mutable_check_device()->set_threads(threads);
  errands_.run(std::move(assignment),
               [device, done = std::move(done)](const Result<v1::Outcome>& outcome) {
                 if (outcome.ok()) {
                   const CheckPassed passed{overhead_of(*outcome)};
                   spdlog::info("event=device_checked {} overhead_bytes={}", kv("device", device),
                                passed.overhead_bytes);
                   return done(passed);
                 }
                 spdlog::warn("event=device_check_failed {} {}", kv("device", device),
                              kv("message", outcome.error().message));
                 done(outcome.error());
               });
}

}  // namespace trainyard::server
