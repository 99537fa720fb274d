#include "server/store/forecast_store.h"

#include <algorithm>

#include "server/store/store_core.h"

namespace trainyard::server {
namespace {

#define OUTCOME_COLUMNS                                                                    \
  "device_model, threads, precision, graph, job, end_time_us, basis, steps, step_seconds," \
  " step_seconds_low, step_seconds_high, step_seconds_measured, total_seconds,"            \
  " total_seconds_measured"

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

void note_outcome(Connection& db, const Job& job, int64_t now_us) {
  const v1::Forecast* const forecast = forecast_on(job.plan, job.device());
  const v1::RunTimes& times = job.progress.times();
  if (forecast == nullptr || forecast->step_seconds() <= 0) return;
  if (times.steps() < kOutcomeStepsMin || was_shared(db, job)) return;
  const bool whole = job.attempt == 1 && job.progress.step() == job.plan.steps_total();
  const double total = whole ? static_cast<double>(now_us - job.start_time_us) * 1e-6 : 0;
  Query(db, "INSERT INTO forecast_outcomes (" OUTCOME_COLUMNS
            ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")
      .bind(forecast->device_model())
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

Status ForecastStore::save_rates(StoredRates rates) {
  return wait_for<void>(core_, [&](Done<void> done) { save_rates(std::move(rates), done); });
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
