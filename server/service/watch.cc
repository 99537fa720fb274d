#include "server/service/watch.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <utility>

#include "server/service/auth.h"
#include "server/service/names.h"
#include "server/service/status.h"
#include "server/service/wire.h"
#include "src/base/mutex.h"

namespace trainyard::server {

/// Kept alive by `self_` until the library is done with it, and by its users meanwhile.
class WatchStream final : public grpc::ServerWriteReactor<grpc::ByteBuffer>,
                          public std::enable_shared_from_this<WatchStream> {
 public:
  WatchStream(WatchStreams& streams, ServiceContext& service)
      : streams_(streams), service_(service) {}

  void begin(Status admitted, const grpc::ByteBuffer* request) {
    self_ = shared_from_this();
    Status s = std::move(admitted);
    try {
      if (s.ok()) s = start(request);
    } catch (const std::exception& e) {
      s = internal_error("WatchJob", e.what());
    }
    if (!s.ok()) end(to_grpc_status(s.error()));
  }

  void end(const grpc::Status& status) {
    const MutexLock lock(mu_);
    if (std::exchange(finished_, true)) return;
    Finish(status);
  }

  /// Sends a heartbeat if it is time; returns when it will be.
  int64_t beat(int64_t now_us, int64_t silence_us) {
    const MutexLock lock(mu_);
    if (finished_ || busy_) return now_us + silence_us;
    if (now_us < last_write_us_ + silence_us) return last_write_us_ + silence_us;
    v1::WatchJobResponse message;
    message.mutable_heartbeat()->set_newest_seq(newest_seq_);
    busy_ = true;
    write(message);
    return now_us + silence_us;
  }

  void OnWriteDone(bool ok) override {
    if (!ok) return end(grpc::Status::CANCELLED);
    {
      const MutexLock lock(mu_);
      busy_ = false;
    }
    pump();
  }
  void OnCancel() override { end(grpc::Status::CANCELLED); }
  void OnDone() override {
    streams_.remove(this);
    // Waits until the hub is not in pump() and will not call it again. pump() itself never gets
    // here: a thread must not wait for itself.
    watcher_.reset();
    self_.reset();
  }

 private:
  Status start(const grpc::ByteBuffer* bytes) {
    v1::WatchJobRequest request;
    if (Status s = parse_request(*bytes, request); !s.ok()) return s;
    ASSIGN_OR_RETURN(const std::string id, parse_name(Collection::kJobs, "name", request.name()));
    ASSIGN_OR_RETURN(const Job job, service_.store.jobs().find("default", id));
    ASSIGN_OR_RETURN(watcher_, service_.hub.watch(job.uid, request.after(), [this] { pump(); }));
    ASSIGN_OR_RETURN(const EventBatch range,
                     service_.store.jobs().read_events(job.uid, request.after(), 1));
    v1::WatchJobResponse first;
    *first.mutable_start()->mutable_job() = to_proto(service_.dispatcher.explained(job));
    first.mutable_start()->set_oldest_seq(range.oldest_seq);
    first.mutable_start()->set_newest_seq(range.newest_seq);
    const MutexLock lock(mu_);
    newest_seq_ = request.after();
    busy_ = true;
    write(first);
    return {};
  }

  /// busy_ is the caller's.
  void write(const v1::WatchJobResponse& message) TRAINYARD_REQUIRES(mu_) {
    last_write_us_ = service_.clock.steady_us();
    out_ = to_bytes(message);
    StartWrite(&out_);
  }

  /// Writes the next event, or becomes idle if there is none. Called when a write is done and when
  /// the hub has news; a caller that finds the stream busy sets a flag, so that no news is lost.
  void pump() {
    {
      const MutexLock lock(mu_);
      if (finished_) return;
      if (busy_) {
        news_ = true;
        return;
      }
      busy_ = true;  // ours; the store is not read under the lock
      news_ = false;
    }
    try {
      while (advance()) {
      }
    } catch (const std::exception& e) {
      end(to_grpc_status(internal_error("WatchJob", e.what())));
    }
  }

  /// True if news arrived while it looked and found none: look again.
  bool advance() {
    if (batch_.empty() && !ended_) {
      Result<Watcher::Next> next = watcher_->next();
      if (!next.ok()) {
        end(to_grpc_status(next.error()));
        return false;
      }
      std::move(next->events.begin(), next->events.end(), std::back_inserter(batch_));
      ended_ = next->ended;
    }
    if (batch_.empty() && ended_) {
      end(grpc::Status::OK);
      return false;
    }
    const MutexLock lock(mu_);
    if (finished_) return false;
    if (batch_.empty()) {
      if (std::exchange(news_, false)) return true;
      busy_ = false;
      return false;
    }
    v1::WatchJobResponse message;
    *message.mutable_event() = std::move(batch_.front());
    batch_.pop_front();
    newest_seq_ = message.event().seq();
    write(message);
    return false;
  }

  WatchStreams& streams_;
  ServiceContext& service_;
  std::shared_ptr<WatchStream> self_;
  std::unique_ptr<Watcher> watcher_;

  // Owned by the caller that set busy_.
  std::deque<v1::Event> batch_;
  bool ended_ = false;

  Mutex mu_;
  bool busy_ TRAINYARD_GUARDED_BY(mu_) = false;  // a write is under way, or someone is in advance()
  bool news_ TRAINYARD_GUARDED_BY(mu_) = false;
  bool finished_ TRAINYARD_GUARDED_BY(mu_) = false;
  int64_t newest_seq_ TRAINYARD_GUARDED_BY(mu_) =
      0;  // what was written; a heartbeat is never ahead of it
  int64_t last_write_us_ TRAINYARD_GUARDED_BY(mu_) = 0;
  grpc::ByteBuffer out_ TRAINYARD_GUARDED_BY(mu_);  // valid until its write is done
};

WatchStreams::WatchStreams(ServiceContext& service, int64_t heartbeat_ms)
    : service_(service), heartbeat_ms_(heartbeat_ms), thread_([this] { beat(); }) {}

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
  auto stream = std::make_shared<WatchStream>(*this, service_);
  Status admitted = admit(*context, service_.token);
  {
    const MutexLock lock(mu_);
    if (admitted.ok() && draining_) admitted = draining_error();
    if (admitted.ok() && static_cast<int>(streams_.size()) >= service_.config.watch_streams_max) {
      admitted = make_error(ErrorCode::kResourceExhausted, "STREAM_LIMIT",
                            "too many watch streams are open; close one or call again later");
    }
    streams_.insert(stream.get());
  }
  changed_.notify_all();
  stream->begin(std::move(admitted), request);
  return stream.get();
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

void WatchStreams::remove(WatchStream* stream) {
  const MutexLock lock(mu_);
  streams_.erase(stream);
}

void WatchStreams::beat() {
  const int64_t silence_us = heartbeat_ms_ * 1000;
  int64_t due_us = service_.clock.steady_us() + silence_us;
  for (;;) {
    std::vector<std::shared_ptr<WatchStream>> streams;
    {
      MutexLock lock(mu_);
      changed_.wait(lock,
                    [this]() TRAINYARD_REQUIRES(mu_) { return stopping_ || !streams_.empty(); });
      const int64_t wait_us = std::max<int64_t>(0, due_us - service_.clock.steady_us());
      changed_.wait_for(lock, std::chrono::microseconds(wait_us),
                        [this]() TRAINYARD_REQUIRES(mu_) { return stopping_; });
      if (stopping_) return;
      streams = list();
    }
    const int64_t now_us = service_.clock.steady_us();
    due_us = now_us + silence_us;
    for (const auto& stream : streams) due_us = std::min(due_us, stream->beat(now_us, silence_us));
  }
}

}  // namespace trainyard::server
