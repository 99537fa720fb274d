// client/lib/rpc_error.h: a gRPC status as an Error, with the details that the server sent.
#pragma once

#include "src/base/result.h"

namespace grpc {
class Status;
}

namespace trainyard::client {

/// Reads google.rpc.Status out of `grpc-status-details-bin`: ErrorInfo becomes reason and metadata,
/// BadRequest the violations. A status without details, made by gRPC itself or by a proxy, gets the
/// code's name as its reason. `server` is for the message of a server that cannot be reached.
Error to_error(const grpc::Status& status, const std::string& server);

}  // namespace trainyard::client
