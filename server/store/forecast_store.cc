#include "server/store/forecast_store.h"

#include <algorithm>

#include "server/store/store_core.h"

namespace trainyard::server {
namespace {

constexpr size_t kNameBytesMax = 128;
constexpr int32_t kCoresMax = 65'536;

#define OUTCOME_COLUMNS                                                                    \
  "device_model, threads, precision, graph, job, end_time_us, basis, steps, step_seconds," \
  " step_seconds_low, step_seconds_high, step_seconds_measured, total_seconds,"            \
  " total_seconds_measured"

#define NODE_COLUMNS \
  "cluster, node, threads, precision, build, time_us, seen_us, memory_bytes, time_limit_s, rates"

ForecastOutcome read_outcome(const Query& row) {
  ForecastOutcome o;
  int c = 0;
  o.number = row.integer(c++);
  o.device_model = row.text(c++);
  o.threads = static_cast<int32_t>(row.integer(c++));
  o.precision = static_cast<v1::Recipe::Precision>(row.integer(c++));
  o.graph = row.text(c++);
  o.job = row.text(c++);
  o.end_time_us = row.integer(c++);
  o.basis = row.text(c++);
  o.steps = row.integer(c++);
  for (double* value :
       {&o.step, &o.step_low, &o.step_high, &o.step_measured, &o.total, &o.total_measured}) {
    *value = row.real(c++);
  }
  return o;
}

bool was_shared(Connection& db, const Job& job) {
  Query query(db, "SELECT shared FROM attempts WHERE job = ? AND number = ?");
  query.bind(job.order).bind(int64_t{job.attempt});
  return query.step() && query.integer(0) != 0;
}

}  // namespace

std::string plain_text(std::string_view text, size_t bytes_max) {
  std::string out;
  for (const char c : text.substr(0, bytes_max)) {
    if (c >= 0x20 && c < 0x7f) out += c;
  }
  while (!out.empty() && out.back() == ' ') out.pop_back();
  return out;
}

std::string node_name(const v1::NodeFacts& facts, bool on_gpus) {
  if (on_gpus) return plain_text(facts.gpu_model(), kNameBytesMax);
  const std::string model = plain_text(facts.cpu_model(), kNameBytesMax);
  if (model.empty() || facts.cores() < 1 || facts.cores() > kCoresMax) return "";
  return model + ", " + std::to_string(facts.cores()) + (facts.cores() == 1 ? " core" : " cores");
}

std::string outcome_model(std::string_view cluster, std::string_view node) {
  return std::string(kClusterPrefix) + std::string(cluster) + ": " + std::string(node);
}

void note_outcome(Connection& db, const Job& job, const std::string& node, int64_t now_us) {
  const v1::Forecast* const forecast = forecast_on(job.plan, job.device());
  const v1::RunTimes& times = job.progress.times();
  if (forecast == nullptr || forecast->step_seconds() <= 0) return;
  const std::string& cluster = job.spec.resources().cluster();
  if (!cluster.empty() && node.empty()) return;
  const std::string model =
      cluster.empty() ? forecast->device_model() : outcome_model(cluster, node);
  if (times.steps() < kOutcomeStepsMin || was_shared(db, job)) return;
  const bool whole = job.attempt == 1 && job.progress.step() == job.plan.steps_total();
  const double total = whole ? static_cast<double>(now_us - job.start_time_us) * 1e-6 : 0;
  Query(db, "INSERT INTO forecast_outcomes (" OUTCOME_COLUMNS
            ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")
      .bind(model)
      .bind(int64_t{job.spec.resources().threads()})
      .bind(int64_t{job.plan.precision()})
      .bind(forecast->graph())
      .bind(job.name())
      .bind(now_us)
      .bind(forecast->basis())
      .bind(times.steps())
      .bind_real(forecast->step_seconds())
      .bind_real(forecast->step_seconds_low())
      .bind_real(forecast->step_seconds_high())
      .bind_real(times.step_seconds())
      .bind_real(forecast->total_seconds())
      .bind_real(total)
      .run();
  Query(db, "DELETE FROM forecast_outcomes WHERE number <= ?")
      .bind(db.last_row() - kOutcomesMax)
      .run();
}

void ForecastStore::save_rates(StoredRates rates, Done<void> done) {
  core_.change<void>(
      [rates = std::move(rates)](WriteContext& context) -> Status {
        Query(context.db,
              "INSERT INTO device_rates (device_key, threads, precision, time_us, rates) VALUES "
              "(?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET time_us = excluded.time_us,"
              " rates = excluded.rates")
            .bind(rates.key.device)
            .bind(int64_t{rates.key.threads})
            .bind(int64_t{rates.key.precision})
            .bind(rates.time_us)
            .bind(rates.rates)
            .run();
        return {};
      },
      std::move(done));
}

Result<std::vector<StoredRates>> ForecastStore::rates() const {
  return core_.read<std::vector<StoredRates>>(
      [](Connection& db) -> Result<std::vector<StoredRates>> {
        std::vector<StoredRates> all;
        Query query(db, "SELECT device_key, threads, precision, time_us, rates FROM device_rates");
        while (query.step()) {
          all.push_back({{query.text(0), static_cast<int32_t>(query.integer(1)),
                          static_cast<v1::Recipe::Precision>(query.integer(2))},
                         query.integer(3),
                         query.text(4)});
        }
        return all;
      });
}

void ForecastStore::save_node_rates(StoredNodeRates rates, Done<void> done) {
  core_.change<void>(
      [rates = std::move(rates)](WriteContext& context) -> Status {
        Query(context.db, "INSERT OR REPLACE INTO node_rates (" NODE_COLUMNS
                          ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")
            .bind(rates.key.cluster)
            .bind(rates.key.node)
            .bind(int64_t{rates.key.threads})
            .bind(int64_t{rates.key.precision})
            .bind(rates.build)
            .bind(rates.time_us)
            .bind(rates.seen_us)
            .bind(rates.memory_bytes)
            .bind(rates.time_limit_s)
            .bind(rates.rates)
            .run();
        Query(context.db, "DELETE FROM node_rates WHERE cluster = ? AND seen_us < ?")
            .bind(rates.key.cluster)
            .bind(rates.seen_us - kNodeRatesKeptUs)
            .run();
        Query(context.db,
              "DELETE FROM node_rates WHERE cluster = ?1 AND (node, threads, precision) IN"
              " (SELECT node, threads, precision FROM node_rates WHERE cluster = ?1"
              " ORDER BY seen_us DESC, time_us DESC LIMIT -1 OFFSET ?2)")
            .bind(rates.key.cluster)
            .bind(kNodeRatesMax)
            .run();
        return {};
      },
      std::move(done));
}

void ForecastStore::see_node(std::string cluster, std::string node, int64_t seen_us,
                             Done<void> done) {
  core_.change<void>(
      [cluster = std::move(cluster), node = std::move(node),
       seen_us](WriteContext& context) -> Status {
        Query(context.db, "UPDATE node_rates SET seen_us = ? WHERE cluster = ? AND node = ?")
            .bind(seen_us)
            .bind(cluster)
            .bind(node)
            .run();
        return {};
      },
      std::move(done));
}

Result<std::vector<StoredNodeRates>> ForecastStore::node_rates() const {
  return core_.read<std::vector<StoredNodeRates>>(
      [](Connection& db) -> Result<std::vector<StoredNodeRates>> {
        std::vector<StoredNodeRates> all;
        Query query(db, "SELECT " NODE_COLUMNS " FROM node_rates");
        while (query.step()) {
          StoredNodeRates& rates = all.emplace_back();
          rates.key = {query.text(0), query.text(1), static_cast<int32_t>(query.integer(2)),
                       static_cast<v1::Recipe::Precision>(query.integer(3))};
          rates.build = query.text(4);
          rates.time_us = query.integer(5);
          rates.seen_us = query.integer(6);
          rates.memory_bytes = query.integer(7);
          rates.time_limit_s = query.integer(8);
          rates.rates = query.text(9);
        }
        return all;
      });
}

Result<std::vector<ForecastOutcome>> ForecastStore::outcomes(int64_t after) const {
  return core_.read<std::vector<ForecastOutcome>>(
      [after](Connection& db) -> Result<std::vector<ForecastOutcome>> {
        std::vector<ForecastOutcome> all;
        Query query(db, "SELECT number, " OUTCOME_COLUMNS
                        " FROM forecast_outcomes WHERE number > ? ORDER BY number");
        query.bind(after);
        while (query.step()) all.push_back(read_outcome(query));
        return all;
      });
}

}  // namespace trainyard::server
