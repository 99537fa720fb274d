#include "server/supervisor/measure.h"

#include <utility>

namespace trainyard::server {
MeasureRunner::MeasureRunner(Supervisor& supervisor, StatePaths paths)
    : errands_(supervisor,
               {.paths = std::move(paths),
                .kind = "measure",
                .running_max = 1,  // it prepares on the cores that jobs compute on
                .waiting_max = 32,
                .time_max_ms = 20'000,
                .busy = make_error(ErrorCode::kResourceExhausted, "PLAN_BUSY",
                                   "too many plans are waiting; call again in a moment"),
                .late = make_error(ErrorCode::kDeadlineExceeded, "PLAN_TIMEOUT",
                                   "preparing the kernels took too long")}) {}

void MeasureRunner::run(v1::MeasureTask task, const std::string& gpu_uuid, Done<int64_t> done) {
  v1::Assignment assignment;
  *assignment.mutable_measure() = std::move(task);
  const auto answer = [done = std::move(done)](Result<v1::Outcome> outcome) {
    if (!outcome.ok()) return done(std::move(outcome).error());
    if (outcome->workspace_bytes() < 0) {
      return done(make_error(ErrorCode::kInternal, "WORKER_PROTOCOL",
                             "the worker reported a negative workspace"));
    }
    done(outcome->workspace_bytes());
  };
  errands_.run(std::move(assignment), answer, {gpu_uuid});
}

}  // namespace trainyard::server
