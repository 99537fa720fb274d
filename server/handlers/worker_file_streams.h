// server/handlers/worker_file_streams.h: the calls of remote workers that transfer files. An
// executor reads and writes the files, not gRPC's threads; each stream has one chunk in memory.
#pragma once

#include <grpcpp/grpcpp.h>

#include "server/files/worker_files.h"
#include "server/processes/executor.h"

namespace trainyard::server {

/// All arguments must outlive the call.
grpc::ServerUnaryReactor* list_worker_files(WorkerFiles& files, Executor& transfers,
                                            grpc::ServerUnaryReactor* reactor,
                                            const grpc::ByteBuffer* request,
                                            grpc::ByteBuffer* response);
grpc::ServerWriteReactor<grpc::ByteBuffer>* open_pull_stream(WorkerFiles& files,
                                                             Executor& transfers,
                                                             const grpc::ByteBuffer* request);
grpc::ServerReadReactor<grpc::ByteBuffer>* open_push_stream(WorkerFiles& files, Executor& transfers,
                                                            grpc::ByteBuffer* response);

}  // namespace trainyard::server
