#include "client/cli/array_view.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <optional>

#include "client/cli/array_spread.h"
#include "client/cli/job_view.h"
#include "client/cli/options.h"
#include "client/cli/relative_name.h"
#include "client/lib/follow.h"
#include "client/lib/names.h"
#include "src/base/text.h"
#include "src/base/wait_for_stop.h"

namespace trainyard::cli {
namespace {

constexpr client::Rpc<v1::GetArrayRequest, v1::JobArray> kGetArray{"JobService/GetArray"};

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPollFirst{200};
constexpr std::chrono::milliseconds kPollMax{2000};
constexpr size_t kValueCharsMax = 24;

int32_t count_of(const v1::JobArray& array, v1::JobState state) {
  for (const auto& count : array.states()) {
    if (count.state() == state) return count.count();
  }
  return 0;
}

/// The metric by which members are compared.
struct Measure {
  std::string metric;
  bool lower_is_better = false;
};

bool is_lower_better(const std::string& metric, v1::MetricMode mode) {
  if (mode != v1::METRIC_MODE_UNSPECIFIED) return mode == v1::MIN;
  const std::string last = metric.substr(metric.rfind('/') + 1);
  return last == "loss" || last == "mae" || last == "rmse" || last == "perplexity" ||
         last == "bits_per_byte";
}

/// Returns the metric by which the spec keeps the best model, or else the first of a fixed list
/// that a member has.
std::optional<Measure> measure_of(const v1::JobArray& array, const std::vector<v1::Job>& members) {
  const v1::KeepBest& keep = array.spec().recipe().keep_best();
  std::vector<std::string> keys = {"val/accuracy", "val/mae",   "val/loss",       "test/accuracy",
                                   "test/mae",     "test/loss", "train/accuracy", "train/loss"};
  if (!keep.metric().empty()) keys.insert(keys.begin(), keep.metric());
  for (const std::string& key : keys) {
    const bool there = std::ranges::any_of(
        members, [&](const v1::Job& job) { return job.progress().metrics().contains(key); });
    if (!there) continue;
    const bool is_kept = key == keep.metric();
    return Measure{key, is_lower_better(key, is_kept ? keep.mode() : v1::METRIC_MODE_UNSPECIFIED)};
  }
  return std::nullopt;
}

std::optional<double> value_of(const v1::Job& job, const Measure& measure) {
  const auto found = job.progress().metrics().find(measure.metric);
  if (found == job.progress().metrics().end() || !std::isfinite(found->second)) return std::nullopt;
  return found->second;
}

std::vector<const v1::Job*> ranked(const std::vector<v1::Job>& members,
                                   const std::optional<Measure>& measure) {
  std::vector<const v1::Job*> order;
  for (const v1::Job& job : members) order.push_back(&job);
  if (!measure) return order;
  std::ranges::stable_sort(order, [&](const v1::Job* a, const v1::Job* b) {
    const std::optional<double> x = value_of(*a, *measure), y = value_of(*b, *measure);
    if (!x || !y) return x.has_value() && !y.has_value();
    return measure->lower_is_better ? *x < *y : *x > *y;
  });
  return order;
}

std::string cut(std::string text) {
  if (text.size() > kValueCharsMax) text = text.substr(0, kValueCharsMax - 3) + "...";
  return text;
}

/// Returns the fields in which members differ, each with a title: the last part of its path, or the
/// whole path if that is not unique.
std::map<std::string, std::string> titles_of(const std::vector<v1::Job>& members) {
  std::map<std::string, std::string> titles;
  for (const v1::Job& job : members) {
    for (const auto& [path, value] : job.array_values()) titles.emplace(path, path);
  }
  std::map<std::string, int> ends;
  for (const auto& [path, title] : titles) ++ends[path.substr(path.rfind('.') + 1)];
  for (auto& [path, title] : titles) {
    const std::string end = path.substr(path.rfind('.') + 1);
    if (ends[end] == 1) title = end;
    title = safe_text(title);
  }
  return titles;
}

std::string render_members(const std::vector<const v1::Job*>& members,
                           const std::map<std::string, std::string>& titles,
                           const std::optional<Measure>& measure, bool colour) {
  std::vector<Column> columns = {{"MEMBER"}, {"STATE"}, {"DONE", true}};
  if (measure) columns.push_back({safe_text(measure->metric), true});
  for (const auto& [path, title] : titles) columns.push_back({title, true});
  Table table(std::move(columns));
  for (const v1::Job* job : members) {
    std::vector<Cell> cells = {std::string(relative_name(job->name())),
                               Cell(state_name(job->state()), state_style(job->state())),
                               progress_summary(*job)};
    if (measure) {
      const std::optional<double> value = value_of(*job, *measure);
      cells.emplace_back(value ? human_number(*value) : "");
    }
    for (const auto& [path, title] : titles) {
      const auto value = job->array_values().find(path);
      cells.emplace_back(value == job->array_values().end() ? "" : cut(value->second));
    }
    table.add(std::move(cells));
  }
  return table.render(colour);
}

}  // namespace

std::string states_text(const v1::JobArray& array) {
  std::string text;
  for (const v1::JobState state : {v1::RUNNING, v1::STARTING, v1::QUEUED, v1::PAUSED, v1::SUCCEEDED,
                                   v1::FAILED, v1::CANCELLED}) {
    const int32_t count = count_of(array, state);
    if (count > 0) text += (text.empty() ? "" : ", ") + grouped(count) + " " + state_name(state);
  }
  return text;
}

std::string render_arrays(const v1::ListArraysResponse& arrays, bool colour) {
  const bool owners = std::ranges::any_of(arrays.arrays(), [&](const v1::JobArray& array) {
    return array.owner() != arrays.arrays(0).owner();
  });
  std::vector<Column> columns = {{"ARRAY"}, {"MEMBERS", true}, {"STATES"}, {"AGE", true}};
  if (owners) columns.insert(columns.begin() + 1, {"OWNER"});
  Table table(std::move(columns));
  for (const v1::JobArray& array : arrays.arrays()) {
    std::vector<Cell> cells = {std::string(relative_name(array.name())), grouped(array.size()),
                               states_text(array), age_of(array.create_time())};
    if (owners) cells.insert(cells.begin() + 1, Cell(array.owner()));
    table.add(std::move(cells));
  }
  return table.render(colour);
}

std::string render_array(const v1::JobArray& array, const std::vector<v1::Job>& members,
                         int64_t limit, bool colour) {
  std::vector<std::pair<std::string, Cell>> fields;
  fields.emplace_back("array", std::string(relative_name(array.name())));
  fields.emplace_back("owner", array.owner());
  std::string count = grouped(array.size());
  if (!array.uid().empty() && std::ssize(members) < array.size()) {
    count += ", of which " + grouped(std::ssize(members)) + " are left";
  }
  fields.emplace_back("members", count);
  fields.emplace_back("states", states_text(array));
  fields.emplace_back("dataset", std::string(relative_name(array.spec().dataset().name())));
  fields.emplace_back("submitted", local_time(array.create_time()));
  fields.emplace_back("ended", local_time(array.end_time()));
  std::string out = render_fields(fields, colour);
  if (members.empty()) return out;
  const std::optional<Measure> measure = measure_of(array, members);
  std::vector<const v1::Job*> order = ranked(members, measure);
  if (std::ssize(order) > limit) order.resize(static_cast<size_t>(limit));
  const std::map<std::string, std::string> titles = titles_of(members);
  const std::string spread =
      measure ? render_spread(members, titles, measure->metric, colour) : std::string();
  if (!spread.empty()) out += "\n" + spread;
  return out + "\n" + render_members(order, titles, measure, colour);
}

int exit_code_of_array(const v1::JobArray& array) {
  if (count_of(array, v1::FAILED) > 0) return client::kExitFailed;
  return count_of(array, v1::CANCELLED) > 0 ? client::kExitCancelled : client::kExitOk;
}

std::string array_text(const v1::Job& job) {
  if (job.array().empty()) return "";
  std::string text =
      std::string(relative_name(job.array())) + ", number " + std::to_string(job.array_index());
  const std::map<std::string, std::string> values(job.array_values().begin(),
                                                  job.array_values().end());
  const char* join = ": ";
  for (const auto& [path, value] : values) {
    text += join + path + " = " + value;
    join = ", ";
  }
  return text;
}

Result<std::vector<v1::Job>> read_members(client::Client& server, const std::string& array) {
  v1::ListJobsRequest request;
  const std::string_view project = client::parent_of(array);
  request.set_parent(project.empty() ? server.parent() : std::string(project));
  request.set_array(array);
  request.set_page_size(1000);
  std::vector<v1::Job> members;
  do {
    ASSIGN_OR_RETURN(v1::ListJobsResponse page, server.call(client::rpc::kListJobs, request));
    for (v1::Job& job : *page.mutable_jobs()) members.push_back(std::move(job));
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  std::ranges::stable_sort(members, {}, &v1::Job::array_index);
  return members;
}

Status show_array(Session& session, const std::string& name, int64_t limit) {
  ASSIGN_OR_RETURN(client::Client * server, session.client());
  ASSIGN_OR_RETURN(const v1::JobArray array, server->call(kGetArray, name));
  std::vector<v1::Job> members;
  if (!session.machine()) {
    ASSIGN_OR_RETURN(members, read_members(*server, array.name()));
  }
  session.show(array, [&] { return render_array(array, members, limit, session.out().colour()); },
               {array.name()});
  if (std::ssize(members) > limit)
    session.hint("There are more members; raise --limit to see them.");
  return {};
}

Result<int> wait_for_array(Session& session, const std::string& name, double timeout_s) {
  if (!(timeout_s >= 0)) return usage_error("--timeout: expected a number of seconds above 0");
  ASSIGN_OR_RETURN(client::Client * server, session.client());
  const std::stop_token interrupted = session.interrupted();
  const auto begin = Clock::now();
  bool reported_paused = false;
  for (std::chrono::milliseconds pause = kPollFirst;; pause = std::min(pause * 2, kPollMax)) {
    ASSIGN_OR_RETURN(const v1::JobArray array, server->call(kGetArray, name));
    if (array.has_end_time()) return exit_code_of_array(array);
    const int32_t paused = count_of(array, v1::PAUSED);
    if (paused > 0 && !reported_paused && !session.machine()) {
      const std::string id = safe_text(relative_name(name));
      session.err().line(grouped(paused) + " members of " + id +
                         " are paused: 'trainyard array resume " + id + "' continues them.");
      reported_paused = true;
    }
    std::chrono::duration<double> rest = pause;
    if (timeout_s > 0) {
      rest = std::chrono::duration<double>(timeout_s) - (Clock::now() - begin);
      if (rest.count() <= 0) {
        return make_error(ErrorCode::kDeadlineExceeded, "WAIT_TIMEOUT",
                          std::string(relative_name(name)) + " has not ended within " +
                              human_duration(timeout_s) + "; it continues");
      }
      rest = std::min(rest, std::chrono::duration<double>(pause));
    }
    wait_for_stop(interrupted, rest);
    if (interrupted.stop_requested()) return static_cast<int>(client::kExitInterrupted);
  }
}

Result<std::string> find_array_named(client::Client& server, const std::string& job_name,
                                     const Error& error) {
  if (error.reason != "JOB_NOT_FOUND") return error;
  ASSIGN_OR_RETURN(const std::string name, client::full_name("arrays", client::short_name(job_name),
                                                             client::parent_of(job_name)));
  const Result<v1::JobArray> array = server.call(kGetArray, name);
  if (!array.ok()) return error;
  return name;
}

Error point_to_array(client::Client& server, const std::string& job_name, Error error,
                     const std::string& command) {
  const Result<std::string> array = find_array_named(server, job_name, error);
  if (!array.ok()) return error;
  const std::string id(relative_name(*array));
  error.message = id + " is an array of jobs, not a job: use 'trainyard array " + command + " " +
                  id + "' for all of its jobs, or '" + std::string(relative_name(job_name)) +
                  "-0' for the first one";
  return error;
}

}  // namespace trainyard::cli
