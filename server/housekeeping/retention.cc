#include "server/housekeeping/retention.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <latch>
#include <map>
#include <optional>
#include <utility>

#include "server/config/log.h"
#include "server/files/removals.h"
#include "server/rpc/names.h"
#include "server/store/event_rows.h"
#include "server/store/wait_for.h"
#include "src/base/check.h"

namespace trainyard::server {
namespace {

constexpr int64_t kReadBytesMax = 1 << 20;  // events are read in chunks of this size
// Bytes per row of an event with several rows (event_rows.h).
constexpr int64_t kRowBytes = 979;
// Rows deleted before other changes of the store get their turn.
constexpr int64_t kPieceRowsMax = 1000;
// A job with more events is thinned before its row is deleted, because that deletes all remaining
// events in one step.
constexpr int64_t kRemovedEventsMax = 200;
constexpr int64_t kSurelyThinnedEvents = 1000;  // above this, has_to_thin() reads no events

/// The changes that thin_events() makes to a job, piece by piece.
struct Plan {
  std::vector<ThinEvents> pieces;
  int64_t last_rows = 0;  // rows that the last piece deletes
};

/// Finds the events that thin_events() is to delete, from the job's events in order.
class Thinning {
 public:
  void add(int64_t seq, std::string_view bytes) {
    TRAINYARD_CHECK(seq > newest_seq_, "event " + std::to_string(seq) + " comes out of order");
    newest_seq_ = seq;
    v1::Event event;
    if (!unpack_event(bytes, event)) return;  // an unreadable event stays
    if (!event.has_metrics() && !event.has_log()) return;
    if (event.has_metrics()) keep_newest(std::move(event));
    const int64_t rows = 1 + static_cast<int64_t>(bytes.size()) / kRowBytes;
    if (pieces_.empty() || rows_ + rows > kPieceRowsMax) {
      pieces_.emplace_back();
      rows_ = 0;
    }
    rows_ += rows;
    std::vector<ThinEvents::Range>& gone = pieces_.back().gone;
    if (!gone.empty() && gone.back().last + 1 == seq) {
      gone.back().last = seq;
    } else {
      gone.push_back({seq, seq});
    }
  }

  /// Returns the pieces. The first one stores the metrics that stay; the last one marks the job as
  /// done.
  Plan finish(const EndedJob& job) {
    const bool begun = job.events_thinned == EventsThinned::kBegun;
    if (is_thin_already()) pieces_.clear();
    if (pieces_.empty()) {
      rows_ = 0;
      pieces_.emplace_back().then = begun ? EventsThinned::kDone : EventsThinned::kNothingToThin;
      newest_.clear();
    } else {
      pieces_.back().then = EventsThinned::kDone;
    }
    if (!newest_.empty()) {
      for (auto& [key, point] : newest_) {
        *head_.mutable_metrics()->add_series() = std::move(point);
      }
      leave_out(head_.seq());
      pieces_.front().instead = std::move(head_);
    }
    for (ThinEvents& piece : pieces_) piece.uid = job.uid;
    return {std::move(pieces_), rows_};
  }

 private:
  void keep_newest(v1::Event event) {
    for (const v1::MetricSeries& series : event.metrics().series()) {
      const int last = std::min(series.steps_size(), series.values_size()) - 1;
      if (last < 0) continue;
      v1::MetricSeries& point = newest_[series.key()];
      point.Clear();
      point.set_key(series.key());
      point.add_steps(series.steps(last));
      point.add_values(series.values(last));
      for (const v1::NonFinite& mark : series.non_finite()) {
        if (mark.index() == last) point.add_non_finite()->set_kind(mark.kind());
      }
    }
    points_ += event.metrics().series_size() > 0 ? count_points(event) : 0;
    event.clear_metrics();
    head_ = std::move(event);
    ++metric_events_;
  }
  static int64_t count_points(const v1::Event& event) {
    int64_t points = 0;
    for (const v1::MetricSeries& series : event.metrics().series()) points += series.steps_size();
    return points;
  }
  /// Returns whether the only event to delete has one value of each metric, so the job is already
  /// thinned.
  bool is_thin_already() const {
    return pieces_.size() == 1 && pieces_[0].gone.size() == 1 && metric_events_ == 1 &&
           pieces_[0].gone[0].first == pieces_[0].gone[0].last && points_ == std::ssize(newest_);
  }
  /// Excludes the event with this sequence number from deletion, because it is replaced.
  void leave_out(int64_t seq) {
    for (ThinEvents& piece : pieces_) {
      std::vector<ThinEvents::Range> rest;
      for (const ThinEvents::Range& range : piece.gone) {
        if (seq < range.first || seq > range.last) {
          rest.push_back(range);
          continue;
        }
        if (range.first < seq) rest.push_back({range.first, seq - 1});
        if (seq < range.last) rest.push_back({seq + 1, range.last});
      }
      piece.gone = std::move(rest);
    }
  }

