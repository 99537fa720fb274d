// trainyard list: lists jobs, newest first, and what they are waiting for.
#include <algorithm>
#include <memory>
#include <set>

#include "client/cli/array_view.h"
#include "client/cli/command.h"
#include "client/cli/job_view.h"
#include "client/cli/list_limit.h"
#include "client/cli/reason_notes.h"
#include "client/cli/relative_name.h"
#include "client/lib/names.h"
#include "src/base/text.h"

namespace trainyard::cli {
namespace {

constexpr int64_t kJobsPerPage = 1000;
constexpr int64_t kJobsOnScreen = 50;
constexpr const char* kMe = "me";
constexpr const char* kAllProjects = "projects/-";

struct ListOptions {
  std::vector<std::string> states;
  std::string owner;
  std::string array;
  std::vector<std::string> labels;  // KEY=VALUE
  bool members = false;
  bool all_projects = false;
  ListLimit limit;

  /// Returns whether jobs are filtered. Members of arrays are then listed like other jobs.
  bool filters() const {
    return !states.empty() || !owner.empty() || !array.empty() || !labels.empty() || all_projects;
  }
};

Status add_label(const std::string& text, v1::ListJobsRequest& request) {
  const size_t equals = text.find('=');
  if (equals == 0 || equals == std::string::npos) {
    return usage_error("--label: " + quoted_value(text) + ", expected KEY=VALUE");
  }
  const std::string key = text.substr(0, equals), value = text.substr(equals + 1);
  const auto [asked, is_new] = request.mutable_labels()->insert({key, value});
  if (is_new || asked->second == value) return {};
  return usage_error("--label: " + quoted_value(key) + " is given twice, expected one value");
}

Result<v1::JobState> parse_state(const std::string& text) {
  std::string upper = text;
  std::transform(upper.begin(), upper.end(), upper.begin(), ::toupper);
  v1::JobState state{};
  if (v1::JobState_Parse(upper, &state) && state != v1::JOB_STATE_UNSPECIFIED) return state;
  return usage_error("--state: " + quoted_value(text) +
                     " is not known, expected queued, starting, running, paused, "
                     "succeeded, failed or cancelled");
}

/// Returns whether the jobs have more than one owner.
bool owners_differ(const v1::ListJobsResponse& jobs) {
  return std::ranges::any_of(
      jobs.jobs(), [&](const v1::Job& job) { return job.owner() != jobs.jobs(0).owner(); });
}

/// Returns why a job is in its state, if that is not what everyone expects.
std::string reason_of(const v1::Job& job) {
  const bool runs_well = job.state() == v1::RUNNING && job.reason() != "STORAGE_FULL";
  if (job.cancel_requested() && !client::is_terminal(job.state())) return "cancel requested";
  if (job.state() == v1::SUCCEEDED || runs_well) return "";
  return job.message().empty() ? job.reason() : job.message();
}

/// `reasons`: whether the table has a column of reasons.
Table table_of(const v1::ListJobsResponse& jobs, bool wide, bool reasons) {
  const bool owners = wide || owners_differ(jobs);
  constexpr int kOneMetric = 20;  // the width of one metric: "val/accuracy 0.8439…"
  std::vector<Column> columns = {{.title = "NAME", .is_name = true},
                                 {"STATE"},
                                 {"DONE", true},
                                 {.title = "METRICS", .shortens = true, .shortest = kOneMetric},
                                 {"AGE", true}};
  if (wide) {
    columns.insert(columns.end(), {{"DEVICE"},
                                   {"DATASET"},
                                   {.title = "LABELS", .shortens = true},
                                   {"PRIORITY", true},
                                   {"ATTEMPT", true}});
  }
  if (reasons) columns.push_back({.title = "REASON", .shortens = true});
  if (owners) columns.insert(columns.begin() + 1, {"OWNER"});
  Table table(columns);
  for (const v1::Job& job : jobs.jobs()) {
    std::vector<Cell> cells = {std::string(relative_name(job.name())),
                               Cell(state_name(job.state()), state_style(job.state())),
                               progress_summary(job),
                               metric_summary(job.progress().metrics(), job.progress().baselines()),
                               age_of(job.create_time())};
    if (wide) {
      cells.insert(cells.end(),
                   {devices_text(job.device(), job.devices()),
                    std::string(relative_name(job.spec().dataset().name())), labels_text(job),
                    std::to_string(job.priority()), std::to_string(job.attempt())});
    }
    if (owners) cells.insert(cells.begin() + 1, owner_text(job));
    if (reasons) cells.emplace_back(reason_of(job));
    table.add(std::move(cells));
  }
  return table;
}

/// Shows reasons in a column if the terminal is wide enough, else once each below the table.
std::string render(const v1::ListJobsResponse& jobs, bool wide, const Terminal& out) {
  const Table whole = table_of(jobs, wide, true);
  const int width = out.line_width();
  if (width <= 0 || whole.natural_width() <= width) return whole.render(out);
  ReasonNotes notes;
  for (const v1::Job& job : jobs.jobs()) {
    notes.add(std::string(relative_name(job.name())), reason_of(job));
  }
  const std::string below = notes.empty() ? "" : "\n" + notes.render(width);
  return table_of(jobs, wide, false).render(out) + below;
}

/// Reads the arrays; the list shows one line for each array in place of its members.
Result<v1::ListArraysResponse> read_arrays(client::Client& server, int64_t limit) {
  v1::ListArraysRequest request;
  request.set_parent(server.parent());
  v1::ListArraysResponse all;
  do {
    const int64_t wanted = limit - all.arrays_size();
    request.set_page_size(static_cast<int32_t>(std::min<int64_t>(wanted, kJobsPerPage)));
    ASSIGN_OR_RETURN(v1::ListArraysResponse page, server.call(client::rpc::kListArrays, request));
    for (v1::JobArray& array : *page.mutable_arrays()) *all.add_arrays() = std::move(array);
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty() && all.arrays_size() < limit);
  all.set_next_page_token(request.page_token());
  return all;
}

/// Reads the jobs that hold devices, which a terminal shows first: otherwise any number of waiting
/// jobs, which are newer, would push them off the screen.
Result<v1::ListJobsResponse> read_active(client::Client& server, v1::ListJobsRequest request,
                                         int64_t limit) {
  request.add_states(v1::STARTING);
  request.add_states(v1::RUNNING);
  request.set_page_size(static_cast<int32_t>(std::min<int64_t>(limit, kJobsPerPage)));
  ASSIGN_OR_RETURN(v1::ListJobsResponse active, server.call(client::rpc::kListJobs, request));
  active.clear_next_page_token();
  return active;
}

Result<int> run_list(Session& session, const ListOptions& options) {
  v1::ListJobsRequest request;
  for (const std::string& text : options.states) {
    ASSIGN_OR_RETURN(const v1::JobState state, parse_state(text));
    request.add_states(state);
  }
  if (options.owner == kMe) {
    request.set_mine(true);
  } else {
    request.set_owner(options.owner);
  }
  ASSIGN_OR_RETURN(const int64_t limit, options.limit.count(session));
  for (const std::string& label : options.labels) {
    if (Status s = add_label(label, request); !s.ok()) return std::move(s).error();
  }
  ASSIGN_OR_RETURN(client::Client * server, session.client());
  const std::string_view array_project = client::parent_of(options.array);
  request.set_parent(options.all_projects    ? kAllProjects
                     : array_project.empty() ? server->parent()
                                             : std::string(array_project));
  request.set_array(options.array);
  v1::ListArraysResponse arrays;
  if (!session.machine() && !options.members && !options.filters()) {
    ASSIGN_OR_RETURN(arrays, read_arrays(*server, limit));
    request.set_no_members(arrays.arrays_size() > 0);
  }
  const bool only_names = session.format() == Format::kName;
  v1::ListJobsResponse all;
  std::vector<std::string> names;
  if (session.out().is_terminal() && !session.machine() && request.states().empty()) {
    ASSIGN_OR_RETURN(all, read_active(*server, request, limit));
    for (const v1::Job& job : all.jobs()) names.push_back(job.name());
  }
  const std::set<std::string> active(names.begin(), names.end());
  do {
    const int64_t wanted = limit - std::ssize(names);
    request.set_page_size(static_cast<int32_t>(std::min<int64_t>(wanted, kJobsPerPage)));
    ASSIGN_OR_RETURN(v1::ListJobsResponse page, server->call(client::rpc::kListJobs, request));
    for (v1::Job& job : *page.mutable_jobs()) {
      if (active.contains(job.name())) continue;
      names.push_back(job.name());
      if (!only_names) *all.add_jobs() = std::move(job);  // names need a hundredth of the memory
    }
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty() && std::ssize(names) < limit);
  const bool more = !request.page_token().empty();
  const bool empty = names.empty();
  session.show(
      all,
      [&] {
        const bool colour = session.out().colour();
        std::string text = arrays.arrays_size() > 0 ? render_arrays(arrays, colour) : "";
        if (!text.empty() && !empty) text += "\n";
        return empty ? text : text + render(all, session.format() == Format::kWide, session.out());
      },
      names);
  if (empty && arrays.arrays_size() == 0)
    session.hint(options.filters() ? "No matching jobs."
                                   : "No jobs yet. 'trainyard submit SPEC' creates one.");
  if (!arrays.next_page_token().empty()) {
    session.hint("There are more arrays; 'trainyard array list' shows them.");
  }
  if (more) session.hint("There are more; raise --limit to see them.");
  return static_cast<int>(client::kExitOk);
}

}  // namespace

Command list_command() {
  auto o = std::make_shared<ListOptions>();
  return {
      "list",
      "List jobs, newest first, and what they are waiting for",
      {"trainyard list", "trainyard list --state running --state queued",
       "trainyard list --owner me", "trainyard list --all-projects", "trainyard list --array sweep",
       "trainyard list --label team=vision", "trainyard list -o name"},
      "An array of jobs is one line, with the states of its members. Its members are listed "
      "with --members, if\n--array, --state, --owner, --label or --all-projects selects jobs, and "
      "in formats "
      "for programs.",
      [o](OptionSet& options) {
        options.texts(
            "--state", "STATE", o->states, "only jobs in this state; may be given several times",
            {"queued", "starting", "running", "paused", "succeeded", "failed", "cancelled"});
        options.text("--owner", "NAME", o->owner, "only jobs of this owner; me: your own jobs");
        options.text("--array", "NAME", o->array, "only the members of this array");
        options.texts("--label", "KEY=VALUE", o->labels,
                      "only jobs with this label; several times: with all of them");
        options.flag("--all-projects", o->all_projects,
                     "the jobs of all projects that you may see");
        options.flag("--members", o->members, "also the members of arrays");
        o->limit.add_option(options, "jobs", kJobsOnScreen);
      },
      [o](Session& session) { return run_list(session, *o); }};
}

}  // namespace trainyard::cli
