#include "server/handlers/watch.h"

#include <grpcpp/security/auth_context.h>
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "server/handlers/access.h"
#include "server/handlers/job_handlers.h"
#include "server/handlers/open_streams.h"
#include "server/rpc/auth.h"
#include "server/rpc/names.h"
#include "server/rpc/status.h"
#include "server/rpc/wire.h"
#include "src/base/check.h"
#include "src/base/mutex.h"

namespace trainyard::server {

namespace {

constexpr size_t kCrowd = 64;  // after so many streams their memory is returned to the system
constexpr std::chrono::seconds kTrimDelay{1};  // gRPC needs time to free its memory

/// Returns a slice of the rest of a block, without a copy: the slice keeps the block alive.
grpc::Slice slice_from(const std::shared_ptr<const EventBlock>& block, size_t begin) {
  using Owner = std::shared_ptr<const EventBlock>;
  auto* owner = new Owner(block);
  char* bytes = const_cast<char*>(block->bytes.data());  // gRPC only reads the bytes that it sends
  return {bytes + begin, block->bytes.size() - begin,
          [](void* o) { delete static_cast<Owner*>(o); }, owner};
}

/// Identifies the connection of a call by the address at which gRPC stores the connection's
/// properties; null if there are none. The peer's address does not suffice, because all clients of
/// a Unix socket have the same.
const void* connection_of(const grpc::CallbackServerContext& context) {
  const std::shared_ptr<const grpc::AuthContext> properties = context.auth_context();
  if (!properties || properties->begin() == properties->end()) return nullptr;
  return (*properties->begin()).second.data();
}

}  // namespace

/// Kept alive by `self_` until gRPC has finished with it, and by its users.
class WatchStream final : public grpc::ServerWriteReactor<grpc::ByteBuffer>,
                          public OpenStream,
                          public std::enable_shared_from_this<WatchStream> {
 public:
  WatchStream(WatchStreams& streams, const WatchStreams::Parts& parts, const void* connection)
      : streams_(streams), parts_(parts), connection_(connection) {}

  /// Starts the stream, or ends it immediately if it was not admitted.
  void begin(Result<Principal> caller, const grpc::ByteBuffer& bytes) {
    self_ = shared_from_this();
    guarded([&]() -> Status {
      if (!caller.ok()) return caller.error();
      if (Status s = parse_request(bytes, request_); !s.ok()) return s;
      ASSIGN_OR_RETURN(permit_, parts_.frame.access.permit("WatchJob", request_, *caller));
      parts_.frame.streams.add(weak_from_this());
      // In case the role went before the stream was added.
      if (Status s = permit_->check(); !s.ok()) return s;
      ASSIGN_OR_RETURN(name_, parse_name(Collection::kJobs, "name", request_.name()));
      parts_.hub.post(
          [self = shared_from_this()] { self->guarded([&self] { return self->start(); }); });
      return {};
    });
  }

  void end(const grpc::Status& status) {
    const MutexLock lock(mu_);
    finish(status);
  }

  void check_access() override {
    if (Status s = permit_->check(); !s.ok()) end(to_grpc_status(s.error()));
  }

  /// Sends a heartbeat if one is due; returns when the next one will be.
  int64_t beat(int64_t now_us, int64_t silence_us) {
    const MutexLock lock(mu_);
    if (finished_ || writing_ || !watcher_) return now_us + silence_us;
    if (now_us < last_write_us_ + silence_us) return last_write_us_ + silence_us;
    if (Status s = permit_->check(); !s.ok()) {  // its token has expired
      finish(to_grpc_status(s.error()));
      return now_us + silence_us;
    }
    v1::WatchJobResponse message;
    message.mutable_heartbeat()->set_newest_seq(newest_seq_);
    write(to_bytes(message));
    return now_us + silence_us;
  }

  void OnWriteDone(bool ok) override {
    if (!ok) return end(grpc::Status::CANCELLED);
    {
      const MutexLock lock(mu_);
      writing_ = false;
      out_.Clear();
      if (!write_on()) return;
    }
    watcher_->request();
  }
  void OnCancel() override { end(grpc::Status::CANCELLED); }
  void OnDone() override {
    streams_.remove(this, connection_);
    // Waits until the hub has left take() and will not call it again. take() itself must never
    // reach this line, since its thread would wait for itself.
    watcher_.reset();
    self_.reset();
  }

 private:
  /// Ends the stream with what `body` returns or throws.
  template <typename Body>
  void guarded(const Body& body) {
    Status s;
    try {
      s = body();
    } catch (const std::exception& e) {
      s = internal_error("WatchJob", e.what());
    }
    if (!s.ok()) end(to_grpc_status(s.error()));
  }

  /// Runs on the hub's reading thread.
  Status start() {
    {
      const MutexLock lock(mu_);
      if (finished_) return {};
    }
    ASSIGN_OR_RETURN(const Job job, parts_.store.jobs().find(name_.project, name_.id));
    ASSIGN_OR_RETURN(std::unique_ptr<Watcher> watcher,
                     parts_.hub.watch(job.uid, request_.after(), [this](Result<EventRun> run) {
                       guarded([&] { return take(std::move(run)); });
                     }));
    v1::WatchJobResponse first;
    *first.mutable_start()->mutable_job() =
        to_proto(with_disk_state(parts_.dispatcher.explained(job), parts_.store.is_full()));
    const int64_t oldest = oldest_seq(job.newest_seq, job.events_thinned);
    first.mutable_start()->set_oldest_seq(oldest);
    first.mutable_start()->set_newest_seq(job.newest_seq);
    const grpc::ByteBuffer bytes = to_bytes(first);
    const MutexLock lock(mu_);
    if (finished_) return {};
    watcher_ = std::move(watcher);
    newest_seq_ = request_.after();
    oldest_seq_ = oldest;
    write(bytes);
    return {};
  }

  /// Runs on one of the hub's threads and takes the requested events.
  Status take(Result<EventRun> run) {
    if (!run.ok()) return run.error();
    if (Status s = permit_->check(); !s.ok()) return s;
    Watcher* watcher = nullptr;
    {
      const MutexLock lock(mu_);
      if (finished_) return {};
      TRAINYARD_CHECK(asked_,
                      "events of job " + name_.id + " arrive that its stream has not requested");
      asked_ = false;
      if (run->block) {
        const int64_t next = run->block->first_seq + static_cast<int64_t>(run->first);
        if (next > newest_seq_ + 1 && next > oldest_seq_) {  // `start` has promised these events
          return make_error(
              ErrorCode::kUnavailable, "EVENTS_THINNED",
              "old events of the job have just been removed; call again for the remaining ones");
        }
      }
      run_ = std::move(*run);
      if (run_.block && !request_.packed()) run_.block = run_.block->unpacked();
      if (writing_) return {};  // a heartbeat; after it OnWriteDone() continues
      if (!write_on()) return {};
      watcher = watcher_.get();  // valid: OnDone(), which resets it, waits for take()
    }
    watcher->request();
    return {};
  }

  /// Writes the pending events, or ends the stream. Returns true if the caller must request more
  /// from the hub, without the lock.
  bool write_on() TRAINYARD_REQUIRES(mu_) {
    if (finished_) return false;
    if (run_.block) {
      write_block();
      return false;
    }
    if (run_.ended) {
      finish(grpc::Status::OK);
      return false;
    }
    return !std::exchange(asked_, true);
  }

  void write_block() TRAINYARD_REQUIRES(mu_) {
    const EventBlock& block = *run_.block;
    const grpc::Slice slice = slice_from(run_.block, block.begin(run_.first));
    newest_seq_ = block.last_seq();
    run_.block.reset();
    write(grpc::ByteBuffer(&slice, 1));
  }

  void write(grpc::ByteBuffer bytes) TRAINYARD_REQUIRES(mu_) {
    writing_ = true;
    last_write_us_ = parts_.clock.steady_us();
    out_.Swap(&bytes);
    StartWrite(&out_);
  }

  void finish(const grpc::Status& status) TRAINYARD_REQUIRES(mu_) {
    if (std::exchange(finished_, true)) return;
    run_.block.reset();
    Finish(status);
  }

  WatchStreams& streams_;
  const WatchStreams::Parts& parts_;
  const void* const connection_;
  std::optional<Permit> permit_;  // set by begin(), before anything is written
  v1::WatchJobRequest request_;
  ResourceName name_;
  std::shared_ptr<WatchStream> self_;
  std::unique_ptr<Watcher> watcher_;  // set before the first write, reset in OnDone()

  Mutex mu_;
  EventRun run_ TRAINYARD_GUARDED_BY(mu_);        // the events that are not written yet
  bool asked_ TRAINYARD_GUARDED_BY(mu_) = false;  // a request to the hub is pending
  bool writing_ TRAINYARD_GUARDED_BY(mu_) = false;
  bool finished_ TRAINYARD_GUARDED_BY(mu_) = false;
  // The newest event written; a heartbeat never reports a later one.
  int64_t newest_seq_ TRAINYARD_GUARDED_BY(mu_) = 0;
  int64_t oldest_seq_ TRAINYARD_GUARDED_BY(mu_) = 0;  // the value sent in `start`
  int64_t last_write_us_ TRAINYARD_GUARDED_BY(mu_) = 0;
  grpc::ByteBuffer out_ TRAINYARD_GUARDED_BY(mu_);  // valid until its write is done
};

WatchStreams::WatchStreams(const Parts& parts) : parts_(parts), thread_([this] { beat(); }) {}

WatchStreams::~WatchStreams() {
  {
    const MutexLock lock(mu_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* WatchStreams::open(grpc::CallbackServerContext* context,
                                                               const grpc::ByteBuffer* request) {
  const void* const connection = connection_of(*context);
  auto stream = std::make_shared<WatchStream>(*this, parts_, connection);
  Result<Principal> caller = admit(*context, parts_.frame.people);
  {
    const MutexLock lock(mu_);
    if (Status s = admit_stream(connection); caller.ok() && !s.ok()) caller = std::move(s).error();
    streams_.insert(stream.get());
    if (connection != nullptr) ++per_connection_[connection];
    peak_ = std::max(peak_, streams_.size());
  }
  changed_.notify_all();
  stream->begin(std::move(caller), *request);
  return stream.get();
}

Status WatchStreams::admit_stream(const void* connection) {
  if (draining_) return draining_error();
  const int max = parts_.streams_max;
  if (static_cast<int>(streams_.size()) >= max) {
    return make_error(ErrorCode::kResourceExhausted, "STREAM_LIMIT_REACHED",
                      "the server has " + std::to_string(max) +
                          " watch streams open, its watch_streams_max; close one, call again "
                          "later, or have that setting raised");
  }
  const auto found = per_connection_.find(connection);
  if (found != per_connection_.end() && found->second >= kWatchStreamsPerConnectionMax) {
    return make_error(ErrorCode::kResourceExhausted, "STREAM_LIMIT_REACHED",
                      "this connection has " + std::to_string(kWatchStreamsPerConnectionMax) +
                          " watch streams open, the maximum; close one, or open another "
                          "connection for more");
  }
  return {};
}

std::vector<std::shared_ptr<WatchStream>> WatchStreams::list() {
  std::vector<std::shared_ptr<WatchStream>> out;
  for (WatchStream* stream : streams_) {
    if (auto held = stream->weak_from_this().lock()) out.push_back(std::move(held));
  }
  return out;
}

void WatchStreams::drain() {
  std::vector<std::shared_ptr<WatchStream>> streams;
  {
    const MutexLock lock(mu_);
    draining_ = true;
    streams = list();
  }
  for (const auto& stream : streams) stream->end(to_grpc_status(draining_error()));
}

void WatchStreams::remove(WatchStream* stream, const void* connection) {
  {
    const MutexLock lock(mu_);
    streams_.erase(stream);
    const auto found = per_connection_.find(connection);
    if (found != per_connection_.end() && --found->second == 0) per_connection_.erase(found);
    if (!streams_.empty() || peak_ < kCrowd) return;
  }
  changed_.notify_all();  // beat() can return memory now
}

void WatchStreams::beat() {
  const int64_t silence_us = parts_.heartbeat_ms * 1000;
  int64_t due_us = parts_.clock.steady_us() + silence_us;
  for (;;) {
    std::vector<std::shared_ptr<WatchStream>> streams;
    {
      MutexLock lock(mu_);
      const auto stops = [this]() TRAINYARD_REQUIRES(mu_) { return stopping_; };
      changed_.wait(lock, [this]() TRAINYARD_REQUIRES(mu_) {
        return stopping_ || !streams_.empty() || peak_ >= kCrowd;
      });
      if (streams_.empty() && !stopping_) {
        if (changed_.wait_for(lock, kTrimDelay, stops)) return;
        if (streams_.empty()) peak_ = 0;
        lock.unlock();
        ::malloc_trim(0);
        continue;
      }
      const int64_t wait_us = std::max<int64_t>(0, due_us - parts_.clock.steady_us());
      changed_.wait_for(lock, std::chrono::microseconds(wait_us), [this]() TRAINYARD_REQUIRES(mu_) {
        return stopping_ || (streams_.empty() && peak_ >= kCrowd);
      });
      if (stopping_) return;
      streams = list();
    }
    const int64_t now_us = parts_.clock.steady_us();
    due_us = now_us + silence_us;
    for (const auto& stream : streams) due_us = std::min(due_us, stream->beat(now_us, silence_us));
  }
}

}  // namespace trainyard::server
