// trainyard queue: lists the waiting jobs, when each is expected to start and to end, and what it
// waits for.
#include <algorithm>
#include <ctime>
#include <memory>
#include <vector>

#include "client/cli/command.h"
#include "client/cli/job_label.h"
#include "client/cli/list_limit.h"
#include "client/cli/reason_notes.h"
#include "client/cli/relative_name.h"
#include "client/cli/time_range.h"
#include "client/lib/names.h"

namespace trainyard::cli {
namespace {

constexpr int64_t kQueueOnScreen = 100;
constexpr int64_t kQueueShownMax = 1000;  // the server computes the starts of that many

struct QueueOptions {
  std::string job;
  ListLimit limit;
};

std::string reason_of(const v1::QueuedJob& job) {
  if (job.other_project()) return "";
  return job.message().empty() ? "the next scheduling pass" : job.message();
}

/// `reasons`: whether the table has a column of reasons.
Table table_of(const v1::ListQueueResponse& queue, std::string_view parent, bool wide,
               bool reasons) {
  const bool owners = wide || std::ranges::any_of(queue.jobs(), [&](const v1::QueuedJob& job) {
                        return job.owner() != queue.jobs(0).owner();
                      });
  std::vector<Column> columns = {{"POSITION", true},
                                 {.title = "NAME", .is_name = true},
                                 {"PRIORITY", true},
                                 {.title = "STARTS", .shortens = true},
                                 {.title = "ENDS", .shortens = true},
                                 {"DEVICE"}};
  if (reasons) columns.push_back({.title = "WAITS FOR", .shortens = true});
  if (owners) columns.insert(columns.begin() + 2, {"OWNER"});
  Table table(std::move(columns));
  const int64_t now_s = std::time(nullptr);
  for (const v1::QueuedJob& job : queue.jobs()) {
    std::vector<Cell> cells = {job.position() > 0 ? std::to_string(job.position()) : "",
                               job_label(job.name(), parent),
                               std::to_string(job.priority()),
                               job.has_start() ? when(job.start(), now_s) : "",
                               job.has_end() ? when(job.end(), now_s) : "",
                               std::string(relative_name(job.device()))};
    if (reasons) cells.emplace_back(reason_of(job));
    if (owners) cells.insert(cells.begin() + 2, job.owner());
    table.add(std::move(cells));
  }
  return table;
}

/// Shows reasons in a column if the terminal is wide enough, else once each below the table.
std::string render(const v1::ListQueueResponse& queue, std::string_view parent, bool wide,
                   const Terminal& out) {
  const Table whole = table_of(queue, parent, wide, true);
  const int width = out.line_width();
  if (width <= 0 || whole.natural_width() <= width) return whole.render(out);
  ReasonNotes notes;
  for (const v1::QueuedJob& job : queue.jobs()) {
    notes.add(job_label(job.name(), parent), reason_of(job));
  }
  return table_of(queue, parent, wide, false).render(out) + "\n" + notes.render(width);
}

Result<int> run_queue(Session& session, const QueueOptions& options) {
  ASSIGN_OR_RETURN(const int64_t limit, options.limit.count(session));
  v1::ListQueueRequest request;
  request.set_page_size(static_cast<int32_t>(std::min(limit, kQueueShownMax)));
  if (!options.job.empty()) {
    ASSIGN_OR_RETURN(*request.mutable_name(), session.full_name("jobs", options.job));
  }
  ASSIGN_OR_RETURN(client::Client * server, session.client());
  request.set_parent(options.job.empty() ? server->parent()
                                         : std::string(client::parent_of(request.name())));
  ASSIGN_OR_RETURN(const v1::ListQueueResponse queue,
                   server->call(client::rpc::kListQueue, request));
  std::vector<std::string> names;
  for (const v1::QueuedJob& job : queue.jobs()) {
    if (!job.other_project()) names.push_back(job.name());
  }
  const bool empty = queue.jobs().empty();
  session.show(
      queue,
      [&] {
        return empty ? std::string()
                     : render(queue, server->parent(), session.format() == Format::kWide,
                              session.out());
      },
      names);
  if (empty) {
    session.hint(options.job.empty() ? "No job waits for a device."
                                     : options.job + " does not wait: 'trainyard get " +
                                           options.job + "' shows its state.");
  } else if (options.job.empty() && queue.waiting() > queue.jobs_size()) {
    const std::string some = "the first " + grouped(queue.jobs_size()) + " of " +
                             grouped(queue.waiting()) + " waiting jobs";
    if (limit < kQueueShownMax) {
      session.hint(some + "; raise --limit to see more.");
    } else {
      session.err().line(some + "; 'trainyard list --state queued' lists all");
    }
  }
  return static_cast<int>(client::kExitOk);
}

}  // namespace

Command queue_command() {
  auto o = std::make_shared<QueueOptions>();
  return {"queue",
          "Show the queue: positions, expected starts and ends, and what each job waits for",
          {"trainyard queue", "trainyard queue digits-1",
           "trainyard queue -o json | jq '.jobs[0].start.likely'"},
          "",
          [o](OptionSet& options) {
            options.positional("JOB", o->job, "only this job", false);
            o->limit.add_option(options, "jobs (of at most 1000)", kQueueOnScreen);
          },
          [o](Session& session) { return run_queue(session, *o); }};
}

}  // namespace trainyard::cli
