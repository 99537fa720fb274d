// Reads of jobs. The changes are in job_changes.cc.
#include "server/store/job_store.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "server/store/array_rows.h"
#include "server/store/dependencies.h"
#include "server/store/event_rows.h"
#include "server/store/job_rows.h"
#include "server/store/page_token.h"
#include "server/store/store_core.h"
#include "src/base/check.h"

namespace trainyard::server {

Result<Job> JobStore::find(const std::string& project, const std::string& id) const {
  return core_.read<Job>([&](Connection& db) { return get_job(db, project, id); });
}

Result<Job> JobStore::find_uid(const std::string& uid) const {
  return core_.read<Job>([&](Connection& db) { return get_job_uid(db, uid); });
}

Result<JobPage> JobStore::list(const JobQuery& query) const {
  ASSIGN_OR_RETURN(const int64_t page_size, page_size_of(query.page_size));
  std::vector<JobState> states;
  TRAINYARD_CHECK(!query.array || query.projects.size() == 1,
                  "members of an array are listed in the array's project");
  std::string signed_query = "jobs";
  for (const std::string& project : query.projects) signed_query.append(" ").append(project);
  for (const JobState s : kJobStates) {
    const bool asked =
        query.states.empty() || std::ranges::find(query.states, s) != query.states.end();
    if (!asked) continue;
    states.push_back(s);
    signed_query.append(" ").append(name_of(s));
  }
  if (query.owner) signed_query.append(" of ").append(*query.owner);
  if (query.array) signed_query.append(" in ").append(*query.array);
  if (query.no_members) signed_query.append(" in none");
  for (const auto& [key, value] : query.labels) {
    signed_query.append("\n").append(key).append("\t").append(value);
  }
  int64_t before = std::numeric_limits<int64_t>::max();
  if (!query.page_token.empty()) {
    ASSIGN_OR_RETURN(before, read_page_token(core_.page_token_key, signed_query, query.page_token));
  }
  return core_.read<JobPage>([&](Connection& db) -> Result<JobPage> {
    JobPage page;
    JobRange range{query.projects, query.owner,   0,           query.no_members, states,
                   before,         page_size + 1, query.labels};
    if (query.array) {
      ASSIGN_OR_RETURN(const ArrayKey array,
                       get_array_key(db, query.projects.front(), *query.array));
      // All members have the owner of their array.
      if (query.owner && *query.owner != array.owner) return page;
      range.array = array.order;
    }
    page.jobs = read_jobs(db, range);
    if (static_cast<int64_t>(page.jobs.size()) > page_size) {
      page.jobs.pop_back();
      page.next_page_token =
          make_page_token(core_.page_token_key, signed_query, page.jobs.back().order);
    }
    return page;
  });
}

Result<std::vector<Job>> JobStore::list_active() const {
  return core_.read<std::vector<Job>>(
      [](Connection& db) -> Result<std::vector<Job>> { return read_active_jobs(db); });
}

Status JobStore::read_unfinished(const std::function<void(JobBrief)>& take) const {
  return core_.read<void>([&](Connection& db) -> Status {
    read_unfinished_jobs(db, take);
    return {};
  });
}
Status JobStore::keep_uses(int64_t half_life_us) {
  return core_.change_and_wait<void>(
      [half_life_us](WriteContext& context) -> Status {
        trainyard::server::keep_uses(context.db, half_life_us, context.now_us);
        return {};
      },
      Urgency::kEssential);
}

Result<Uses> JobStore::uses() const {
  return core_.read<Uses>([](Connection& db) -> Result<Uses> { return read_uses(db); });
}

Status JobStore::check_after(const std::string& project,
                             const std::vector<Dependency>& after) const {
  if (after.empty()) return {};
  return core_.read<void>([&](Connection& db) -> Status {
    NewJob asked;
    asked.project = project;
    asked.after = after;
    if (const auto awaited = find_awaited(db, asked); !awaited.ok()) return awaited.error();
    return {};
  });
}

Result<JobCounts> JobStore::count(const std::vector<std::string>& projects) const {
  return core_.read<JobCounts>([&](Connection& db) -> Result<JobCounts> {
    JobCounts counts;
    for (const std::string& project : projects) {
      Query queued(db, "SELECT queued FROM projects WHERE name = ?");  // maintained by triggers
      queued.bind(project);
      if (queued.step()) counts.queued += queued.integer(0);
      Query active(db,
                   "SELECT state FROM jobs INDEXED BY jobs_by_state WHERE state IN (2, 3)"
                   " AND project = ?");
      active.bind(project);
      while (active.step()) {
        const auto state = static_cast<JobState>(active.integer(0));
        ++(state == JobState::kStarting ? counts.starting : counts.running);
      }
    }
    return counts;
  });
}

Result<JobCounts> JobStore::count() const {
  return core_.read<JobCounts>([](Connection& db) -> Result<JobCounts> {
    JobCounts counts;
    Query queued(db, "SELECT ifnull(sum(queued), 0) FROM projects");  // maintained by triggers
    if (queued.step()) counts.queued = queued.integer(0);
    Query active(db,
                 "SELECT state, count(*) FROM jobs INDEXED BY jobs_by_state WHERE state IN (2, 3)"
                 " GROUP BY state");
    while (active.step()) {
      const auto state = static_cast<JobState>(active.integer(0));
      (state == JobState::kStarting ? counts.starting : counts.running) = active.integer(1);
    }
    return counts;
  });
}

Result<Attempt> JobStore::find_attempt(const std::string& uid, int32_t number) const {
  return core_.read<Attempt>([&](Connection& db) -> Result<Attempt> {
    if (const std::optional<Job> job = find_job_uid(db, uid))
      if (std::optional<Attempt> attempt = find_attempt_row(db, *job, number))
        return std::move(*attempt);
    return make_error(
        ErrorCode::kNotFound, "ATTEMPT_NOT_FOUND",
        "There is no attempt " + std::to_string(number) + " of the job with uid " + uid + ".");
  });
}

Result<EventRange> JobStore::visit_events(const std::string& uid, int64_t after, int32_t count_max,
                                          int64_t bytes_max, const EventVisitor& visit) const {
  return core_.read<EventRange>([&](Connection& db) -> Result<EventRange> {
    EventRange range;
    int64_t number = 0;
    int64_t thinned = 0;
    {
      Query query(db, "SELECT number, newest_seq, state, events_thinned FROM jobs WHERE uid = ?");
      query.bind(uid);
      if (!query.step())
        return make_error(ErrorCode::kNotFound, "JOB_NOT_FOUND",
                          "there is no job with uid " + uid + ".");
      number = query.integer(0);
      range.newest_seq = query.integer(1);
      range.state = static_cast<JobState>(query.integer(2));
      thinned = query.integer(3);
    }
    range.oldest_seq = oldest_seq(range.newest_seq, static_cast<EventsThinned>(thinned));
    if (after < 0)
      return field_error("SEQUENCE_INVALID", "after",
                         std::to_string(after) + " is out of range, expected 0 or more");
    if (after > range.newest_seq) {
      Error e = make_error(ErrorCode::kOutOfRange, "SEQUENCE_IN_FUTURE",
                           "after: " + std::to_string(after) + " is beyond the newest event " +
                               std::to_string(range.newest_seq) + ".");
      e.metadata["oldest_seq"] = std::to_string(range.oldest_seq);
      e.metadata["newest_seq"] = std::to_string(range.newest_seq);
      return e;
    }
    if (after == range.newest_seq || count_max <= 0 || bytes_max <= 0) return range;
    Query query(db,
                "SELECT seq, payload FROM events WHERE job = ? AND seq > ? ORDER BY seq LIMIT ?");
    query.bind(number).bind(after).bind(int64_t{count_max});
    int64_t next = 0;
    for (int64_t bytes = 0; bytes < bytes_max && query.step();) {
      const int64_t seq = query.integer(0);
      if (next != 0 && seq != next) break;
      next = seq + 1;
      const std::string event = read_packed_event(db, number, query);
      bytes += std::ssize(event);
      visit(seq, event);
    }
    return range;
  });
}

}  // namespace trainyard::server
