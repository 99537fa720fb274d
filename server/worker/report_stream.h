// server/worker/report_stream.h: the worker's connection to the daemon.
//
// Reports are queued by the training thread, which never waits for the network, and written by a
// thread of their own. A report stays in the queue until the daemon acknowledges its number; when
// the stream breaks, a new one is opened and everything unacknowledged is sent again (the daemon
// applies each number once). With a spool each report is on disk too until then: those that the
// queue has no room for are read from it, and what a worker leaves there at its end is taken by
// the daemon, or by the next one.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "server/protocol/report_spool.h"
#include "server/protocol/versions.h"
#include "server/worker/pace.h"
#include "src/base/mutex.h"
#include "trainyard/v1/worker_service.grpc.pb.h"

namespace trainyard {

class ReportStream {
 public:
  struct Options {
    std::string task;
    std::string nonce;
    int32_t protocol = kProtocols.newest;  // agreed on
    std::chrono::milliseconds heartbeat_interval{5'000};
    std::chrono::milliseconds unattended{kUnattendedDefault};
    std::filesystem::path spool = {};              // empty: none
    bool muted = false;                            // nothing is sent: another worker reports
    std::chrono::milliseconds away_after{10'000};  // then a worker that is done does not wait
  };
  /// As the daemon assigned them.
  static Options options_of(const v1::Assignment& assignment, std::string task, std::string nonce);
  static constexpr std::chrono::seconds kUnattendedDefault{30};

  /// `on_stop` is called once, from the reading thread, when the daemon asks the worker to stop,
  /// fences it, or has been out of reach for Options::unattended.
  ReportStream(v1::WorkerService::Stub& stub, Options options,
               std::function<void(std::string reason)> on_stop);
  ~ReportStream();

  /// Queues a report and gives it its number. Blocks only when kReportsMax reports wait for the
  /// daemon and the spool takes no more: dropping one would break the sequence, so training waits.
  void send(v1::WorkerReport report);

  /// Gets the commands that are neither an acknowledgement nor a stop, on the reading thread. After
  /// it was replaced, the one before is not called any more. Without one they are ignored.
  void set_on_command(std::function<void(const v1::WorkerCommand&)> on_command);
  /// How long the daemon may be out of reach, from now on. 0: a broken stream is
  /// the end.
  void set_unreachable_max(std::chrono::milliseconds time);

  /// Shown in the next heartbeats.
  void set_progress(int64_t step, double samples_per_second);
  void set_times(v1::RunTimes times);
  /// What heartbeats say of the run's progress.
  Pace& pace() { return pace_; }

  /// Waits until everything sent is acknowledged, for as long as the daemon can be reached: what it
  /// cannot store just now is sent again. Once it was out of reach for a while, true if the spool
  /// holds everything, durably. False if not, or if the daemon fenced us.
  bool drain();
  /// The daemon refused this worker for good.
  bool fenced();
  /// It was out of reach for Options::unattended.
  bool out_of_reach();

 private:
  static constexpr size_t kReportsMax = 20000;
  static constexpr int64_t kSpoolBytesKept = 1
                                             << 20;  // more is dropped once nothing of it is needed
  static constexpr int64_t kSpoolBytesMany = 16 << 20;  // ... or once little of it is
  static constexpr std::chrono::milliseconds kReconnectDelay{100};
  static constexpr std::chrono::milliseconds kReconnectDelayMax{5000};

  using Stream = grpc::ClientReaderWriter<v1::WorkerReport, v1::WorkerCommand>;
  void run();
  enum class Contact : uint8_t {
    kNone,      // the daemon was not reached
    kRefused,   // it answered that it cannot take the next report just now
    kAccepted,  // it took reports
  };
  Contact run_stream();  // one stream from open to break
  void read_commands(Stream& stream);
  void acknowledge(int64_t number);
  void enqueue(v1::WorkerReport report) TRAINYARD_REQUIRES(mu_);
  void refill() TRAINYARD_REQUIRES(mu_);
  void tidy_spool() TRAINYARD_REQUIRES(mu_);
  bool may_send() const TRAINYARD_REQUIRES(mu_) { return sent_ < std::min(queue_.size(), window_); }
  bool all_sent() const TRAINYARD_REQUIRES(mu_) { return queue_.empty() && on_disk_ == 0; }
  void request_stop(const std::string& reason);

  v1::WorkerService::Stub& stub_;
  const Options options_;
  std::function<void(std::string)> on_stop_;

  Mutex command_mu_;
  std::function<void(const v1::WorkerCommand&)> on_command_ TRAINYARD_GUARDED_BY(command_mu_);

  Mutex mu_;
  CondVar changed_;
  std::deque<v1::WorkerReport> queue_
      TRAINYARD_GUARDED_BY(mu_);               // not acknowledged, in order of number
  size_t sent_ TRAINYARD_GUARDED_BY(mu_) = 0;  // how many of queue_ the current stream has carried
  // How many it may carry before one is acknowledged: one at first, and twice as many with each
  // acknowledgement. All at once would fill a link that breaks again and again, so that what was
  // sent is never heard of, and goes over the next one again.
  size_t window_ TRAINYARD_GUARDED_BY(mu_) = 1;
  int64_t next_number_ TRAINYARD_GUARDED_BY(mu_) = 1;
  std::optional<ReportSpool> spool_ TRAINYARD_GUARDED_BY(mu_);
  int64_t on_disk_ TRAINYARD_GUARDED_BY(mu_) = 0;      // reports behind queue_ that are only there
  int64_t disk_offset_ TRAINYARD_GUARDED_BY(mu_) = 0;  // where they begin
  bool broken_ TRAINYARD_GUARDED_BY(mu_) = false;      // the current stream's reader has ended
  bool dropped_ TRAINYARD_GUARDED_BY(mu_) = false;     // a report, because we are fenced
  bool fenced_ TRAINYARD_GUARDED_BY(mu_) = false;      // the daemon refused us for good
  bool other_version_ TRAINYARD_GUARDED_BY(mu_) = false;  // the daemon does not speak ours
  bool closing_ TRAINYARD_GUARDED_BY(mu_) = false;
  std::optional<v1::RunTimes> times_ TRAINYARD_GUARDED_BY(mu_);  // for heartbeats
  bool away_ TRAINYARD_GUARDED_BY(mu_) = false;          // no daemon for Options::away_after
  bool out_of_reach_ TRAINYARD_GUARDED_BY(mu_) = false;  // for Options::unattended
  std::unique_ptr<grpc::ClientContext> context_ TRAINYARD_GUARDED_BY(mu_);
  std::atomic<bool> stop_requested_{false};
  std::atomic<std::chrono::milliseconds> unattended_;
  std::atomic<int64_t> step_{0};
  std::atomic<double> samples_per_second_{0};
  Pace pace_;
  std::thread thread_;
};

}  // namespace trainyard
