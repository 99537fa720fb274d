#include "server/handlers/backup_stream.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "server/backup/staged_backup.h"
#include "server/config/log.h"
#include "server/handlers/access.h"
#include "server/handlers/audited_call.h"
#include "server/rpc/auth.h"
#include "server/rpc/status.h"
#include "server/rpc/wire.h"
#include "src/base/handle.h"
#include "src/base/mutex.h"
#include "src/base/sha256.h"
#include "trainyard/v1/system_service.pb.h"

namespace trainyard::server {
namespace {

constexpr size_t kBackupChunkBytes = 1 << 20;

/// Deletes itself in OnDone. Each message is created by one task of the transfers executor, so that
/// other calls do not wait, and only after the previous one was sent, so that the client's pace
/// limits the disk reads. If a client reads nothing for backup_stall_ms, its backup is ended, and
/// it receives the error when it reads again.
class BackupStream final : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  BackupStream(CallFrame& frame, const grpc::CallbackServerContext& context,
               const BackupSource& source, const grpc::ByteBuffer* request)
      : frame_(frame), source_(source), request_(request), audit_(frame, context, "Backup") {}

  void begin(Result<Principal> caller) {
    if (!caller.ok()) return Finish(to_grpc_status(caller.error()));
    caller_ = std::move(*caller);
    next();
  }
  void OnWriteDone(bool ok) override {
    bool stalled = false;
    {
      const MutexLock lock(mu_);
      writing_ = false;
      stalled = stalled_;
    }
    changed_.notify_one();
    if (!ok) return Finish(grpc::Status::CANCELLED);  // the client has disconnected
    if (stalled) return end(stall_error());
    next();
  }
  void OnDone() override {
    // Deleting the hard links takes a while, so gRPC's threads do it only if the executor has
    // stopped.
    if (!frame_.transfers.post([this] { delete this; })) delete this;
  }

 private:
  ~BackupStream() override {
    if (pace_.joinable()) {
      pace_.request_stop();
      pace_.join();
    }
    leave();
  }

  /// Deletes the links and lets another backup begin.
  void leave() {
    if (!mine_) return;
    mine_ = false;
    backup_.reset();
    source_.backing_up = false;
    spdlog::info("event=backup_ended complete={}", complete_);
  }

  /// Ends the stream; a client that sees the end can begin the next backup. Must be called only
  /// while no message is being sent.
  void end(const Status& status) {
    leave();
    audit_.end(status.ok() ? "OK" : std::string_view(status.error().reason));
    Finish(status.ok() ? grpc::Status::OK : to_grpc_status(status.error()));
  }

  Error stall_error() const {
    return make_error(ErrorCode::kAborted, "BACKUP_STALLED",
                      "the client received no data of the backup for " +
                          std::to_string(source_.stall_ms / 1000) +
                          " s, so the server ended it to let others begin; call again");
  }

  /// Runs on pace_: returns when a stop is requested, or ends the backup once a message has been in
  /// transit for too long. No other thread uses the backup while a message is being sent.
  void watch_pace(const std::stop_token& stop) {
    MutexLock lock(mu_);
    while (!stalled_) {
      if (!changed_.wait(lock, stop, [this]() TRAINYARD_REQUIRES(mu_) { return writing_; })) return;
      const int64_t message = messages_;
      stalled_ = !changed_.wait_until(
          lock, stop,
          std::chrono::steady_clock::now() + std::chrono::milliseconds(source_.stall_ms),
          [&]() TRAINYARD_REQUIRES(mu_) { return !writing_ || messages_ != message; });
      if (stop.stop_requested()) return;
    }
    lock.unlock();
    spdlog::warn("event=backup_stalled bytes_left_of_file={}", left_bytes_);
    leave();
    lock.lock();
  }

  void next() {
    const bool posted = frame_.transfers.post([this] {
      try {
        if (Status s = step(); !s.ok()) {
          Error error = s.error();
          error.message = source_.paths.hide(std::move(error.message));
          end(error);
        }
      } catch (const std::exception& e) {
        end(internal_error("Backup", e.what()));
      }
    });
    if (!posted) end(frame_.draining ? draining_error() : busy_error());
  }

  Status step() {
    if (frame_.draining) return draining_error();
    if (complete_) {
      end({});
      return {};
    }
    if (permit_) {
      if (Status s = permit_->check(); !s.ok()) return s;
    }
    v1::BackupResponse response;
    if (!backup_) {
      if (Status s = start(); !s.ok()) return s;
      note_progress(response);
    } else if (!prepared_) {
      ASSIGN_OR_RETURN(prepared_, backup_->prepare());
      note_progress(response);
    } else if (left_bytes_ > 0) {
      if (Status s = read_chunk(*response.mutable_data()); !s.ok()) return s;
    } else if (file_) {
      end_file(*response.mutable_end());
    } else if (next_file_ < backup_->files().size()) {
      if (Status s = open_file(*response.mutable_header()); !s.ok()) return s;
    } else {
      sum_up(*response.mutable_summary());
    }
    out_ = to_bytes(response);
    {
      const MutexLock lock(mu_);
      writing_ = true;
      ++messages_;
    }
    changed_.notify_one();
    StartWrite(&out_);
    return {};
  }

