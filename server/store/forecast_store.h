// server/store/forecast_store.h: rates of devices as they were measured, and what became of
// forecasts. Thread-safe; see server/store/store.h.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "server/store/done.h"
#include "server/store/job.h"
#include "src/base/result.h"
#include "trainyard/v1/worker_service.pb.h"

namespace trainyard::server {

class StoreCore;
class Connection;

/// What rates hold for.
struct RatesKey {
  std::string device;  // model, cores and build
  int32_t threads = 0;
  v1::Recipe::Precision precision = v1::Recipe::PRECISION_UNSPECIFIED;

  auto operator<=>(const RatesKey&) const = default;
};
struct StoredRates {
  RatesKey key;
  int64_t time_us = 0;  // of the measurement
  std::string rates;    // JSON (src/forecast/rates.h)
};

/// Rates of a cluster's nodes that compute alike, with a number of threads and a precision.
struct NodeRatesKey {
  std::string cluster;
  std::string node;     // their CPU's model and cores, or their GPU's model
  int32_t threads = 0;  // 0 of a GPU
  v1::Recipe::Precision precision = v1::Recipe::PRECISION_UNSPECIFIED;

  auto operator<=>(const NodeRatesKey&) const = default;
};
struct StoredNodeRates {
  NodeRatesKey key;
  std::string build;         // of the worker that measured
  int64_t time_us = 0;       // of the measurement
  int64_t seen_us = 0;       // when a job last ended on such a node
  int64_t memory_bytes = 0;  // 0: unknown
  int64_t time_limit_s = 0;  // of a start there; 0: unknown
  std::string rates;         // JSON
};

/// Of the first bytes of what a worker says what is printable ASCII.
std::string plain_text(std::string_view text, size_t bytes_max);
/// The kind of node, one line for people: "AMD EPYC 7763, 64 cores", "NVIDIA H100". Empty where the
/// facts, which are a worker's and untrusted, say nothing.
std::string node_name(const v1::NodeFacts& facts, bool on_gpus);
/// What ForecastOutcome.device_model is of a job that a node of a cluster ran.
std::string outcome_model(std::string_view cluster, std::string_view node);

/// Of a job that has SUCCEEDED and had a forecast. Times in seconds.
struct ForecastOutcome {
  int64_t number = 0;  // in the order of their ends
  std::string device_model;
  int32_t threads = 0;
  v1::Recipe::Precision precision = v1::Recipe::PRECISION_UNSPECIFIED;
  std::string graph;  // v1::Forecast.graph
  std::string job;    // its name
  int64_t end_time_us = 0;
  std::string basis;
  int64_t steps = 0;  // that were measured
  double step = 0, step_low = 0, step_high = 0, step_measured = 0;
  double total = 0, total_measured = 0;  // measured: 0 unless one attempt ran the whole job
};

/// Steps of which a job's time is known well enough to be kept.
inline constexpr int64_t kOutcomeStepsMin = 20;
/// Rows that are kept; older ones go.
inline constexpr int64_t kOutcomesMax = 10'000;
/// Node rates that are kept of a cluster, and how long after a job last ended on such a node.
inline constexpr int64_t kNodeRatesMax = 64;
inline constexpr int64_t kNodeRatesKeptUs = int64_t{180} * 86'400 * 1'000'000;

class ForecastStore {
 public:
  explicit ForecastStore(StoreCore& core) : core_(core) {}

  /// Takes the place of older rates of that key.
  void save_rates(StoredRates rates, Done<void> done);
  Result<std::vector<StoredRates>> rates() const;
  /// Likewise. Of the same cluster those go that were seen last too long ago, or are too many.
  void save_node_rates(StoredNodeRates rates, Done<void> done);
  /// A job has ended on such a node: of all its rates.
  void see_node(std::string cluster, std::string node, int64_t seen_us, Done<void> done);
  Result<std::vector<StoredNodeRates>> node_rates() const;
  /// Those behind `after`, oldest first.
  Result<std::vector<ForecastOutcome>> outcomes(int64_t after) const;

 private:
  StoreCore& core_;
};

/// Stores what a job that ends now was forecast to take and took, if both are known (forecast_on)
/// and it had its devices to itself: with the commit that ends it. `node`: of a job that a cluster
/// ran, which is passed over where that is not known.
void note_outcome(Connection& db, const Job& job, const std::string& node, int64_t now_us);

}  // namespace trainyard::server
