#include "server/supervisor/device_check.h"

#include <spdlog/spdlog.h>

#include <utility>

#include "server/config/log.h"

namespace trainyard::server {
namespace {

constexpr int kRunningMax = 1;
constexpr int kWaitingMax = 64;  // GPUs of one machine
constexpr int64_t kTimeMaxMs = 120'000;

}  // namespace

DeviceCheckRunner::DeviceCheckRunner(Supervisor& supervisor, StatePaths paths)
    : errands_(supervisor, {std::move(paths), "check", kRunningMax, kWaitingMax, kTimeMaxMs,
                            make_error(ErrorCode::kResourceExhausted, "CHECK_BUSY",
                                       "too many devices wait for their check"),
                            make_error(ErrorCode::kDeadlineExceeded, "CHECK_TIMEOUT",
                                       "its check took more than two minutes")}) {}

void DeviceCheckRunner::run(const std::string& device, int threads,
                            std::function<void(Status)> done) {
  v1::Assignment assignment;
  assignment.mutable_check_device()->set_device(device);
  assignment.mutable_check_device()->set_threads(threads);
  errands_.run(std::move(assignment),
               [device, done = std::move(done)](const Result<v1::Outcome>& outcome) {
                 if (outcome.ok()) {
                   spdlog::info("event=device_checked {}", kv("device", device));
                   return done({});
                 }
                 spdlog::warn("event=device_check_failed {} {}", kv("device", device),
                              kv("message", outcome.error().message));
                 done(outcome.error());
               });
}

}  // namespace trainyard::server
