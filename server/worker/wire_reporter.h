// server/worker/wire_reporter.h: sends the trainer's reports over the wire.
#pragma once

#include <chrono>
#include <span>
#include <vector>

#include "server/worker/report_stream.h"
#include "server/worker/uplink.h"
#include "src/base/mutex.h"
#include "src/job/reporter.h"
#include "src/job/run_plan.h"

namespace trainyard {

/// Progress is expected while this object exists. A remote worker sends its metrics once a second,
/// and before any other report, because a thousand workers may report to one store.
class WireReporter final : public Reporter {
 public:
  /// `begin` is when the task began. `uplink` is null unless the worker is remote.
  WireReporter(ReportStream& stream, std::chrono::steady_clock::time_point begin,
               Uplink* uplink = nullptr)
      : stream_(stream), begin_(begin), uplink_(uplink) {
    stream_.pace().begin(0);
  }
  ~WireReporter() override;
  WireReporter(const WireReporter&) = delete;
  void started(const RunPlan& plan) override;
  void progressed() override;
  void metrics(std::span<const MetricPoint> points) override;
  void checkpoint_saved(int64_t step, const std::filesystem::path& path) override;
  void checkpoint_failed(int64_t step, const Error& error) override;
  void log(std::string_view message) override;
  void warn(std::string_view message) override;
  void times(const RunTimes& times) override;
  /// Converts `times` and adds the duration of the start.
  v1::RunTimes to_wire(const RunTimes& times) const;

 private:
  void send(v1::WorkerReport report);
  void send_metrics(std::span<const MetricPoint> points);
  /// Sends the metrics that are held back.
  void send_buffered();
  void send_line(v1::LogLine::Level level, std::string_view message);

  ReportStream& stream_;
  const std::chrono::steady_clock::time_point begin_;
  Uplink* const uplink_;
  double start_seconds_ = 0;
  Mutex mu_;  // a separate thread reports checkpoints
  std::vector<MetricPoint> buffered_ TRAINYARD_GUARDED_BY(mu_);
  std::chrono::steady_clock::time_point sent_ TRAINYARD_GUARDED_BY(mu_);
};

}  // namespace trainyard
