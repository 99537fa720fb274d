#include "client/lib/metric_history.h"

#include <algorithm>
#include <limits>

#include "client/lib/follow.h"

namespace trainyard::client {
namespace {

double non_finite(v1::NonFinite::Kind kind) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (kind == v1::NonFinite::POSITIVE_INFINITY) return kInfinity;
  if (kind == v1::NonFinite::NEGATIVE_INFINITY) return -kInfinity;
  return std::numeric_limits<double>::quiet_NaN();
}

}  // namespace

void visit_samples(const v1::Event& event,
                   const std::function<void(const std::string&, const MetricSample&)>& visit) {
  const double time_s = static_cast<double>(event.time().seconds()) + 1e-9 * event.time().nanos();
  for (const v1::MetricSeries& series : event.metrics().series()) {
    std::vector<double> values(series.values().begin(), series.values().end());
    for (const v1::NonFinite& marked : series.non_finite()) {
      const auto index = static_cast<size_t>(marked.index());
      if (marked.index() >= 0 && index < values.size()) values[index] = non_finite(marked.kind());
    }
    const size_t count = std::min(values.size(), static_cast<size_t>(series.steps_size()));
    for (size_t i = 0; i < count; ++i) {
      visit(series.key(), {series.steps(static_cast<int>(i)), values[i], time_s});
    }
  }
}

void MetricHistory::add(const v1::Event& event) {
  visit_samples(event,
                [this](const std::string& key, const MetricSample& sample) { add(key, sample); });
}

void MetricHistory::add(const std::string& key, const MetricSample& sample) {
  std::vector<MetricSample>& samples = series_[key];
  while (!samples.empty() && samples.back().step >= sample.step) samples.pop_back();
  samples.push_back(sample);
}

Result<v1::Job> read_events(Client& client, const std::string& name, bool follow,
                            std::stop_token stop,
                            const std::function<bool(const v1::Event&)>& on_event) {
  v1::Job job;
  int64_t until = -1;  // without `follow`: the newest event when the stream began
  FollowHandler handler;
  handler.started = [&](const v1::WatchJobResponse::Start& start) {
    if (until >= 0) return;
    job = start.job();
    until = start.newest_seq();
  };
  handler.event = [&](const v1::Event& event) {
    return on_event(event) && (follow || event.seq() < until);
  };
  const Status followed = follow_job(client, name, 0, std::move(stop), handler);
  if (!followed.ok()) return followed.error();
  return job;
}

}  // namespace trainyard::client