  std::vector<ThinEvents> pieces_;
  int64_t rows_ = 0;  // rows that the last piece deletes
  std::map<std::string, v1::MetricSeries> newest_;
  v1::Event head_;  // the newest event with metrics, without its metrics
  int64_t points_ = 0;
  int64_t metric_events_ = 0;
  int64_t newest_seq_ = 0;  // the last one passed to add()
};

Result<Plan> plan_thinning(const JobStore& jobs, const EndedJob& job) {
  Thinning thinning;
  for (int64_t after = 0; after < job.newest_seq;) {
    const int64_t before = after;
    const Result<EventRange> range = jobs.visit_events(job.uid, after, INT32_MAX, kReadBytesMax,
                                                       [&](int64_t seq, std::string_view bytes) {
                                                         thinning.add(seq, bytes);
                                                         after = seq;
                                                       });
    if (!range.ok()) return range.error();
    if (after == before) break;
  }
  return thinning.finish(job);
}

bool is_gone(const Error& error) { return error.reason == "JOB_NOT_FOUND"; }

Error stopped_error() {
  return make_error(ErrorCode::kAborted, Retention::kStopped,
                    "it was interrupted and continues later");
}

/// Starts `change(i, done)` for each i below `rows.size()` and waits for all results. Changes of
/// few rows share a commit; after kPieceRowsMax rows other changes of the store get their turn.
template <typename T, typename Change>
std::vector<Status> change_together(std::span<const int64_t> rows,
                                    const std::function<bool()>& stopped, const Change& change) {
  std::vector<Status> answers(rows.size(), stopped_error());
  for (size_t begin = 0; begin < rows.size() && !stopped();) {
    size_t end = begin + 1;
    for (int64_t sum = rows[begin]; end < rows.size() && sum + rows[end] <= kPieceRowsMax; ++end) {
      sum += rows[end];
    }
    std::latch open(static_cast<std::ptrdiff_t>(end - begin));
    for (size_t i = begin; i < end; ++i) {
      change(i, Done<T>([&answers, &open, i](Result<T> answer) {
               const bool done = answer.ok() || is_gone(answer.error());
               answers[i] = done ? Status() : Status(answer.error());
               open.count_down();
             }));
    }
    open.wait();
    begin = end;
  }
  return answers;
}

EndedQuery behind(const EndedJob* after, int64_t count_max) {
  EndedQuery query;
  query.count_max = count_max;
  if (after != nullptr) {
    query.after_time_us = after->end_time_us;
    query.after_order = after->order;
  }
  return query;
}

/// Checks the order by which a caller continues after the last job of a page.
Result<std::vector<EndedJob>> in_order(Result<std::vector<EndedJob>> jobs) {
  for (size_t i = 1; jobs.ok() && i < jobs->size(); ++i) {
    const EndedJob& before = (*jobs)[i - 1];
    const EndedJob& job = (*jobs)[i];
    TRAINYARD_CHECK(
        std::pair(before.end_time_us, before.order) < std::pair(job.end_time_us, job.order),
        "job " + job.id + " is listed after " + before.id + ", which ended later");
  }
  return jobs;
}

}  // namespace

std::string age_text(int64_t us) {
  const int64_t hours = us / 1'000'000 / 3600;
  if (hours < 1) return "less than an hour ago";
  if (hours < 48) return std::to_string(hours) + (hours == 1 ? " hour ago" : " hours ago");
  return std::to_string(hours / 24) + " days ago";
}

std::optional<KeptJobs> kept_jobs_setting(const Config& config) {
  std::optional<KeptJobs> kept = config.keep_jobs;
  if (kept) {
    kept->younger_than_seconds = std::max(kept->younger_than_seconds.value_or(0), kKeptSecondsMin);
  }
  return kept;
}

Result<std::vector<EndedJob>> Retention::list_expired(const KeptJobs& kept, int64_t as_of_us,
                                                      const EndedJob* after,
                                                      int64_t count_max) const {
  EndedQuery query = behind(after, count_max);
  query.skip_newest = kept.newest.value_or(0);
  query.as_of_us = as_of_us;
  query.ended_before_us =
      jumps_.ended_before(as_of_us, kept.younger_than_seconds.value_or(0) * 1'000'000);
  return in_order(store_.jobs().list_ended(query));
}

Result<std::vector<EndedJob>> Retention::list_to_thin(int64_t kept_seconds, int64_t as_of_us,
                                                      const EndedJob* after,
                                                      int64_t count_max) const {
  EndedQuery query = behind(after, count_max);
  query.to_thin = true;
  query.ended_before_us = jumps_.ended_before(as_of_us, kept_seconds * 1'000'000);
  return in_order(store_.jobs().list_ended(query));
}

std::string Retention::reason_to_delete(const EndedJob& job) const {
  const std::string ended =
      std::string(name_of(job.state)) + " " + age_text(clock_.wall_us() - job.end_time_us);
  const std::string step = std::to_string(job.checkpoint_step);
  if (job.state != JobState::kSucceeded) {
    return ended + "; it cannot be retried afterwards" +
           (job.checkpoint_step > 0 ? ", nor forked from step " + step : "");
  }
  return ended + (job.has_model ? ", its model is kept" : ", its model is already deleted") +
         (job.checkpoint_step > 0 ? "; it cannot be forked afterwards from step " + step : "");
}

std::string Retention::reason_to_thin(const EndedJob& job) const {
  return std::string(name_of(job.state)) + " " + age_text(clock_.wall_us() - job.end_time_us) +
         "; of its " + std::to_string(job.newest_seq) +
         " events, state changes, checkpoints and the newest value of each metric are kept";
}

Result<bool> Retention::has_to_thin(const EndedJob& job) const {
  if (job.newest_seq > kSurelyThinnedEvents) return true;
  ASSIGN_OR_RETURN(const Plan plan, plan_thinning(store_.jobs(), job));
  return plan.pieces.back().then == EventsThinned::kDone;
}

bool Retention::concerns_all(const Error& error) const {
  return error.reason == "STORE_BUSY" || error.reason == "STORE_FAILED" ||
         error.reason == "STORAGE_FULL" || !store_.health().ok();
}

std::vector<Status> Retention::remove(std::span<const EndedJob> jobs,
                                      const std::function<bool()>& stopped) {
  std::vector<int64_t> rows;
  for (const EndedJob& job : jobs) {
    TRAINYARD_CHECK(is_terminal(job.state) && !job.uid.empty(),
                    "job " + job.id + " with uid '" + job.uid + "' is " +
                        std::string(name_of(job.state)) + " and is to be deleted");
    // If this fails, deleting the row takes longer but is still correct.
    if (job.newest_seq > kRemovedEventsMax) (void)thin({&job, 1}, stopped);
    if (stopped()) return std::vector<Status>(jobs.size(), stopped_error());
    rows.push_back(std::min(job.newest_seq, kRemovedEventsMax));
  }
  std::vector<Status> removed = change_together<Job>(rows, stopped, [&](size_t i, Done<Job> done) {
    store_.jobs().remove_ended(jobs[i].uid, std::move(done));
  });
  std::vector<std::string> gone;
  for (size_t i = 0; i < jobs.size(); ++i) {
    if (!removed[i].ok()) continue;
    spdlog::info("event=job_removed {} uid={} {}",
                 kv("job", full_name(jobs[i].project, Collection::kJobs, jobs[i].id)), jobs[i].uid,
                 kv("reason", reason_to_delete(jobs[i])));
    const std::string path = "jobs/" + jobs[i].uid;
    const Status files = remove_kept(files_, paths_, paths_.root() / path);
    if (files.ok()) {
      gone.push_back(path);
    } else {  // the next start tries again
      spdlog::warn("event=files_not_deleted {} {}", kv("path", path),
                   kv("message", files.error().message));
    }
  }
  if (!gone.empty()) (void)store_.removals().forget_all(std::move(gone));
  return removed;
}

std::vector<Status> Retention::thin(std::span<const EndedJob> jobs,
                                    const std::function<bool()>& stopped) {
  JobStore& store = store_.jobs();
  std::vector<Status> answers(jobs.size());
  std::vector<Plan> plans(jobs.size());
  for (size_t i = 0; i < jobs.size(); ++i) {
    Result<Plan> plan = plan_thinning(store, jobs[i]);
    if (plan.ok()) {
      plans[i] = std::move(plan).value();
    } else if (!is_gone(plan.error())) {
      answers[i] = plan.error();
    }
  }
  // Deletes all pieces except each job's last one, one after another, and then the last pieces
  // together.
  for (size_t i = 0; i < jobs.size(); ++i) {
    std::vector<ThinEvents>& pieces = plans[i].pieces;
    for (size_t k = 0; k + 1 < pieces.size() && answers[i].ok(); ++k) {
      Status done = stopped() ? Status(stopped_error())
                              : answer_of(store, &JobStore::thin_events, std::move(pieces[k]));
      if (!done.ok() && !is_gone(done.error())) answers[i] = std::move(done);
    }
  }
  std::vector<size_t> last;
  std::vector<int64_t> rows;
  std::vector<bool> thinned(jobs.size());  // some of its events were deleted
  for (size_t i = 0; i < jobs.size(); ++i) {
    if (!answers[i].ok() || plans[i].pieces.empty()) continue;
    last.push_back(i);
    rows.push_back(plans[i].last_rows);
    thinned[i] = plans[i].pieces.back().then == EventsThinned::kDone;
  }
  std::vector<Status> ended = change_together<void>(rows, stopped, [&](size_t k, Done<void> done) {
    store.thin_events(std::move(plans[last[k]].pieces.back()), std::move(done));
  });
  for (size_t k = 0; k < last.size(); ++k) {
    answers[last[k]] = std::move(ended[k]);
    if (!answers[last[k]].ok() || !thinned[last[k]]) continue;
    const EndedJob& job = jobs[last[k]];
    spdlog::info("event=events_thinned {} uid={} events={}",
                 kv("job", full_name(job.project, Collection::kJobs, job.id)), job.uid,
                 job.newest_seq);
  }
  return answers;
}

}  // namespace trainyard::server
