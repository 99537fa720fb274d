#include "server/supervisor/inspect.h"

#include <utility>

#include "proto/convert/run.h"

namespace trainyard::server {
InspectRunner::InspectRunner(Supervisor& supervisor, StatePaths paths)
    : paths_(paths),
      errands_(supervisor,
               {.paths = std::move(paths),
                .kind = "inspect",
                .running_max = 1,
                .waiting_max = 32,
                .time_max_ms = 20'000,
                .busy = make_error(ErrorCode::kResourceExhausted, "INSPECT_BUSY",
                                   "too many files are waiting to be read; call again in a moment"),
                .late = make_error(ErrorCode::kDeadlineExceeded, "INSPECT_TIMEOUT",
                                   "reading the file's header took too long")}) {}

void InspectRunner::run(const std::string& sha256, Done<std::vector<v1::WeightTensor>> done) {
  v1::Assignment assignment;
  assignment.mutable_inspect()->set_path(paths_.upload(sha256).string());
  errands_.run(std::move(assignment), [done = std::move(done)](Result<v1::Outcome> outcome) {
    if (!outcome.ok()) return done(std::move(outcome).error());
    for (const v1::WeightTensor& tensor : outcome->tensors()) {
      if (to_engine(tensor).shape.fits()) continue;
      return done(make_error(ErrorCode::kInternal, "WORKER_PROTOCOL",
                             "the worker reported a tensor of an impossible shape"));
    }
    done(std::vector<v1::WeightTensor>(outcome->tensors().begin(), outcome->tensors().end()));
  });
}

}  // namespace trainyard::server
