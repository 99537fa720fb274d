// server/rpc/auth.h: authenticates callers.
//
// The Unix socket's file mode decides who may connect to it, and the kernel reports the user at the
// other end of a connection, who is the caller. A caller who sends `authorization: Bearer TOKEN` is
// the token's person instead, on every socket; connections other than those of the Unix socket need
// a token. All our handlers call admit() first. A filter on the TCP port with TLS and on the front
// end's socket refuses all other calls (reflection, unknown methods) without a token, except health
// checks.
#pragma once

#include <grpcpp/security/auth_metadata_processor.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_context.h>
#include <sys/types.h>

#include <memory>
#include <string>

#include "server/config/config.h"
#include "server/people/people.h"
#include "src/base/result.h"

namespace trainyard::server {

/// Returns who makes the call, and notes the time of the call. Nothing in the request can change
/// it; the metadata `trainyard-acting-for` names the person for whom a service's token acts. Takes
/// the token's digest, so it is called once for a call. UNAUTHENTICATED / CREDENTIALS_MISSING and
/// those of People::find_by_token().
Result<Principal> admit(const grpc::CallbackServerContext& context, People& people);

/// Returns whether the call came by a connection of the Unix socket whose user is known.
bool is_local(const grpc::CallbackServerContext& context);

/// The user at the other end of connections of the Unix socket.
struct SocketUser {
  std::string name;
  bool owns_daemon = false;  // root or the daemon's own user
};
/// Returns the user's name, or "uid:1000" for one without or with a name that is none of a person
/// (src/base/person_name.h).
SocketUser socket_user(uid_t uid);

/// Returns the credentials for the connections of one user on the Unix socket. They attach the user
/// to the calls, for admit(). `user` is read when a call arrives, so it must not change after the
/// first connection.
std::shared_ptr<grpc::ServerCredentials> user_credentials(std::shared_ptr<const SocketUser> user);
/// Returns the credentials for connections of a Unix socket that name no user: a token is needed.
std::shared_ptr<grpc::ServerCredentials> nameless_credentials();

/// Returns the credentials of the TCP port: TLS if configured, else none. `people` must outlive the
/// server.
Result<std::shared_ptr<grpc::ServerCredentials>> tcp_credentials(const Config& config,
                                                                 const People& people);

/// Returns the filter that refuses calls without a token to methods that are not ours. `people`
/// must outlive the server.
std::shared_ptr<grpc::AuthMetadataProcessor> token_gate(const People& people);

/// Returns the credentials for the connections of a front end that serves remote workers: no calls
/// but those of the WorkerService.
std::shared_ptr<grpc::ServerCredentials> front_workers_credentials();
/// Returns the credentials of the port for remote workers: TLS, and no calls but those of the
/// WorkerService, whose handlers check the worker's credential (worker_service.cc).
std::shared_ptr<grpc::ServerCredentials> workers_credentials(const std::string& key,
                                                             const std::string& certificate);

}  // namespace trainyard::server
