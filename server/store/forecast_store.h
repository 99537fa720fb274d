// server/store/forecast_store.h: stores measured rates of devices, and how long jobs took in
// comparison with their forecasts. Thread-safe; see server/store/store.h.
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

/// The device, thread count and precision that rates are valid for.
struct RatesKey {
  std::string device;  // its model and core count, and the program's build
  int32_t threads = 0;
  v1::Recipe::Precision precision = v1::Recipe::PRECISION_UNSPECIFIED;

  auto operator<=>(const RatesKey&) const = default;
};
struct StoredRates {
  RatesKey key;
  int64_t time_us = 0;  // when the rates were measured
  std::string rates;    // JSON (src/forecast/rates.h)
};

/// The key of rates of a cluster's nodes with the same hardware, for one number of threads and one
/// precision.
struct NodeRatesKey {
  std::string cluster;
  std::string node;     // kind of node: CPU model and core count, or GPU model
  int32_t threads = 0;  // 0 for a GPU
  v1::Recipe::Precision precision = v1::Recipe::PRECISION_UNSPECIFIED;

  auto operator<=>(const NodeRatesKey&) const = default;
};
struct StoredNodeRates {
  NodeRatesKey key;
  std::string build;         // the build of the worker that measured
  int64_t time_us = 0;       // when the rates were measured
  int64_t seen_us = 0;       // when a job last ended on such a node
  int64_t memory_bytes = 0;  // 0: unknown
  int64_t time_limit_s = 0;  // limit of one attempt; 0: unknown
  std::string rates;         // JSON
};

/// Returns the printable ASCII characters among the first `bytes_max` bytes of a text that a worker
/// sent.
std::string plain_text(std::string_view text, size_t bytes_max);
/// Returns the kind of node in one line for people: "AMD EPYC 7763, 64 cores", "NVIDIA H100". Empty
/// if the facts are missing or implausible; they come from a worker and are untrusted.
std::string node_name(const v1::NodeFacts& facts, bool on_gpus);
/// Returns the value of ForecastOutcome.device_model for a job that ran on a node of a cluster.
std::string outcome_model(std::string_view cluster, std::string_view node);

/// The forecast and the measured times, in seconds, of a job that has SUCCEEDED.
struct ForecastOutcome {
  int64_t number = 0;  // ascending in the order in which the jobs ended
  std::string device_model;
  int32_t threads = 0;
  v1::Recipe::Precision precision = v1::Recipe::PRECISION_UNSPECIFIED;
  std::string graph;  // v1::Forecast.graph
  std::string job;    // the job's name
  int64_t end_time_us = 0;
  std::string basis;
  int64_t steps = 0;  // the number of measured steps
  double step = 0, step_low = 0, step_high = 0, step_measured = 0;
  double total = 0, total_measured = 0;  // total_measured is 0 unless one attempt ran the whole job
};

/// The smallest number of measured steps for which an outcome is stored.
inline constexpr int64_t kOutcomeStepsMin = 20;
/// The largest number of stored outcomes; the oldest are deleted.
inline constexpr int64_t kOutcomesMax = 10'000;
/// The largest number of stored node rates of a cluster, and how long they are kept after a job
/// last ended on such a node.
inline constexpr int64_t kNodeRatesMax = 64;
inline constexpr int64_t kNodeRatesKeptUs = int64_t{180} * 86'400 * 1'000'000;

class ForecastStore {
 public:
  explicit ForecastStore(StoreCore& core) : core_(core) {}

  /// Replaces older rates of the same key.
  void save_rates(StoredRates rates, Done<void> done);
  Result<std::vector<StoredRates>> rates() const;
  /// Replaces older rates of the same key, and deletes those of the cluster that exceed
  /// kNodeRatesKeptUs or kNodeRatesMax.
  void save_node_rates(StoredNodeRates rates, Done<void> done);
  /// Sets `seen_us` of all rates of the node, because a job has ended there.
  void see_node(std::string cluster, std::string node, int64_t seen_us, Done<void> done);
  Result<std::vector<StoredNodeRates>> node_rates() const;
  /// Returns the outcomes whose number is above `after`, oldest first.
  Result<std::vector<ForecastOutcome>> outcomes(int64_t after) const;

 private:
  StoreCore& core_;
};

/// Stores the forecast and the measured times of a job that succeeds in this transaction, if both
/// are known (forecast_on) and no other job shared its devices. `node` is the kind of the cluster
/// node that ran the job; a job of a cluster without it is skipped.
void note_outcome(Connection& db, const Job& job, const std::string& node, int64_t now_us);

}  // namespace trainyard::server
