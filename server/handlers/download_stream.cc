#include "server/handlers/download_stream.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <string>
#include <vector>

#include "server/handlers/access.h"
#include "server/handlers/audited_call.h"
#include "server/rpc/auth.h"
#include "server/rpc/status.h"
#include "server/rpc/wire.h"
#include "src/base/handle.h"
#include "src/base/sha256.h"

namespace trainyard::server {
namespace {

constexpr size_t kChunkBytes = 1 << 20;

/// Deletes itself in OnDone. The transfers executor reads the files, not gRPC's threads. One chunk
/// is in memory.
class DownloadStream final : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  DownloadStream(CallFrame& frame, const grpc::CallbackServerContext& context,
                 const StatePaths& state, const ModelParts& models, const grpc::ByteBuffer* request)
      : frame_(frame),
        state_(state),
        models_(models),
        request_(request),
        audit_(frame, context, "DownloadModel") {}

  void begin(Result<Principal> caller) {
    if (!caller.ok()) return Finish(to_grpc_status(caller.error()));
    caller_ = std::move(*caller);
    next();
  }
  void OnWriteDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::CANCELLED);
    next();
  }
  void OnDone() override { delete this; }

 private:
  void next() {
    const bool posted = frame_.transfers.post([this] {
      try {
        if (Status s = step(); !s.ok()) fail(s.error());
      } catch (const std::exception& e) {
        fail(internal_error("DownloadModel", e.what()));
      }
    });
    if (!posted) fail(frame_.draining ? draining_error() : busy_error());
  }

  void fail(const Error& error) {
    audit_.end(error.reason);
    Finish(to_grpc_status(error));
  }

  Status step() {
    if (names_.empty()) {
      v1::DownloadModelRequest request;
      if (Status s = parse_request(*request_, request); !s.ok()) return s;
      audit_.begin(request, caller_);
      ASSIGN_OR_RETURN(permit_, frame_.access.permit("DownloadModel", request, caller_));
      ASSIGN_OR_RETURN(model_, find_model(models_, request.name()));
      paths_.push_back(state_.weights(model_.job_uid, model_.digest));
      names_.push_back("model.safetensors");
      if (!model_.weights_alone()) {
        names_.push_back("model.json");
        paths_.push_back(state_.model(model_.job_uid) / names_.back());
        for (const char* name : {"adapter_model.safetensors", "adapter_config.json"}) {
          const std::filesystem::path path = state_.model(model_.job_uid) / name;
          std::error_code ignored;
          if (!std::filesystem::exists(path, ignored)) continue;
          names_.emplace_back(name);
          paths_.push_back(path);
        }
      }
    }
    if (Status s = permit_->check(); !s.ok()) return s;
    v1::DownloadModelResponse response;
    if (left_bytes_ > 0) {
      if (Status s = read_chunk(*response.mutable_data()); !s.ok()) return s;
    } else if (file_index_ < names_.size()) {
      if (Status s = open_file(*response.mutable_header()); !s.ok()) return s;
      ++file_index_;
    } else {
      audit_.end("OK");
      Finish(grpc::Status::OK);
      return {};
    }
    out_ = to_bytes(response);
    StartWrite(&out_);
    return {};
  }

  Status open_file(v1::DownloadModelResponse::FileHeader& header) {
    const std::string& name = names_[file_index_];
    const std::filesystem::path& path = paths_[file_index_];
    file_.reset(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat st {};
    if (!file_ || ::fstat(file_.get(), &st) != 0) {
      return make_error(ErrorCode::kDataLoss, "MODEL_FILE_LOST",
                        "the model's file " + name + " no longer exists");
    }
    left_bytes_ = st.st_size;
    header.set_filename(name);
    header.set_size_bytes(st.st_size);
    if (file_index_ == 0) {
      header.set_sha256(model_.digest);
    } else {
      ASSIGN_OR_RETURN(*header.mutable_sha256(), sha256_file(path));
    }
    return {};
  }

  Status read_chunk(std::string& data) {
    data.resize(std::min(kChunkBytes, static_cast<size_t>(left_bytes_)));
    size_t got = 0;
    while (got < data.size()) {
      const ssize_t n = ::read(file_.get(), data.data() + got, data.size() - got);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) {
        return make_error(ErrorCode::kDataLoss, "MODEL_FILE_LOST",
                          "the model's file cannot be read completely");
      }
      got += static_cast<size_t>(n);
    }
    left_bytes_ -= static_cast<int64_t>(got);
    return {};
  }

  CallFrame& frame_;
  Principal caller_;
  const StatePaths& state_;
  const ModelParts& models_;
  const grpc::ByteBuffer* request_;
  std::optional<Permit> permit_;  // set by the first step
  Model model_;
  // Names of the model's files, in the order of the stream.
  std::vector<std::string> names_;
  std::vector<std::filesystem::path> paths_;  // their paths
  size_t file_index_ = 0;
  UniqueFd file_;
  int64_t left_bytes_ = 0;
  grpc::ByteBuffer out_;
  AuditedCall audit_;
};

}  // namespace

grpc::ServerWriteReactor<grpc::ByteBuffer>* open_download_stream(
    CallFrame& frame, const StatePaths& state, const ModelParts& models,
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) {
  auto* stream =
      new DownloadStream(frame, *context, state, models, request);  // deletes itself in OnDone
  stream->begin(admit(*context, frame.people));
  return stream;
}

}  // namespace trainyard::server
