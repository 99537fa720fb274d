// client/lib/metric_history.h: collects a job's metrics from its events.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <stop_token>
#include <string>
#include <vector>

#include "client/lib/client.h"

namespace trainyard::client {

struct MetricSample {
  int64_t step = 0;
  double value = 0;   // may be NaN or infinite
  double time_s = 0;  // seconds since 1970, of the event with this value
};

/// Calls visit(key, sample) for each metric value of the event, in order.
void visit_samples(const v1::Event& event,
                   const std::function<void(const std::string& key, const MetricSample&)>& visit);

/// Samples by key, ordered by step, each step once. A job that resumed from a checkpoint reports
/// some steps again: the last report replaces earlier ones.
class MetricHistory {
 public:
  void add(const v1::Event& event);
  void add(const std::string& key, const MetricSample& sample);
  const std::map<std::string, std::vector<MetricSample>>& series() const { return series_; }

 private:
  std::map<std::string, std::vector<MetricSample>> series_;
};

/// Calls `on_event` with the events that a job has so far, without waiting for more; with `follow`
/// also with later ones until the job ends. Returns the job as it was when the stream began.
/// `on_event` returns false to stop, which is OK, as is a stop request.
Result<v1::Job> read_events(Client& client, const std::string& name, bool follow,
                            std::stop_token stop,
                            const std::function<bool(const v1::Event&)>& on_event);

}  // namespace trainyard::client
