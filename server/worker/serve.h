// server/worker/serve.h: a worker that keeps a model and answers calls to it, one batch of
// predictions, one generation or one evaluation at a time.
#pragma once

#include <stop_token>

#include "server/worker/report_stream.h"
#include "src/base/result.h"
#include "trainyard/v1/worker_service.pb.h"

namespace trainyard {

/// Until `stop`, or until a call ended in a fault, whose outcome it returns then: what is left in
/// memory behind one is not to be trusted. A call's refusal is its answer alone. What a call needs
/// is loaded by the first that needs it.
Result<v1::Outcome> run_serve(const v1::ServeTask& task, ReportStream& stream,
                              const std::stop_token& stop);

}  // namespace trainyard
