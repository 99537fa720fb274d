// server/rpc/auth.h: who may call, and who calls.
//
// A caller on the Unix socket has passed its file mode, and is the user that the kernel says is at
// the other end of the connection. A caller on TCP sends `authorization: Bearer TOKEN` if there are
// tokens, and is who the token's line names. All our handlers call admit() first; a gate on the TCP
// port refuses everything else (reflection, unknown methods) without a token, except the health
// check.
#pragma once

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_context.h>
#include <sys/types.h>

#include <memory>
#include <string>

#include "server/config/config.h"
#include "server/config/token.h"
#include "src/base/result.h"

namespace trainyard::server {

/// UNAUTHENTICATED/CREDENTIALS_MISSING, CREDENTIALS_INVALID.
Status admit(const grpc::CallbackServerContext& context, const Tokens* tokens);

/// Who makes an admitted call: a user's name or "uid:1000" on the Unix socket, the token's name on
/// TCP, kAnonymous where no token is needed. Nothing in the request can change it.
std::string caller_of(const grpc::CallbackServerContext& context, const Tokens* tokens);

/// The user's name, or "uid:1000" for one without.
std::string user_name(uid_t uid);

/// Credentials of connections of one user on the Unix socket: their calls carry the name for
/// caller_of(). `name` is read when a call comes, and must not change once one may.
std::shared_ptr<grpc::ServerCredentials> user_credentials(std::shared_ptr<const std::string> name);

/// Credentials of the TCP port: TLS if configured, else none. `tokens` may be null, and outlives
/// the server.
Result<std::shared_ptr<grpc::ServerCredentials>> tcp_credentials(const Config& config,
                                                                 const Tokens* tokens);

}  // namespace trainyard::server
