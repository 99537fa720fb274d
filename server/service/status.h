// server/service/status.h: the one place where an Error becomes a gRPC status.
//
// The status carries google.rpc.Status in its details: exactly one ErrorInfo (domain "trainyard"),
// one BadRequest if fields were refused, RetryInfo where a retry may help. Details travel in the
// trailers, whose size gRPC limits: beyond 8,000 bytes a client sees RESOURCE_EXHAUSTED instead of
// our answer. So they are cut to kDetailsBytesMax, and never dropped.
#pragma once

#include <grpcpp/support/status.h>

#include <cstddef>
#include <string_view>

#include "src/base/result.h"

namespace trainyard::server {

struct Dataset;

constexpr size_t kDetailsBytesMax = 6 * 1024;
constexpr size_t kViolationsMax = 16;
constexpr size_t kSentenceBytesMax = 512;

grpc::Status to_grpc_status(const Error& error);

/// An answer for our own bug: INTERNAL with an incident id that is also logged with `what`.
Error internal_error(std::string_view method, std::string_view what);

/// The refusals that several handlers share.
Error draining_error();
Error busy_error();
/// Of one that is not READY. `call`: what the caller may do again, "submit".
Error not_ready_error(const Dataset& dataset, std::string_view call);

}  // namespace trainyard::server
