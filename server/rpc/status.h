// server/rpc/status.h: converts an Error to a gRPC status.
//
// The status carries google.rpc.Status in its details: exactly one ErrorInfo (domain "trainyard"),
// one BadRequest if fields were refused, RetryInfo if a retry may help. Details are sent in the
// trailers, whose size gRPC limits: beyond 8,000 bytes a client sees RESOURCE_EXHAUSTED instead of
// the error. Details are therefore shortened to kDetailsBytesMax, but never dropped.
#pragma once

#include <grpcpp/support/status.h>

#include <cstddef>
#include <string_view>

#include "src/base/result.h"

namespace trainyard::server {

struct Dataset;

constexpr size_t kDetailsBytesMax = size_t{6} * 1024;
constexpr size_t kViolationsMax = 16;
constexpr size_t kSentenceBytesMax = 512;

grpc::Status to_grpc_status(const Error& error);

/// Returns the error for a bug in the server: INTERNAL with an incident ID that is also logged with
/// `what`.
Error internal_error(std::string_view method, std::string_view what);

/// Errors that several handlers share.
Error draining_error();
Error busy_error();
Error caller_left_error();
/// Returns the error for a dataset that is not READY. `call` names the call that the caller may
/// retry, such as "submit".
Error not_ready_error(const Dataset& dataset, std::string_view call);

}  // namespace trainyard::server
