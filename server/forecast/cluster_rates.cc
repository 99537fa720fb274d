#include "server/forecast/cluster_rates.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <unordered_map>
#include <utility>

#include "server/config/log.h"
#include "server/forecast/outcome_history.h"
#include "server/protocol/time_limit.h"
#include "server/store/proto_time.h"
#include "src/base/mutex.h"
#include "src/base/text.h"

namespace trainyard::server {
namespace {

constexpr size_t kBuildBytesMax = 128;
constexpr int64_t kMemoryBytesMax = int64_t{1} << 50;
/// A time limit from this value on counts as none, because Slurm reports a year for an infinite
/// limit.
constexpr int64_t kNoTimeLimitS = int64_t{360} * 86'400;
constexpr size_t kRatesBytesMax = 1 << 20;
constexpr size_t kSamplesMax = 4096;
constexpr size_t kOpBytesMax = 64;
constexpr double kNumberMax = 1e18;      // bound of the FLOPs and bytes of a graph node
constexpr double kNodeSecondsMax = 600;  // bound of the time of one graph node
constexpr double kSecondsMax = 3600;     // bound of the times of a process start and of measuring
constexpr double kWattsMax = 1e5;
// A worker that has not reported its rates after this time is given up.
constexpr int64_t kMeasuringUs = 90'000'000;
constexpr int32_t kTriesMax = 3;  // the largest number of failures in a row before a pause
constexpr int64_t kPauseUs = 3'600'000'000;
constexpr double kClearlyFaster = 2;

Status refuse(const std::string& why) {
  return make_error(ErrorCode::kInvalidArgument, "RATES_INVALID", "rates: " + why);
}

/// Refuses values that no machine could have. parse_rates() has refused values that are negative or
/// not finite.
Status check_bounds(const DeviceRates& rates) {
  if (rates.samples.empty() || rates.samples.size() > kSamplesMax) {
    return refuse(std::to_string(rates.samples.size()) + " samples, expected 1 to " +
                  std::to_string(kSamplesMax));
  }
  const double seconds[] = {rates.prepare_seconds, rates.process_seconds, rates.measure_seconds};
  if (std::ranges::any_of(seconds, [](double s) { return s > kSecondsMax; }) ||
      rates.watts > kWattsMax) {
    return refuse("a time above one hour, or an impossible number of watts");
  }
  for (const RateSample& s : rates.samples) {
    const NodeWorkload& w = s.node;
    const double amounts[] = {w.flops, w.bytes, w.far_bytes, w.memory_bytes,
                              w.m,     w.n,     w.k,         w.serial};
    if (w.op.empty() || w.op.size() > kOpBytesMax || plain_text(w.op, kOpBytesMax) != w.op) {
      return refuse("the op of a sample is not a name of 1 to 64 printable characters");
    }
    if (s.seconds > kNodeSecondsMax ||
        std::ranges::any_of(amounts, [](double a) { return a > kNumberMax; })) {
      return refuse("a sample of " + w.op + " has impossible values");
    }
  }
  return {};
}

std::string threads_text(int32_t threads) {
  return threads == 1 ? " with 1 thread" : " with " + std::to_string(threads) + " threads";
}

/// The forecast of a run over all kinds of node whose rates are known.
struct Merged {
  RunForecast run;
  int64_t kinds = 0;
  std::string likely;  // the kind of node on which a job ended last
  double watts = 0;
  std::optional<MeasuredSteps> measured;
  std::string unknown;  // why the forecast of one kind is unknown
};

void widen(TimeRange& range, const TimeRange& other) {
  range.low = std::min(range.low, other.low);
  range.high = std::max(range.high, other.high);
}

}  // namespace

int32_t starts_within(double limit_seconds, double total_seconds, double start_seconds) {
  const double usable = limit_seconds -
                        static_cast<double>(stop_before_s(static_cast<int64_t>(limit_seconds))) -
                        start_seconds;
  if (usable <= 0) return 0;
  const double starts = std::ceil(std::max(0.0, total_seconds - start_seconds) / usable);
  return static_cast<int32_t>(std::clamp(starts, 1.0, 1e6));
}

std::string cluster_advice(const std::vector<v1::Forecast>& here, const v1::Forecast& cluster) {
  double best = 0;
  for (const v1::Forecast& f : here) {
    if (f.total_seconds() > 0 && (best == 0 || f.total_seconds() < best)) best = f.total_seconds();
  }
  if (cluster.total_seconds() <= 0 || best < kClearlyFaster * cluster.total_seconds()) return "";
  return cluster.device() + ": " + duration_text(cluster.total_seconds()) +
         " (not counting its queue); choose it with resources.cluster.";
}

struct ClusterRates::Impl : std::enable_shared_from_this<Impl> {
  Impl(Store& s, std::vector<ClusterConfig> p, ClusterRatesOptions o, const Clock& c)
      : store(s), clusters(std::move(p)), options(o), clock(c), history(s) {}

