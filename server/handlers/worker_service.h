// server/handlers/worker_service.h: the WorkerService, on a Unix socket in the state folder for
// local workers, and on a TCP port for remote workers.
#pragma once

#include <grpcpp/impl/service_type.h>

#include <memory>

#include "server/files/worker_files.h"
#include "server/processes/executor.h"
#include "server/processes/supervisor.h"

namespace trainyard::server {

/// Returns the service for workers of this host. The arguments of both functions must outlive the
/// server in which the service is registered.
std::unique_ptr<grpc::Service> make_worker_service(Supervisor& supervisor, Executor& executor);
/// Returns the service for remote workers; `transfers` reads and writes their files.
std::unique_ptr<grpc::Service> make_remote_service(Supervisor& supervisor, Executor& executor,
                                                   WorkerFiles& files, Executor& transfers);

}  // namespace trainyard::server
