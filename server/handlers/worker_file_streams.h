// server/handlers/worker_file_streams.h: calls of workers from elsewhere that move files. The files
// are read and written beside gRPC's threads; one piece of each stream is in memory.
#pragma once

#include <grpcpp/grpcpp.h>

#include "server/files/worker_files.h"
#include "server/processes/executor.h"

namespace trainyard::server {

/// All that these are given outlives the call.
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
