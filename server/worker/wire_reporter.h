// server/worker/wire_reporter.h: what the trainer reports, as reports on the wire.
#pragma once

#include "server/worker/report_stream.h"
#include "src/train/trainer.h"

namespace trainyard {

class WireReporter final : public Reporter {
 public:
  explicit WireReporter(ReportStream& stream) : stream_(stream) {}
  void started(const RunPlan& plan) override;
  void metrics(std::span<const MetricPoint> points) override;
  void checkpoint_saved(int64_t step, const std::filesystem::path& path) override;
  void checkpoint_failed(int64_t step, const Error& error) override;
  void log(std::string_view message) override;

 private:
  ReportStream& stream_;
};

}  // namespace trainyard
