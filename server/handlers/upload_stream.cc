#include "server/handlers/upload_stream.h"

#include <memory>
#include <optional>
#include <utility>

#include "server/handlers/access.h"
#include "server/handlers/audited_call.h"
#include "server/handlers/dataset_handlers.h"
#include "server/rpc/auth.h"
#include "server/rpc/names.h"
#include "server/rpc/status.h"
#include "server/rpc/wire.h"
#include "src/base/mutex.h"
#include "trainyard/v1/dataset_service.pb.h"

namespace trainyard::server {
namespace {

constexpr int kMessagesAtOnce = 16;  // messages before a stream yields its thread to others

/// Deletes itself in OnDone. The transfers executor writes the messages one after another while the
/// next one arrives. The message after that is read only when the writing is done, so that the disk
/// applies back-pressure to the client.
class UploadStream final : public grpc::ServerReadReactor<grpc::ByteBuffer> {
 public:
  UploadStream(CallFrame& frame, const grpc::CallbackServerContext& context, Uploads& uploads,
               grpc::ByteBuffer* response)
      : frame_(frame),
        uploads_(uploads),
        response_(response),
        audit_(frame, context, "UploadFile") {}

  void begin(Result<Principal> caller) {
    if (!caller.ok()) return refuse(caller.error());
    caller_ = std::move(*caller);
    StartRead(&in_);
  }

  void OnReadDone(bool ok) override {
    {
      const MutexLock lock(mu_);
      if (ended_) return;
      arrived_ = true;
      ok_ = ok;
      if (std::exchange(working_, true)) return;  // work() will process it
    }
    post();
  }
  void OnDone() override { delete this; }

 private:
  void post() {
    const bool posted = frame_.transfers.post([this] {
      try {
        if (Status s = work(); !s.ok()) refuse(s.error());
      } catch (const std::exception& e) {
        refuse(internal_error("UploadFile", e.what()));
      }
    });
    if (!posted) refuse(frame_.draining ? draining_error() : busy_error());
  }

  /// Processes the messages that have arrived. This object may be deleted once the stream has
  /// ended.
  Status work() {
    for (int i = 0; i < kMessagesAtOnce; ++i) {
      bool ok = false;
      {
        const MutexLock lock(mu_);
        if (!arrived_) {
          working_ = false;
          return {};
        }
        arrived_ = false;
        ok = ok_;
      }
      if (!ok) return pause();
      grpc::ByteBuffer bytes;
      bytes.Swap(&in_);
      StartRead(&in_);
      bool ends = false;
      if (Status s = take(bytes, ends); !s.ok() || ends) return s;
    }
    post();
    return {};
  }

  /// Processes one message. Sets `ends` if the response was sent.
  Status take(const grpc::ByteBuffer& bytes, bool& ends) {
    v1::UploadFileRequest request;
    if (Status s = parse_request(bytes, request); !s.ok()) return s;
    if (permit_) {
      if (Status s = permit_->check(); !s.ok()) return s;
    }
    if (!begun_ && !request.has_start()) {
      return field_error("FIELD_REQUIRED", "start",
                         "is missing: the first message declares the file");
    }
    switch (request.kind_case()) {
      case v1::UploadFileRequest::kStart:
        if (Status s = start(request); !s.ok()) return s;
        break;
      case v1::UploadFileRequest::kChunk:
        if (writer_) {
          const v1::UploadFileRequest::Chunk& chunk = request.chunk();
          if (Status s = writer_->append(chunk.offset(), chunk.data(), chunk.crc32c()); !s.ok()) {
            return s;
          }
        }
        break;
      case v1::UploadFileRequest::kFinish: {
        if (writer_) {
          ASSIGN_OR_RETURN(complete_, writer_->finish(request.finish().sha256()));
        }
        ends = true;
        return answer(complete_);
      }
      case v1::UploadFileRequest::KIND_NOT_SET:
        return field_error("FIELD_REQUIRED", "kind", "expected one of start, chunk and finish");
    }
    return {};
  }

  Status start(const v1::UploadFileRequest& request) {
    const v1::UploadFileRequest::Start& start = request.start();
    if (begun_) return field_error("FIELD_UNUSED", "start", "was already sent on this stream");
    if (frame_.draining) return draining_error();
    ASSIGN_OR_RETURN(const std::string project, parse_parent(start.parent()));
    audit_.set_object(full_name(project, Collection::kUploads, start.sha256()));
    audit_.begin(caller_);
    ASSIGN_OR_RETURN(permit_, frame_.access.permit("UploadFile", request, caller_));
    uploads_.expire();
    const UploadKey key{project, start.sha256(), start.size_bytes()};
    ASSIGN_OR_RETURN(writer_, uploads_.open(key, start.offset()));
    if (!writer_) {  // the project has this content: chunks are accepted and ignored
      ASSIGN_OR_RETURN(complete_, uploads_.find(key));
    }
    begun_ = true;
    return {};
  }

  Status pause() {
    if (!begun_) {
      return field_error("FIELD_REQUIRED", "start",
                         "is missing: the stream ended without a message");
    }
    if (!writer_) return answer(complete_);
    ASSIGN_OR_RETURN(const Upload upload, writer_->pause());
    return answer(upload);
  }

  Status answer(const Upload& upload) {
    const v1::Upload response = to_proto(upload);
    *response_ = to_bytes(response);
    writer_.reset();
    audit_.end_well(response);
    end(grpc::Status::OK);
    return {};
  }

  void refuse(const Error& error) {
    // Keep the bytes received before the error; finish() has already deleted them if the digest was
    // wrong.
    if (writer_ && error.reason != "CONTENT_HASH_MISMATCH") (void)writer_->pause();
    writer_.reset();
    audit_.end(error.reason);
    end(to_grpc_status(error));
  }

  /// Ends the stream. Messages that arrive later are ignored.
  void end(const grpc::Status& status) {
    {
      const MutexLock lock(mu_);
      ended_ = true;
    }
    Finish(status);
  }

  CallFrame& frame_;
  Principal caller_;
  Uploads& uploads_;
  grpc::ByteBuffer* response_;
  grpc::ByteBuffer in_;  // gRPC writes it until OnReadDone, then work() uses it
  Mutex mu_;
  bool arrived_ TRAINYARD_GUARDED_BY(mu_) = false;  // in_ has a message, or the end if not ok_
  bool ok_ TRAINYARD_GUARDED_BY(mu_) = false;
  bool working_ TRAINYARD_GUARDED_BY(mu_) = false;  // work() is running or posted
  bool ended_ TRAINYARD_GUARDED_BY(mu_) = false;
  bool begun_ = false;
  std::optional<Permit> permit_;  // set by start()
  std::unique_ptr<UploadWriter> writer_;
  Upload complete_;  // the response: the existing upload, if there is no writer
  AuditedCall audit_;
};

}  // namespace

grpc::ServerReadReactor<grpc::ByteBuffer>* open_upload_stream(CallFrame& frame, Uploads& uploads,
                                                              grpc::CallbackServerContext* context,
                                                              grpc::ByteBuffer* response) {
  auto* stream = new UploadStream(frame, *context, uploads, response);  // deletes itself in OnDone
  stream->begin(admit(*context, frame.people));
  return stream;
}

}  // namespace trainyard::server
