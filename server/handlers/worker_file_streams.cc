#include "server/handlers/worker_file_streams.h"

#include <unistd.h>

#include <cerrno>
#include <memory>
#include <string>
#include <utility>

#include "server/rpc/status.h"
#include "server/rpc/wire.h"
#include "src/base/mutex.h"

namespace trainyard::server {
namespace {

constexpr size_t kPieceBytes = 64 << 10;  // the most that a broken connection loses per file

/// Deletes itself in OnDone.
class PullStream final : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  PullStream(WorkerFiles& files, Executor& transfers, const grpc::ByteBuffer* request)
      : files_(files), transfers_(transfers), request_(request) {}

  void next() {
    const bool posted = transfers_.post([this] {
      try {
        if (Status s = step(); !s.ok()) Finish(to_grpc_status(s.error()));
      } catch (const std::exception& e) {
        Finish(to_grpc_status(internal_error("PullFile", e.what())));
      }
    });
    if (!posted) Finish(to_grpc_status(busy_error()));
  }
  void OnWriteDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::CANCELLED);
    next();
  }
  void OnDone() override { delete this; }

 private:
  Status step() {
    if (!file_) {
      v1::PullFileRequest request;
      if (Status s = parse_message(*request_, request); !s.ok()) return s;
      ASSIGN_OR_RETURN(file_, files_.open(request));
    }
    v1::PullFileResponse response;
    std::string& data = *response.mutable_data();
    data.resize(kPieceBytes);
    ssize_t n = 0;
    do {
      n = ::read(file_.get(), data.data(), data.size());
    } while (n < 0 && errno == EINTR);
    if (n < 0) {
      return make_error(ErrorCode::kUnavailable, "STORAGE_ERROR", "the file cannot be read now");
    }
    if (n == 0) {
      Finish(grpc::Status::OK);
      return {};
    }
    data.resize(static_cast<size_t>(n));
    out_ = to_bytes(response);
    StartWrite(&out_);
    return {};
  }

  WorkerFiles& files_;
  Executor& transfers_;
  const grpc::ByteBuffer* request_;
  UniqueFd file_;
  grpc::ByteBuffer out_;
};

/// Deletes itself in OnDone. A message is read only after the previous one was written, so that the
/// disk applies back-pressure to the worker.
class PushStream final : public grpc::ServerReadReactor<grpc::ByteBuffer> {
 public:
  PushStream(WorkerFiles& files, Executor& transfers, grpc::ByteBuffer* response)
      : files_(files), transfers_(transfers), response_(response) {}

  void begin() { StartRead(&in_); }
  void OnReadDone(bool ok) override {
    const bool posted = transfers_.post([this, ok] {
      Status s;
      try {
        s = ok ? take() : finish();
      } catch (const std::exception& e) {
        s = internal_error("PushFiles", e.what());
      }
      if (s.ok() && ok) return StartRead(&in_);
      push_.reset();  // the next stream can continue the push before this one gets its response
      Finish(s.ok() ? grpc::Status::OK : to_grpc_status(s.error()));
    });
    if (posted) return;
    push_.reset();
    Finish(to_grpc_status(busy_error()));
  }
  void OnDone() override { delete this; }

 private:
  Status take() {
    v1::PushFilesRequest request;
    if (Status s = parse_message(in_, request); !s.ok()) return s;
    in_.Clear();
    if (request.has_start()) {
      if (push_) return field_error("FIELD_UNUSED", "start", "was already sent on this stream");
      ASSIGN_OR_RETURN(push_, files_.begin_push(request.start()));
      return {};
    }
    if (!push_) {
      return field_error("FIELD_REQUIRED", "start",
                         "is missing: the first message declares the files");
    }
    return push_->append(request.data());
  }
  Status finish() {
    if (!push_) {
      return field_error("FIELD_REQUIRED", "start",
                         "is missing: the stream ended without a message");
    }
    if (Status s = push_->finish(); !s.ok()) return s;
    *response_ = to_bytes(v1::PushFilesResponse());
    return {};
  }

  WorkerFiles& files_;
  Executor& transfers_;
  grpc::ByteBuffer* response_;
  grpc::ByteBuffer in_;
  std::unique_ptr<WorkerFiles::Push> push_;
};

}  // namespace

grpc::ServerUnaryReactor* list_worker_files(WorkerFiles& files, Executor& transfers,
                                            grpc::ServerUnaryReactor* reactor,
                                            const grpc::ByteBuffer* request,
                                            grpc::ByteBuffer* response) {
  const bool posted = transfers.post([&files, reactor, request, response] {
    try {
      v1::ListFilesRequest parsed;
      Status s = parse_message(*request, parsed);
      if (s.ok()) {
        const Result<v1::ListFilesResponse> listed = files.list(parsed);
        if (listed.ok()) {
          *response = to_bytes(*listed);
        } else {
          s = listed.error();
        }
      }
      reactor->Finish(s.ok() ? grpc::Status::OK : to_grpc_status(s.error()));
    } catch (const std::exception& e) {
      reactor->Finish(to_grpc_status(internal_error("ListFiles", e.what())));
    }
  });
  if (!posted) reactor->Finish(to_grpc_status(busy_error()));
  return reactor;
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* open_pull_stream(WorkerFiles& files,
                                                             Executor& transfers,
                                                             const grpc::ByteBuffer* request) {
  auto* stream = new PullStream(files, transfers, request);  // deletes itself in OnDone
  stream->next();
  return stream;
}

grpc::ServerReadReactor<grpc::ByteBuffer>* open_push_stream(WorkerFiles& files, Executor& transfers,
                                                            grpc::ByteBuffer* response) {
  auto* stream = new PushStream(files, transfers, response);  // deletes itself in OnDone
  stream->begin();
  return stream;
}

}  // namespace trainyard::server
