// server/service/worker_service.h: the WorkerService, on a socket of its own in the state folder.
#pragma once

#include <grpcpp/impl/service_type.h>

#include <memory>

#include "server/supervisor/executor.h"
#include "server/supervisor/supervisor.h"

namespace trainyard::server {

/// Both are borrowed and outlive the server that the service is registered with.
std::unique_ptr<grpc::Service> make_worker_service(Supervisor& supervisor, Executor& executor);

}  // namespace trainyard::server
