// server/rpc/front.h: calls that come through the front end (docs/operations.md#the-front-end).
//
// The front end connects to a Unix socket of its own and passes on the calls of clients on the
// network. Its connections say nothing about who calls: each call needs a token. The front end sets
// the header x-forwarded-for, in place of a client's own, to the client's address; on all other
// sockets the header means nothing.
#pragma once

#include <grpcpp/security/auth_metadata_processor.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_context.h>

#include <memory>
#include <string>

namespace trainyard::server {

/// Returns the credentials for the connections of the front end. They mark its calls for
/// address_of(). `gate` decides which calls pass.
std::shared_ptr<grpc::ServerCredentials> front_credentials(
    std::shared_ptr<grpc::AuthMetadataProcessor> gate);

/// Returns where a call comes from: "unix"; "10.0.0.7:51234"; for a call through the front end the
/// address that it names, "10.0.0.7", or "front end" if it names none. Only the front end can
/// choose the text.
std::string address_of(const grpc::CallbackServerContext& context);

}  // namespace trainyard::server
