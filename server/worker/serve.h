// server/worker/serve.h: a worker that keeps a model loaded and serves calls to it: one batch of
// predictions, one generation or one evaluation at a time.
#pragma once

#include <stop_token>

#include "server/worker/report_stream.h"
#include "src/base/result.h"
#include "trainyard/v1/worker_service.pb.h"

namespace trainyard {

/// Serves calls until `stop` is requested, or until a call ends in a fault, whose outcome it then
/// returns, because memory may be corrupt after a fault. Any other error of a call is only that
/// call's result. Each part of the model is loaded by the first call that needs it.
Result<v1::Outcome> run_serve(const v1::ServeTask& task, ReportStream& stream,
                              const std::stop_token& stop);

}  // namespace trainyard