  struct Known {
    StoredNodeRates stored;
    std::shared_ptr<const RateModel> model;
  };
  struct Measuring {
    std::string task;
    StoredNodeRates of;  // the rates to be stored, without the measured values
    v1::CalibrateTask asked;
    int64_t until_us = 0;
  };
  struct Failures {
    int32_t in_a_row = 0;
    int64_t retry_us = 0;
    std::string why;
  };

  const ClusterConfig* config_of(std::string_view cluster) const {
    const auto it = std::ranges::find(clusters, cluster, &ClusterConfig::name);
    return it == clusters.end() ? nullptr : &*it;
  }
  static NodeRatesKey key_of(const NodeUse& use, std::string node) {
    return {use.cluster, std::move(node), use.on_gpus ? 0 : use.threads,
            computed_precision(use.precision, !use.on_gpus)};
  }
  void add(StoredNodeRates stored) TRAINYARD_REQUIRES(mu);
  void see(const NodeUse& use, const std::string& node, int64_t now_us) TRAINYARD_REQUIRES(mu);
  void fail(const NodeRatesKey& key, const std::string& why) TRAINYARD_REQUIRES(mu);
  /// Returns the rates of the cluster's nodes that match the query, sorted by the last end of a job
  /// there, the newest first.
  std::vector<const Known*> find(const ClusterQuery& query) const TRAINYARD_REQUIRES(mu);
  Result<Merged> merge(const ClusterQuery& query, bool with_outcomes) const TRAINYARD_REQUIRES(mu);
  std::string why_missing(const ClusterQuery& query) const TRAINYARD_REQUIRES(mu);
  int64_t time_limit_s(std::string_view cluster) const TRAINYARD_REQUIRES(mu);
  void add_time_limit(const ClusterQuery& query, const RunForecast& run, v1::Forecast& out) const
      TRAINYARD_REQUIRES(mu);
  v1::Forecast forecast(const ClusterQuery& query) const TRAINYARD_REQUIRES(mu);

  Store& store;
  const std::vector<ClusterConfig> clusters;
  const ClusterRatesOptions options;
  const Clock& clock;
  OutcomeHistory history;  // guarded by mu, except for grow()