  Status start() {
    v1::BackupRequest request;
    if (Status s = parse_request(*request_, request); !s.ok()) return s;
    audit_.begin(request, caller_);
    ASSIGN_OR_RETURN(permit_, frame_.access.permit("Backup", request, caller_));
    if (source_.backing_up.exchange(true)) {
      return make_error(ErrorCode::kAborted, "BACKUP_BUSY",
                        "another backup is under way; call again when it has ended");
    }
    mine_ = true;
    pace_ = std::jthread([this](const std::stop_token& stop) { watch_pace(stop); });
    ASSIGN_OR_RETURN(backup_, StagedBackup::begin(source_.paths));
    warnings_ = backup_->warnings();
    spdlog::info("event=backup_started commit={} {}", backup_->commit(),
                 kv("caller", caller_.text()));
    return {};
  }

  void note_progress(v1::BackupResponse& response) const {
    response.mutable_progress()->set_copied_bytes(backup_->copied_bytes());
    response.mutable_progress()->set_store_bytes(backup_->store_bytes());
  }

  const FrozenFile& current() const { return backup_->files()[next_file_ - 1]; }

  Status open_file(v1::BackupResponse::FileHeader& header) {
    if (next_file_ == 0) total_bytes_ = backup_->total_bytes();
    ++next_file_;
    file_.reset(::open(backup_->path_of(current()).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    if (!file_) return file_error("cannot open", backup_->path_of(current()), errno);
    left_bytes_ = current().size_bytes;
    digest_ = Sha256();
    header.set_path(current().path);
    header.set_size_bytes(left_bytes_);
    header.set_total_bytes(total_bytes_);
    return {};
  }

  Status read_chunk(std::string& data) {
    data.resize(std::min(kBackupChunkBytes, static_cast<size_t>(left_bytes_)));
    size_t got = 0;
    while (got < data.size()) {
      const ssize_t n = ::read(file_.get(), data.data() + got, data.size() - got);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) {
        return file_error("cannot read", backup_->path_of(current()), n < 0 ? errno : EIO);
      }
      got += static_cast<size_t>(n);
    }
    left_bytes_ -= static_cast<int64_t>(got);
    digest_.update(data);
    return {};
  }

  void end_file(v1::BackupResponse::FileEnd& end) {
    file_.reset();
    end.set_sha256(digest_.finish());
    const FrozenFile& file = current();
    if (file.sha256.empty() || file.sha256 == end.sha256()) return;
    warnings_.push_back(file.path + ": does not match its digest on the server");
    spdlog::error("event=file_damaged {}", kv("path", file.path));
  }

  void sum_up(v1::BackupResponse::Summary& summary) {
    complete_ = true;
    summary.set_format_version(StagedBackup::kFormatVersion);
    summary.set_server_version(TRAINYARD_VERSION);
    summary.set_commit(backup_->commit());
    summary.set_file_count(static_cast<int64_t>(backup_->files().size()));
    summary.set_size_bytes(backup_->total_bytes());
    constexpr size_t kWarningsMax = 1000;  // a message has a size limit
    for (size_t i = 0; i < std::min(warnings_.size(), kWarningsMax); ++i) {
      summary.add_warnings(warnings_[i]);
    }
  }

  CallFrame& frame_;
  Principal caller_;
  const BackupSource& source_;
  const grpc::ByteBuffer* request_;
  std::optional<Permit> permit_;  // set by start()
  bool mine_ = false;             // this stream has set source_.backing_up
  bool prepared_ = false;
  bool complete_ = false;
  std::unique_ptr<StagedBackup> backup_;
  std::vector<std::string> warnings_;
  size_t next_file_ = 0;
  int64_t total_bytes_ = 0;
  UniqueFd file_;  // the file at next_file_ - 1
  int64_t left_bytes_ = 0;
  Sha256 digest_;
  grpc::ByteBuffer out_;

  Mutex mu_;
  CondVar changed_;
  bool writing_ TRAINYARD_GUARDED_BY(mu_) = false;  // a message is being sent
  int64_t messages_ TRAINYARD_GUARDED_BY(mu_) = 0;  // number of messages sent
  bool stalled_ TRAINYARD_GUARDED_BY(mu_) = false;
  AuditedCall audit_;
  std::jthread pace_;  // runs watch_pace() while the backup runs
};

}  // namespace

grpc::ServerWriteReactor<grpc::ByteBuffer>* open_backup_stream(CallFrame& frame,
                                                               const BackupSource& source,
                                                               grpc::CallbackServerContext* context,
                                                               const grpc::ByteBuffer* request) {
  auto* stream = new BackupStream(frame, *context, source, request);  // deletes itself in OnDone
  stream->begin(admit(*context, frame.people));
  return stream;
}

}  // namespace trainyard::server
