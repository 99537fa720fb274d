// server/rpc/auth.h: authenticates callers and names them.
//
// The Unix socket's file mode decides who may connect to it, and the kernel reports the user at the
// other end of a connection. A caller on TCP sends `authorization: Bearer TOKEN` if tokens are
// configured, and has the name in the token's line. All our handlers call admit() first. A filter
// on the TCP port refuses all other calls (reflection, unknown methods) without a token, except
// health checks.
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

/// Checks the token of a call that came by TCP, if `tokens` is not null.
/// UNAUTHENTICATED/CREDENTIALS_MISSING, CREDENTIALS_INVALID.
Status admit(const grpc::CallbackServerContext& context, const Tokens* tokens);

/// Returns the name of an admitted call's caller: a user's name or "uid:1000" on the Unix socket,
/// the token's name on TCP, kAnonymous where no token is needed. Nothing in the request can change
/// it.
std::string caller_of(const grpc::CallbackServerContext& context, const Tokens* tokens);

/// Returns the user's name, or "uid:1000" for one without.
std::string user_name(uid_t uid);

/// Returns the credentials for the connections of one user on the Unix socket. They attach the
/// user's name to the calls, for caller_of(). `name` is read when a call arrives, so it must not
/// change after the first connection.
std::shared_ptr<grpc::ServerCredentials> user_credentials(std::shared_ptr<const std::string> name);

/// Returns the credentials of the TCP port: TLS if configured, else none. `tokens` may be null and
/// must outlive the server.
Result<std::shared_ptr<grpc::ServerCredentials>> tcp_credentials(const Config& config,
                                                                 const Tokens* tokens);

/// Returns the credentials of the port for remote workers: TLS, and no calls but those of the
/// WorkerService, whose handlers check the worker's credential (worker_service.cc).
std::shared_ptr<grpc::ServerCredentials> workers_credentials(const std::string& key,
                                                             const std::string& certificate);

}  // namespace trainyard::server
