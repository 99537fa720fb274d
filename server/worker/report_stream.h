// server/worker/report_stream.h: the worker's line to the daemon.
//
// Reports are queued by the training thread, which never waits for the network, and written by a
// thread of their own. A report stays in the queue until the daemon acknowledges its number; when
// the stream breaks, a new one is opened and everything that is not acknowledged is sent again (the
// daemon takes each number once).
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "trainyard/v1/worker_service.grpc.pb.h"

namespace trainyard {

class ReportStream {
 public:
  struct Identity {
    std::string task;
    std::string nonce;
  };

  /// `on_stop` is called once, from the reading thread, when the daemon asks the worker to stop,
  /// fences it, or has been out of reach for kUnreachableMax.
  ReportStream(v1::WorkerService::Stub& stub, Identity identity,
               std::chrono::milliseconds heartbeat_interval,
               std::function<void(std::string reason)> on_stop);
  ~ReportStream();

  /// Queues a report and gives it its number. Blocks only when kReportsMax reports wait for the
  /// daemon: dropping one would tear the stream, so training waits then.
  void send(v1::WorkerReport report);

  /// Shown in the next heartbeats.
  void set_progress(int64_t step, double samples_per_second);

  /// Waits until everything sent is acknowledged. False after `timeout`, or if the daemon fenced
  /// us.
  bool drain(std::chrono::milliseconds timeout);

 private:
  static constexpr size_t kReportsMax = 20000;
  static constexpr std::chrono::seconds kUnreachableMax{30};
  static constexpr std::chrono::milliseconds kReconnectDelay{100};

  using Stream = grpc::ClientReaderWriter<v1::WorkerReport, v1::WorkerCommand>;
  void run();
  bool run_stream();  // one stream from open to break; true if something was acknowledged
  void read_commands(Stream& stream);
  void acknowledge(int64_t number);
  void request_stop(const std::string& reason);

  v1::WorkerService::Stub& stub_;
  const Identity identity_;
  const std::chrono::milliseconds heartbeat_interval_;
  std::function<void(std::string)> on_stop_;

  std::mutex mu_;
  std::condition_variable changed_;
  std::deque<v1::WorkerReport> queue_;  // GUARDED_BY(mu_): not acknowledged, in order of number
  size_t sent_ = 0;          // GUARDED_BY(mu_): how many of queue_ the current stream has carried
  int64_t next_number_ = 1;  // GUARDED_BY(mu_)
  bool broken_ = false;      // GUARDED_BY(mu_): the current stream's reader has ended
  bool fenced_ = false;      // GUARDED_BY(mu_): the daemon refused us for good
  bool closing_ = false;     // GUARDED_BY(mu_)
  std::unique_ptr<grpc::ClientContext> context_;  // GUARDED_BY(mu_)
  std::atomic<bool> stop_requested_{false};
  std::atomic<int64_t> step_{0};
  std::atomic<double> samples_per_second_{0};
  std::thread thread_;
};

}  // namespace trainyard