  Mutex mu;
  std::map<NodeRatesKey, Known> known TRAINYARD_GUARDED_BY(mu);
  std::map<NodeRatesKey, Measuring> measuring TRAINYARD_GUARDED_BY(mu);
  std::map<NodeRatesKey, Failures> failures TRAINYARD_GUARDED_BY(mu);
  // Grows with each change of the data from which forecasts are computed.
  int64_t version TRAINYARD_GUARDED_BY(mu) = 0;
  std::unordered_map<std::string, std::pair<int64_t, v1::Forecast>> kept TRAINYARD_GUARDED_BY(mu);
};

void ClusterRates::Impl::add(StoredNodeRates stored) {
  Result<DeviceRates> parsed = parse_rates(stored.rates);
  if (!parsed.ok()) {
    spdlog::warn("event=node_rates_unreadable {}", kv("message", parsed.error().message));
    return;
  }
  stored.rates.clear();  // the rate model has a parsed copy
  const NodeRatesKey key = stored.key;
  known[key] = {std::move(stored), std::make_shared<RateModel>(std::move(parsed).value())};
  ++version;
  // Keeps the newest kNodeRatesMax rates of the cluster, like the store.
  std::vector<std::pair<int64_t, NodeRatesKey>> of_cluster;
  for (const auto& [other, k] : known) {
    if (other.cluster == key.cluster) of_cluster.emplace_back(k.stored.seen_us, other);
  }
  std::ranges::sort(of_cluster, std::greater<>());
  for (size_t i = kNodeRatesMax; i < of_cluster.size(); ++i) known.erase(of_cluster[i].second);
}

void ClusterRates::Impl::see(const NodeUse& use, const std::string& node, int64_t now_us) {
  bool any = false;
  for (auto& [key, k] : known) {
    if (key.cluster != use.cluster || key.node != node) continue;
    any = true;
    k.stored.seen_us = now_us;
  }
  if (!any) return;
  ++version;  // another kind of node may be the most likely one now
  store.forecasts().see_node(use.cluster, node, now_us, [](const Status& seen) {
    if (!seen.ok()) spdlog::warn("event=node_not_stored {}", kv("message", seen.error().message));
  });
}

void ClusterRates::Impl::fail(const NodeRatesKey& key, const std::string& why) {
  Failures& f = failures[key];
  f.why = why;
  if (++f.in_a_row >= kTriesMax) f.retry_us = clock.steady_us() + kPauseUs;
  ++version;  // the message about missing rates changes
  spdlog::warn("event=node_rates_not_measured {} {} {}", kv("cluster", key.cluster),
               kv("node", key.node), kv("message", why));
}

std::vector<const ClusterRates::Impl::Known*> ClusterRates::Impl::find(
    const ClusterQuery& query) const {
  std::vector<const Known*> found;
  const int32_t threads = query.on_gpus ? 0 : query.threads;
  const auto precision = computed_precision(query.precision, !query.on_gpus);
  for (const auto& [key, k] : known) {
    if (key.cluster == query.cluster && key.threads == threads && key.precision == precision) {
      found.push_back(&k);
    }
  }
  std::ranges::stable_sort(
      found, [](const Known* a, const Known* b) { return a->stored.seen_us > b->stored.seen_us; });
  return found;
}

Result<Merged> ClusterRates::Impl::merge(const ClusterQuery& query, bool with_outcomes) const {
  Merged merged;
  for (const Known* k : find(query)) {
    std::optional<MeasuredSteps> measured;
    if (with_outcomes) {
      measured =
          history.steps(outcome_key(outcome_model(query.cluster, k->stored.key.node), query.threads,
                                    query.precision, query.work->step.digest));
    }
    Result<RunForecast> run = forecast_run(*query.work, *k->model, measured);
    if (!run.ok()) {
      merged.unknown = "on " + k->stored.key.node + ": " + run.error().message;
      continue;
    }
    if (merged.kinds++ == 0) {
      merged.run = *run;
      merged.likely = k->stored.key.node;
      merged.watts = k->model->rates().watts;
      merged.measured = measured;
    } else {
      widen(merged.run.step, run->step);
      widen(merged.run.total, run->total);
    }
  }
  if (merged.kinds > 0) return merged;
  return make_error(ErrorCode::kNotFound, "RATE_UNKNOWN",
                    merged.unknown.empty() ? why_missing(query) : merged.unknown);
}

std::string ClusterRates::Impl::why_missing(const ClusterQuery& query) const {
  const ClusterConfig* const config = config_of(query.cluster);
  if (config == nullptr) return "this server has no cluster " + query.cluster;
  if (!config->measure_nodes) {
    return "the nodes of " + query.cluster +
           " are not measured (measure_nodes is false in its file)";
  }
  const int32_t threads = query.on_gpus ? 0 : query.threads;
  const std::string what = query.on_gpus ? "" : threads_text(threads);
  const bool now = std::ranges::any_of(measuring, [&](const auto& m) {
    return m.first.cluster == query.cluster && m.first.threads == threads &&
           clock.steady_us() < m.second.until_us;
  });
  for (const auto& [key, f] : failures) {
    if (now) break;
    if (key.cluster != query.cluster || key.threads != threads) continue;
    return "measuring a node of " + query.cluster + what + " failed: " + f.why +
           "; the next job that succeeds there measures it again" +
           (f.retry_us > clock.steady_us() ? " in an hour at the earliest" : "");
  }
  return "no node of " + query.cluster + " has been measured" + what +
         (now ? " yet; a worker is measuring one now"
              : " yet; the first job that succeeds there measures its node at its end");
}

int64_t ClusterRates::Impl::time_limit_s(std::string_view cluster) const {
  const ClusterConfig* const config = config_of(cluster);
  if (config != nullptr && config->time_limit_seconds > 0) return config->time_limit_seconds;
  int64_t limit_s = 0, seen_us = -1;
  for (const auto& [key, k] : known) {
    if (key.cluster != cluster || k.stored.seen_us <= seen_us) continue;
    seen_us = k.stored.seen_us;
    limit_s = k.stored.time_limit_s;
  }
  return limit_s;
}

void ClusterRates::Impl::add_time_limit(const ClusterQuery& query, const RunForecast& run,
                                        v1::Forecast& out) const {
  const int64_t limit_s = time_limit_s(query.cluster);
  if (limit_s <= 0) return;
  out.set_time_limit_seconds(limit_s);
  const int32_t starts =
      starts_within(static_cast<double>(limit_s), run.total.seconds, run.start_seconds);
  out.set_starts(starts);
  if (starts <= 1) return;
  const double again = (starts - 1) * run.start_seconds;
  out.set_total_seconds(out.total_seconds() + again);
  out.set_total_seconds_low(out.total_seconds_low() + again / 2);
  out.set_total_seconds_high(out.total_seconds_high() + 2 * again);
}

v1::Forecast ClusterRates::Impl::forecast(const ClusterQuery& query) const {
  v1::Forecast out;
  out.set_device(std::string(kClusterPrefix) + query.cluster);
  out.set_devices(query.nodes * (query.on_gpus ? query.devices : 1));
  out.set_memory_bytes(query.plan_bytes);
  out.set_graph(query.work->step.digest);
  const Result<Merged> merged = merge(query, /*with_outcomes=*/true);
  if (!merged.ok()) {
    out.set_basis("unknown: " + merged.error().message);
    return out;
  }
  set_run(merged->run, out);
  const bool several = merged->kinds > 1;
  out.set_device_model(several ? std::to_string(merged->kinds) + " kinds of node" : merged->likely);
  std::string basis;
  if (merged->measured) {
    basis = finished_jobs_text(*merged->measured) + " on " + merged->likely;
  } else {
    basis = "speed measured" + (query.on_gpus ? "" : threads_text(query.threads)) + " on " +
            merged->likely;
    // Only a forecast from rates assumes a network speed; measured times of jobs include it.
    const std::string link = assumed_link(query.work->step);
    if (!link.empty()) basis += "; " + link;
  }
  if (several) {
    basis += ", the kind that was seen last; the range covers all " +
             std::to_string(merged->kinds) + " kinds";
  }
  if (!merged->unknown.empty()) basis += "; unknown " + merged->unknown;
  out.set_basis(std::move(basis));
  add_time_limit(query, merged->run, out);
  out.set_energy_joules(out.total_seconds() * merged->watts * out.devices());
  if (const ClusterConfig* const config = config_of(query.cluster)) {
    out.set_cost(out.total_seconds() / kSecondsPerHour * config->price_per_hour * out.devices());
  }
  return out;
}

ClusterRates::ClusterRates(Store& store, std::vector<ClusterConfig> clusters,
                           ClusterRatesOptions options, const Clock& clock)
    : impl_(std::make_shared<Impl>(store, std::move(clusters), options, clock)) {
  store.observe([impl = impl_](std::span<const JobChange> changes) {
    for (const JobChange& change : changes) {
      if (is_terminal(change.state)) impl->history.grow();
    }
  });
}

Status ClusterRates::open() {
  ASSIGN_OR_RETURN(std::vector<StoredNodeRates> all, impl_->store.forecasts().node_rates());
  const MutexLock lock(impl_->mu);
  for (StoredNodeRates& stored : all) impl_->add(std::move(stored));
  return {};
}

std::optional<v1::CalibrateTask> ClusterRates::job_ended(const NodeUse& use) {
  const std::string node = node_name(use.facts, use.on_gpus);
  const ClusterConfig* const config = impl_->config_of(use.cluster);
  if (node.empty() || config == nullptr) return std::nullopt;
  const int64_t now_us = impl_->clock.steady_us();
  const int64_t wall_us = impl_->clock.wall_us();
  const std::string build = plain_text(use.facts.build(), kBuildBytesMax);
  const NodeRatesKey key = Impl::key_of(use, node);
  const MutexLock lock(impl_->mu);
  impl_->see(use, node, wall_us);
  if (!config->measure_nodes) return std::nullopt;
  const auto known = impl_->known.find(key);
  if (known != impl_->known.end() && known->second.stored.build == build) return std::nullopt;
  const auto busy = impl_->measuring.find(key);
  if (busy != impl_->measuring.end()) {
    // The worker did not get the first reply.
    if (busy->second.task == use.task) return busy->second.asked;
    if (now_us < busy->second.until_us) return std::nullopt;
  }
  const auto failed = impl_->failures.find(key);
  if (failed != impl_->failures.end() && now_us < failed->second.retry_us) return std::nullopt;
  if (!use.on_gpus && use.facts.cores_given() < use.threads) {
    impl_->fail(key, "its worker has only " + std::to_string(use.facts.cores_given()) +
                         " of the cores that its threads need");
    return std::nullopt;
  }
  Impl::Measuring fresh;
  fresh.task = use.task;
  fresh.until_us = now_us + kMeasuringUs;
  fresh.of.key = key;
  fresh.of.build = build;
  fresh.of.seen_us = wall_us;
  fresh.of.memory_bytes = std::clamp<int64_t>(
      use.on_gpus ? use.facts.gpu_free_bytes() : use.facts.memory_bytes(), 0, kMemoryBytesMax);
  const int64_t limit_s = use.facts.time_limit_seconds();
  fresh.of.time_limit_s = limit_s > 0 && limit_s < kNoTimeLimitS ? limit_s : 0;
  fresh.asked.set_threads(use.threads);
  fresh.asked.set_precision(key.precision);
  fresh.asked.set_seconds_max(impl_->options.seconds_max);
  ++impl_->version;  // the message about missing rates changes
  spdlog::info("event=node_measurement_started {} {} task={} threads={}",
               kv("cluster", use.cluster), kv("node", node), use.task, use.threads);
  return (impl_->measuring[key] = std::move(fresh)).asked;
}

Status ClusterRates::take(const std::string& task, std::string_view json) {
  StoredNodeRates stored;
  {
    const MutexLock lock(impl_->mu);
    const auto of = std::ranges::find_if(impl_->measuring,
                                         [&](const auto& m) { return m.second.task == task; });
    if (of == impl_->measuring.end()) {
      return make_error(ErrorCode::kFailedPrecondition, "RATES_NOT_REQUESTED",
                        "no rates were requested from task " + quoted_value(task));
    }
    stored = of->second.of;
    impl_->measuring.erase(of);
  }
  Status good = json.size() <= kRatesBytesMax
                    ? Status()
                    : refuse(std::to_string(json.size()) + " bytes, expected at most " +
                             std::to_string(kRatesBytesMax));
  if (good.ok()) {
    const Result<DeviceRates> rates = parse_rates(json);
    good = rates.ok() ? check_bounds(*rates) : Status(rates.error());
  }
  if (!good.ok()) {
    const MutexLock lock(impl_->mu);
    impl_->fail(stored.key, "the worker's result cannot be used: " + good.error().message);
    return good;
  }
  stored.time_us = impl_->clock.wall_us();
  stored.rates = json;
  {
    const MutexLock lock(impl_->mu);
    impl_->add(stored);
    impl_->failures.erase(stored.key);
  }
  spdlog::info("event=node_rates_measured {} {} threads={}", kv("cluster", stored.key.cluster),
               kv("node", stored.key.node), stored.key.threads);
  impl_->store.forecasts().save_node_rates(std::move(stored), [](const Status& saved) {
    if (!saved.ok()) {
      spdlog::warn("event=node_rates_not_stored {}", kv("message", saved.error().message));
    }
  });
  return {};
}

void ClusterRates::worker_gone(const std::string& task) {
  const MutexLock lock(impl_->mu);
  const auto of =
      std::ranges::find_if(impl_->measuring, [&](const auto& m) { return m.second.task == task; });
  if (of == impl_->measuring.end()) return;
  const NodeRatesKey key = of->first;
  impl_->measuring.erase(of);
  impl_->fail(key, "the worker ended before it had measured its node");
}

v1::Forecast ClusterRates::forecast(const ClusterQuery& query) {
  const MutexLock lock(impl_->mu);
  impl_->version += impl_->history.read();
  auto& kept = impl_->kept;
  if (const auto it = kept.find(query.key);
      it != kept.end() && it->second.first == impl_->version) {
    return it->second.second;
  }
  v1::Forecast forecast = impl_->forecast(query);
  if (kept.size() >= kForecastsKeptMax) kept.clear();
  kept[query.key] = {impl_->version, forecast};
  return forecast;
}

Result<TimeRange> ClusterRates::step_time(const ClusterQuery& query) {
  const MutexLock lock(impl_->mu);
  ASSIGN_OR_RETURN(const Merged merged, impl_->merge(query, /*with_outcomes=*/false));
  return merged.run.step;
}

void ClusterRates::describe(bool forecasts, v1::Cluster& out) {
  const std::string cluster = out.name().substr(kClusterPrefix.size());
  const MutexLock lock(impl_->mu);
  impl_->version += impl_->history.read();
  out.set_time_limit_seconds(impl_->time_limit_s(cluster));
  std::vector<const Impl::Known*> of_cluster;
  for (const auto& [key, k] : impl_->known) {
    if (key.cluster == cluster) of_cluster.push_back(&k);
  }
  std::ranges::stable_sort(of_cluster, [](const Impl::Known* a, const Impl::Known* b) {
    return a->stored.seen_us > b->stored.seen_us;
  });
  for (const Impl::Known* k : of_cluster) {
    const StoredNodeRates& stored = k->stored;
    auto& kinds = *out.mutable_node_types();
    auto node = std::ranges::find_if(
        kinds, [&](const v1::ClusterNode& n) { return n.model() == stored.key.node; });
    if (node == kinds.end()) {
      v1::ClusterNode& fresh = *out.add_node_types();
      fresh.set_model(stored.key.node);
      fresh.set_memory_bytes(stored.memory_bytes);
      *fresh.mutable_seen_time() = to_timestamp(stored.seen_us);
      node = std::prev(kinds.end());
    }
    v1::MeasuredRates& rates = *node->add_rates();
    rates.set_threads(stored.key.threads);
    rates.set_precision(stored.key.precision);
    *rates.mutable_measure_time() = to_timestamp(stored.time_us);
    rates.set_measure_seconds(k->model->rates().measure_seconds);
    rates.set_flops_per_second(k->model->flops_per_second());
    rates.set_bytes_per_second(k->model->bytes_per_second());
  }
  if (!forecasts) return;
  const ClusterConfig* const config = impl_->config_of(cluster);
  v1::DeviceForecasts& described = *out.mutable_forecasts();
  if (config != nullptr) described.set_price_per_hour(config->price_per_hour);
  if (of_cluster.empty() && config != nullptr) {
    ClusterQuery query;
    query.cluster = cluster;
    query.on_gpus = config->gpus_per_node > 0;
    query.threads = config->cpus;
    described.set_missing(impl_->why_missing(query));
  }
  const std::string prefix = outcome_model(cluster, "");
  impl_->history.describe([&](const std::string& model) { return model.starts_with(prefix); },
                          described);
}

}  // namespace trainyard::server
