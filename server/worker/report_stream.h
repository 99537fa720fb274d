// server/worker/report_stream.h: the worker's connection to the daemon.
//
// The training thread queues reports and never waits for the network; a separate thread sends them.
// A report stays in the queue until the daemon acknowledges its number. When the stream breaks, a
// new one is opened and all unacknowledged reports are sent again (the daemon applies each number
// once). With a spool each report is also on disk until it is acknowledged. Reports for which the
// queue has no room are read from the spool. Reports that a worker leaves in the spool when it ends
// are read by the daemon, or by the next daemon.
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
    int32_t protocol = kProtocols.newest;  // the agreed version
    std::chrono::milliseconds heartbeat_interval{5'000};
    std::chrono::milliseconds unattended{kUnattendedDefault};
    std::filesystem::path spool = {};              // empty: none
    bool muted = false;                            // sends nothing, because another worker reports
    std::chrono::milliseconds away_after{10'000};  // drain() waits this long for an absent daemon
  };
  /// Returns the options in the daemon's assignment.
  static Options options_of(const v1::Assignment& assignment, std::string task, std::string nonce);
  static constexpr std::chrono::seconds kUnattendedDefault{30};

  /// `on_stop` is called once, from a thread of this object, when the daemon requests a stop,
  /// fences the worker, or has been out of reach for Options::unattended.
  ReportStream(v1::WorkerService::Stub& stub, Options options,
               std::function<void(std::string reason)> on_stop);
  ~ReportStream();

  /// Assigns the next number to a report and queues it. Blocks only while kReportsMax reports wait
  /// for the daemon and the spool accepts no more: dropping a report would break the sequence.
  void send(v1::WorkerReport report);

  /// Sets the handler of all commands except acknowledgements and stops. The reading thread calls
  /// it. After this returns, the previous handler is not called any more. Without a handler these
  /// commands are ignored.
  void set_on_command(std::function<void(const v1::WorkerCommand&)> on_command);
  /// Replaces Options::unattended, how long the daemon may be out of reach. 0: the worker ends when
  /// the stream breaks.
  void set_unreachable_max(std::chrono::milliseconds time);

  /// These two set values that the next heartbeats report.
  void set_progress(int64_t step, double samples_per_second);
  void set_times(v1::RunTimes times);
  /// Returns the run's progress, which heartbeats report.
  Pace& pace() { return pace_; }

  /// Waits until all reports are acknowledged, and returns true, while the daemon can be reached;
  /// reports that the daemon cannot store at the moment are sent again. After Options::away_after
  /// out of reach, returns true if the spool stores all reports durably. False if not, or if the
  /// daemon fenced this worker.
  bool drain();
  /// Returns whether the daemon permanently refused this worker.
  bool fenced();
  /// Returns whether the daemon was out of reach for Options::unattended.
  bool out_of_reach();

 private:
  static constexpr size_t kReportsMax = 20000;
  // A larger spool is rewritten: above the first size if no report in it is needed any more, above
  // the second size with the reports in the queue.
  static constexpr int64_t kSpoolBytesKept = 1 << 20;
  static constexpr int64_t kSpoolBytesMany = 16 << 20;
  static constexpr std::chrono::milliseconds kReconnectDelay{100};
  static constexpr std::chrono::milliseconds kReconnectDelayMax{5000};

  using Stream = grpc::ClientReaderWriter<v1::WorkerReport, v1::WorkerCommand>;
  void run();
  enum class Contact : uint8_t {
    kNone,      // the daemon was not reached
    kRefused,   // the daemon cannot accept the next report at the moment
    kAccepted,  // the daemon accepted reports
  };
  Contact run_stream();  // runs one stream until it breaks
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
      TRAINYARD_GUARDED_BY(mu_);               // unacknowledged reports, in order of number
  size_t sent_ TRAINYARD_GUARDED_BY(mu_) = 0;  // how many of queue_ the current stream has sent
  // How many reports the current stream may send before one is acknowledged: 1 at first, and twice
  // as many after each acknowledgement. Sending all of them would fill a link that breaks
  // repeatedly, so that no acknowledgement ever arrives and the next stream sends the same reports
  // again.
  size_t window_ TRAINYARD_GUARDED_BY(mu_) = 1;
  int64_t next_number_ TRAINYARD_GUARDED_BY(mu_) = 1;
  std::optional<ReportSpool> spool_ TRAINYARD_GUARDED_BY(mu_);
  // The number of reports that are only in the spool; they come after those in queue_.
  int64_t on_disk_ TRAINYARD_GUARDED_BY(mu_) = 0;
  int64_t disk_offset_ TRAINYARD_GUARDED_BY(mu_) = 0;  // offset in the spool of the first one
  bool broken_ TRAINYARD_GUARDED_BY(mu_) = false;      // the current stream's reader has ended
  bool dropped_ TRAINYARD_GUARDED_BY(mu_) = false;     // a report was dropped after fenced_
  bool fenced_ TRAINYARD_GUARDED_BY(mu_) = false;      // the daemon permanently refused this worker
  // The daemon does not speak this worker's protocol version.
  bool other_version_ TRAINYARD_GUARDED_BY(mu_) = false;
  bool closing_ TRAINYARD_GUARDED_BY(mu_) = false;
  std::optional<v1::RunTimes> times_ TRAINYARD_GUARDED_BY(mu_);  // sent with heartbeats
  // The daemon was out of reach for away_after.
  bool away_ TRAINYARD_GUARDED_BY(mu_) = false;
  bool out_of_reach_ TRAINYARD_GUARDED_BY(mu_) = false;  // the same for unattended
  std::unique_ptr<grpc::ClientContext> context_ TRAINYARD_GUARDED_BY(mu_);
  std::atomic<bool> stop_requested_{false};
  std::atomic<std::chrono::milliseconds> unattended_;
  std::atomic<int64_t> step_{0};
  std::atomic<double> samples_per_second_{0};
  Pace pace_;
  std::thread thread_;
};

}  // namespace trainyard
