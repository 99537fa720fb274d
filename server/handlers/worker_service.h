// server/handlers/worker_service.h: the WorkerService, on a socket of its own in the state folder,
// and for workers from elsewhere on a port of its own.
#pragma once

#include <grpcpp/impl/service_type.h>

#include <memory>

#include "server/files/worker_files.h"
#include "server/processes/executor.h"
#include "server/processes/supervisor.h"

namespace trainyard::server {

/// All that these are given is borrowed and outlives the server that the service is registered
/// with. Here: workers of this host.
std::unique_ptr<grpc::Service> make_worker_service(Supervisor& supervisor, Executor& executor);
/// Workers from elsewhere; `transfers` reads and writes their files.
std::unique_ptr<grpc::Service> make_elsewhere_service(Supervisor& supervisor, Executor& executor,
                                                      WorkerFiles& files, Executor& transfers);

}  // namespace trainyard::server
