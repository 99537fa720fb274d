// client/lib/rpc_error.h: converts a gRPC status to an Error, with the details that the server
// sent.
#pragma once

#include "src/base/result.h"

namespace grpc {
class Status;
}

namespace trainyard::client {

/// Reads google.rpc.Status from `grpc-status-details-bin`: ErrorInfo gives the reason and metadata,
/// BadRequest the violations. A status without details, from gRPC itself or a proxy, gets the
/// code's name as its reason. `server` is named in the message if it cannot be reached.
Error to_error(const grpc::Status& status, const std::string& server);

}  // namespace trainyard::client
