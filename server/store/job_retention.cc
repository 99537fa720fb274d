// Lists finished jobs by their end and removes their events, for the retention rules
// (server/housekeeping/retention.h).
#include <utility>

#include "server/store/event_rows.h"
#include "server/store/job_rows.h"
#include "server/store/job_store.h"
#include "server/store/store_core.h"

namespace trainyard::server {
namespace {

/// The newest job that is not among the `skip_newest` newest: its end time and its order.
struct Bound {
  int64_t end_time_us = INT64_MAX;
  int64_t order = INT64_MAX;
};

std::optional<Bound> bound_of(Connection& db, const EndedQuery& asked) {
  if (asked.skip_newest == 0) return Bound{asked.as_of_us, INT64_MAX};
  Query query(db,
              "SELECT end_time_us, number FROM jobs INDEXED BY jobs_by_end WHERE state >= 5"
              " AND end_time_us <= ? ORDER BY end_time_us DESC, number DESC LIMIT 1 OFFSET ?");
  query.bind(asked.as_of_us).bind(asked.skip_newest);
  if (!query.step()) return std::nullopt;
  return Bound{query.integer(0), query.integer(1)};
}

std::vector<EndedJob> read_ended(Connection& db, const EndedQuery& asked) {
  const std::optional<Bound> bound = bound_of(db, asked);
  if (!bound) return {};
  std::vector<int64_t> numbers;
  {
    Query query(db,
                "SELECT number, end_time_us FROM jobs INDEXED BY jobs_by_end"
                " WHERE state >= 5 AND end_time_us >= ?1 AND (end_time_us > ?1 OR number > ?2)"
                " AND end_time_us <= ?3 AND end_time_us <= ?4"
                " AND (end_time_us < ?4 OR number <= ?5) AND events_thinned < ?6"
                " ORDER BY end_time_us, number LIMIT ?7");
    constexpr int64_t kDone = static_cast<int64_t>(EventsThinned::kDone);
    query.bind(asked.after_time_us).bind(asked.after_order).bind(asked.ended_before_us);
    query.bind(bound->end_time_us).bind(bound->order);
    query.bind(asked.to_thin ? kDone : INT64_MAX).bind(asked.count_max);
    while (query.step()) numbers.push_back(query.integer(0));
  }
  std::vector<EndedJob> jobs;
  for (const int64_t number : numbers) {
    Query query(db,
                "SELECT project, id, uid, state, end_time_us, newest_seq, checkpoint_step,"
                " events_thinned, EXISTS (SELECT 1 FROM models WHERE models.project = jobs.project"
                "  AND models.id = jobs.id AND models.job_uid = jobs.uid)"
                " FROM jobs WHERE number = ?");
    query.bind(number);
    if (!query.step()) continue;
    EndedJob& job = jobs.emplace_back();
    job.order = number;
    job.project = query.text(0);
    job.id = query.text(1);
    job.uid = query.text(2);
    job.state = static_cast<JobState>(query.integer(3));
    job.end_time_us = query.integer(4);
    job.newest_seq = query.integer(5);
    job.checkpoint_step = query.integer(6);
    job.events_thinned = static_cast<EventsThinned>(query.integer(7));
    job.has_model = query.integer(8) != 0;
  }
  return jobs;
}

Status thin_job(WriteContext& context, const ThinEvents& thin) {
  int64_t number = 0;
  {
    Query query(context.db, "SELECT number FROM jobs WHERE uid = ? AND state >= 5");
    query.bind(thin.uid);
    if (!query.step()) {
      ASSIGN_OR_RETURN(const Job job, get_job_uid(context.db, thin.uid));
      return state_conflict(job, "it may still add events.");
    }
    number = query.integer(0);
  }
  // Marks the job together with the first removal, so that readers of the events learn that some
  // are missing.
  Query(context.db, "UPDATE jobs SET events_thinned = ? WHERE number = ?")
      .bind(static_cast<int64_t>(thin.then))
      .bind(number)
      .run();
  std::vector<ThinEvents::Range> gone = thin.gone;
  if (thin.instead) gone.push_back({thin.instead->seq(), thin.instead->seq()});
  for (const ThinEvents::Range& range : gone) {
    Query(context.db, "DELETE FROM event_parts WHERE job = ? AND seq BETWEEN ? AND ?")
        .bind(number)
        .bind(range.first)
        .bind(range.last)
        .run();
    Query(context.db, "DELETE FROM events WHERE job = ? AND seq BETWEEN ? AND ?")
        .bind(number)
        .bind(range.first)
        .bind(range.last)
        .run();
  }
  if (thin.instead) insert_event(context.db, number, *thin.instead);
  return {};
}

}  // namespace

Result<std::vector<EndedJob>> JobStore::list_ended(const EndedQuery& query) const {
  return core_.read<std::vector<EndedJob>>(
      [&](Connection& db) -> Result<std::vector<EndedJob>> { return read_ended(db, query); });
}

Status JobStore::wait_for_changes() {
  return core_.change_and_wait<void>([](WriteContext&) { return Status(); }, Urgency::kEssential);
}

void JobStore::thin_events(ThinEvents thin, Done<void> done) {
  core_.change<void>(
      [thin = std::move(thin)](WriteContext& context) { return thin_job(context, thin); },
      std::move(done), Urgency::kEssential);
}

}  // namespace trainyard::server
