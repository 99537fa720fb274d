#include "server/handlers/generate_stream.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "server/handlers/access.h"
#include "server/handlers/open_streams.h"
#include "server/rpc/auth.h"
#include "server/rpc/status.h"
#include "server/rpc/wire.h"
#include "src/base/mutex.h"

namespace trainyard::server {
namespace {

/// Kept alive by `self_` until gRPC has finished with it, and by the worker's reports. Text that is
/// generated while a message is being written is sent as one message: at most the whole text, whose
/// length the request limits.
class GenerateStream final : public grpc::ServerWriteReactor<grpc::ByteBuffer>,
                             public OpenStream,
                             public std::enable_shared_from_this<GenerateStream> {
 public:
  GenerateStream(CallFrame& frame, const ModelParts& models, const grpc::ByteBuffer* request)
      : frame_(frame), models_(models), request_(request) {}

  void begin(Result<Principal> caller) {
    self_ = shared_from_this();
    if (!caller.ok()) return end(caller.error());
    caller_ = std::move(*caller);
    const bool posted = frame_.executor.post([self = self_] {
      try {
        if (Status s = self->start(); !s.ok()) self->end(s);
      } catch (const std::exception& e) {
        self->end(internal_error("Generate", e.what()));
      }
    });
    if (!posted) end(frame_.draining ? draining_error() : busy_error());
  }

  void OnWriteDone(bool ok) override {
    if (!ok) return leave();
    check_access();
    const MutexLock lock(mu_);
    writing_ = false;
    write_next();
  }
  void OnCancel() override { leave(); }
  void OnDone() override { self_.reset(); }

  void check_access() override {
    const Status s = permit_->check();
    if (s.ok()) return;
    std::optional<CallNumber> call;
    {
      const MutexLock lock(mu_);
      if (std::exchange(denied_, true) || finished_) return;
      next_.clear();
      end_ = s;
      call = call_;
      write_next();
    }
    if (call.has_value()) models_.predict.cancel_generate(*call);
  }

 private:
  Status start() {
    v1::GenerateRequest request;
    if (Status s = parse_request(*request_, request); !s.ok()) return s;
    ASSIGN_OR_RETURN(permit_, frame_.access.permit("Generate", request, caller_));
    frame_.streams.add(weak_from_this());
    // In case the role went before the stream was added.
    if (Status s = permit_->check(); !s.ok()) return s;
    const auto on_text = [self = shared_from_this()](const v1::GenerateResponse& piece) {
      self->add(piece);
    };
    const auto done = [self = shared_from_this()](const Status& s) { self->end(s); };
    ASSIGN_OR_RETURN(const CallNumber call, generate(models_, request, caller_, on_text, done));
    bool left = false;
    {
      const MutexLock lock(mu_);
      call_ = call;
      left = left_ || denied_;
    }
    if (left) models_.predict.cancel_generate(call);
    return {};
  }

  void add(const v1::GenerateResponse& piece) {
    check_access();
    const MutexLock lock(mu_);
    if (denied_) return;
    v1::GenerateResponse& next = next_[piece.index()];
    const std::string text = next.text() + piece.text();
    next = piece;
    next.set_text(text);
    write_next();
  }

  void end(const Status& status) {
    const MutexLock lock(mu_);
    if (!end_.has_value()) end_ = status;
    write_next();
  }

  /// The caller has disconnected, so the generation is cancelled.
  void leave() {
    std::optional<CallNumber> call;
    {
      const MutexLock lock(mu_);
      if (std::exchange(left_, true)) return;
      call = call_;
      if (!std::exchange(finished_, true)) Finish(grpc::Status::CANCELLED);
    }
    if (call.has_value()) models_.predict.cancel_generate(*call);
  }

  void write_next() TRAINYARD_REQUIRES(mu_) {
    if (writing_ || finished_) return;
    const auto next = std::ranges::find_if(next_, [](const auto& entry) {
      const v1::GenerateResponse& piece = entry.second;
      return !piece.text().empty() || piece.finish() != v1::GenerateResponse::FINISH_UNSPECIFIED;
    });
    if (next != next_.end()) {
      out_ = to_bytes(next->second);
      next_.erase(next);
      writing_ = true;
      return StartWrite(&out_);
    }
    if (!end_.has_value()) return;
    finished_ = true;
    Finish(end_->ok() ? grpc::Status::OK : to_grpc_status(end_->error()));
  }

  CallFrame& frame_;
  Principal caller_;
  std::optional<Permit> permit_;  // set by start(), before the first message
  const ModelParts& models_;
  const grpc::ByteBuffer* request_;
  std::shared_ptr<GenerateStream> self_;  // until OnDone

  Mutex mu_;
  std::optional<CallNumber> call_ TRAINYARD_GUARDED_BY(mu_);
  // Maps a prompt to the text that was generated for it and has not been written yet.
  std::map<int32_t, v1::GenerateResponse> next_ TRAINYARD_GUARDED_BY(mu_);
  std::optional<Status> end_ TRAINYARD_GUARDED_BY(mu_);  // the result, to be sent after next_
  bool writing_ TRAINYARD_GUARDED_BY(mu_) = false;
  bool finished_ TRAINYARD_GUARDED_BY(mu_) = false;
  bool left_ TRAINYARD_GUARDED_BY(mu_) = false;
  bool denied_ TRAINYARD_GUARDED_BY(mu_) = false;  // by check_access(): nothing more is written
  grpc::ByteBuffer out_ TRAINYARD_GUARDED_BY(mu_);
};

}  // namespace

grpc::ServerWriteReactor<grpc::ByteBuffer>* open_generate_stream(
    CallFrame& frame, const ModelParts& models, grpc::CallbackServerContext* context,
    const grpc::ByteBuffer* request) {
  auto stream = std::make_shared<GenerateStream>(frame, models, request);
  stream->begin(admit(*context, frame.people));
  return stream.get();
}

}  // namespace trainyard::server
