// server/service/auth.h: who may call.
//
// A caller on the Unix socket has passed its file mode. A caller on TCP sends `authorization:
// Bearer TOKEN` if a token is configured. All our handlers call admit() first; a gate on the TCP
// port refuses everything else (reflection, unknown methods) without a token, except the health
// check.
#pragma once

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_context.h>

#include <memory>

#include "server/config/config.h"
#include "server/config/token.h"
#include "src/base/result.h"

namespace trainyard::server {

/// UNAUTHENTICATED/CREDENTIALS_MISSING, CREDENTIALS_INVALID.
Status admit(const grpc::CallbackServerContext& context, const Token* token);

/// Credentials of the TCP port: TLS if configured, else none. `token` may be null, and outlives the
/// server.
Result<std::shared_ptr<grpc::ServerCredentials>> tcp_credentials(const Config& config,
                                                                 const Token* token);

}  // namespace trainyard::server
