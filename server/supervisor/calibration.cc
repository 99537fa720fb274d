#include "server/supervisor/calibration.h"

#include <utility>

namespace trainyard::server {

constexpr double kSecondsMax = 3;  // that measuring may take, about

CalibrationRunner::CalibrationRunner(Supervisor& supervisor, StatePaths paths)
    : errands_(supervisor,
               {.paths = std::move(paths),
                .kind = "calibrate",
                .running_max = 1,
                .waiting_max = 1,
                .time_max_ms = 120'000,  // the ops that every forecast needs, on a slow machine
                .busy = make_error(ErrorCode::kResourceExhausted, "CALIBRATION_BUSY",
                                   "rates of another device are being measured"),
                .late = make_error(ErrorCode::kDeadlineExceeded, "CALIBRATION_TIMEOUT",
                                   "it took more than two minutes")}) {}

void CalibrationRunner::run(const Device& device, int32_t threads, v1::Recipe::Precision precision,
                            Done<std::string> done) {
  v1::Assignment assignment;
  v1::CalibrateTask& task = *assignment.mutable_calibrate();
  task.set_device(device.name);
  task.set_threads(threads);
  task.set_precision(precision);
  task.set_seconds_max(kSecondsMax);
  errands_.run(std::move(assignment),
               [done = std::move(done)](Result<v1::Outcome> outcome) {
                 if (!outcome.ok()) return done(std::move(outcome).error());
                 done(std::move(*outcome->mutable_rates()));
               },
               {device.uuid});
}

}  // namespace trainyard::server
