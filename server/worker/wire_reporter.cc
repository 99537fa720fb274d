#include "server/worker/wire_reporter.h"

#include <algorithm>

#include "proto/convert/run.h"
#include "src/base/clock.h"

namespace trainyard {
namespace {

constexpr size_t kPointsPerReportMax = 5000;     // keeps a batch under 64 KiB
constexpr int64_t kSlowFlopsPerMs = 20'000'000;  // 20 GFLOP/s: two cores of an old laptop
constexpr size_t kLogBytesMax = 4096;            // the limit that job_service.proto states
constexpr std::chrono::seconds kBufferedFor{1};  // how long a remote worker holds back metrics

int64_t folder_bytes(const std::filesystem::path& folder) {
  int64_t bytes = 0;
  std::error_code ec;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ec)) {
    const auto size = entry.file_size(ec);
    if (!ec) bytes += static_cast<int64_t>(size);
  }
  return bytes;
}

}  // namespace

WireReporter::~WireReporter() {
  send_buffered();
  stream_.pace().end();
}

void WireReporter::send(v1::WorkerReport report) {
  send_buffered();
  stream_.send(std::move(report));
  progressed();
}

void WireReporter::progressed() { stream_.pace().sign(system_clock().steady_us()); }

void WireReporter::started(const RunPlan& plan) {
  start_seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  v1::WorkerReport report;
  *report.mutable_started()->mutable_plan() = to_proto(plan);
  report.mutable_started()->set_resumed_from_step(plan.first_step);
  stream_.set_progress(plan.first_step, 0);
  stream_.pace().begin(plan.flops_per_step / kSlowFlopsPerMs);
  send(std::move(report));
}

void WireReporter::metrics(std::span<const MetricPoint> points) {
  for (const MetricPoint& point : points) {
    stream_.set_progress(point.step, point.key == "train/samples_per_second" ? point.value : 0);
  }
  progressed();
  if (uplink_ == nullptr) return send_metrics(points);
  const MutexLock lock(mu_);
  buffered_.insert(buffered_.end(), points.begin(), points.end());
  const auto now = std::chrono::steady_clock::now();
  if (now - sent_ < kBufferedFor && buffered_.size() < kPointsPerReportMax) return;
  send_metrics(buffered_);
  buffered_.clear();
  sent_ = now;
}

void WireReporter::send_metrics(std::span<const MetricPoint> points) {
  while (!points.empty()) {
    const size_t count = std::min(points.size(), kPointsPerReportMax);
    v1::WorkerReport report;
    *report.mutable_metrics() = to_proto(points.first(count));
    stream_.send(std::move(report));
    points = points.subspan(count);
  }
}

// A job resumes from the last checkpoint that the daemon has, and does not repeat the steps before
// it. Their metrics must therefore reach the daemon before the checkpoint does.
void WireReporter::send_buffered() {
  const MutexLock lock(mu_);
  send_metrics(buffered_);
  buffered_.clear();
}

void WireReporter::checkpoint_saved(int64_t step, const std::filesystem::path& path) {
  v1::WorkerReport report;
  report.mutable_checkpoint()->set_step(step);
  report.mutable_checkpoint()->set_size_bytes(folder_bytes(path));
  if (uplink_ == nullptr) return send(std::move(report));
  send_buffered();
  uplink_->checkpoint_saved(step, path, std::move(report));
  progressed();
}

void WireReporter::checkpoint_failed(int64_t step, const Error& error) {
  v1::WorkerReport report;
  report.mutable_checkpoint()->set_step(step);
  report.mutable_checkpoint()->set_error(error.message);
  send(std::move(report));
}

void WireReporter::log(std::string_view message) { send_line(v1::LogLine::INFO, message); }

void WireReporter::warn(std::string_view message) { send_line(v1::LogLine::WARN, message); }

void WireReporter::send_line(v1::LogLine::Level level, std::string_view message) {
  v1::WorkerReport report;
  report.mutable_log()->set_level(level);
  report.mutable_log()->set_text(std::string(message.substr(0, kLogBytesMax)));
  send(std::move(report));
}

v1::RunTimes WireReporter::to_wire(const RunTimes& times) const {
  v1::RunTimes out = to_proto(times);
  out.set_start_seconds(start_seconds_);
  return out;
}

void WireReporter::times(const RunTimes& times) { stream_.set_times(to_wire(times)); }

}  // namespace trainyard
