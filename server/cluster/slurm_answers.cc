#include "server/cluster/slurm_answers.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

namespace trainyard::server {
namespace {

struct Column {
  std::string_view field;
  int width;
};
// Names of attempts have at most 200 bytes. Node lists may be cut, because only people read them.
constexpr std::array kColumns{
    Column{"JobID", 20},     Column{"Name", 256},     Column{"State", 24}, Column{"RestartCnt", 12},
    Column{"StartTime", 24}, Column{"NodeList", 256}, Column{"Reason", 64}};
// The names of other users' jobs do not contain it. squeue shows such a job if it has reused an ID
// of ours.
constexpr char kSeparator = '\x1f';

/// Errors that may mean that the controller has accepted a job although its response was lost, or
/// that it was temporarily unavailable. They prove nothing.
constexpr std::array<std::string_view, 16> kCommunication{
    "timed out",          "timeout",
    "Unable to contact",  "communication",
    "connection failure", "connect failure",
    "Connection refused", "Connection reset",
    "Zero Bytes",         "Transport endpoint",
    "authentication",     "Insane message length",
    "Unexpected message", "not responding",
    "temporarily unable", "standby",
};

/// Temporary refusals: limits on queued jobs, and nodes that are not available.
constexpr std::array<std::string_view, 6> kForNow{"QOS policy",        "submit limit",
                                                  "not available now", "down, drained",
                                                  "inactive or drain", "not usable now"};

/// Refusals of names in the profile, which do not depend on the job.
constexpr std::array<std::string_view, 10> kOfProfile{
    "invalid partition",  // 22.05 uses both spellings
    "Invalid partition",
    "Invalid account",
    "Invalid qos",
    "No partition specified",
    "reservation is invalid",
    "Access denied to requested reservation",
    "not permitted to use this partition",
    "Access/permission denied",
    "Invalid user id",
};

/// States in which the attempt has no nodes yet. A state in neither list, such as one of a later
/// release, is treated as having nodes, which is the safe assumption.
constexpr std::array<std::string_view, 5> kWaitingStates{"PENDING", "REQUEUED", "REQUEUE_HOLD",
                                                         "REQUEUE_FED", "RESV_DEL_HOLD"};
constexpr std::array<std::string_view, 9> kEndedStates{"COMPLETED", "CANCELLED", "FAILED",
                                                       "TIMEOUT",   "PREEMPTED", "NODE_FAIL",
                                                       "BOOT_FAIL", "DEADLINE",  "OUT_OF_MEMORY"};

bool contains(std::span<const std::string_view> words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

bool mentions(std::string_view text, std::span<const std::string_view> phrases) {
  return std::any_of(phrases.begin(), phrases.end(), [&](std::string_view phrase) {
    return text.find(phrase) != std::string_view::npos;
  });
}

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

/// Removes the first line from `text` and returns it.
std::string_view take_line(std::string_view& text) {
  const size_t end = text.find('\n');
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return line;
}

std::optional<int64_t> number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

bool is_printable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

std::optional<SlurmJob> parse_line(std::string_view line) {
  std::array<std::string_view, kColumns.size()> fields;
  for (std::string_view& field : fields) {
    const size_t end = line.find(kSeparator);
    if (end == std::string_view::npos) return std::nullopt;
    field = trimmed(line.substr(0, end));
    line.remove_prefix(end + 1);
  }
  const auto [id, name, state, restarts, start, nodes, reason] = fields;
  const std::optional<int64_t> id_number = number(id), count = number(restarts);
  const bool is_word = !state.empty() && std::all_of(state.begin(), state.end(), [](char c) {
    return (c >= 'A' && c <= 'Z') || c == '_';
  });
  if (!trimmed(line).empty() || !id_number || *id_number == 0 || !count || !is_word ||
      !is_printable(nodes) || !is_printable(reason)) {
    return std::nullopt;
  }
  SlurmJob job{std::string(id),    std::string(name),  std::string(state), *count, 0,
               std::string(nodes), std::string(reason)};
  job.start_s = std::min<int64_t>(number(start).value_or(0), 1'000'000'000'000);  // 0 for N/A
  return job;
}

// If there are several jobs, the one with the highest stage counts.
enum class Stage : uint8_t { kEnded, kWaiting, kGranted };

Stage stage_of(const SlurmJob& job) {
  if (contains(kEndedStates, job.state)) return Stage::kEnded;
  // While a job is COMPLETING, its processes are being ended. In other states it has been restarted
  // or will be: the attempt's own processes have ended, and the restarted script exits immediately.
  if (job.restarts > 0 && job.state != "COMPLETING") return Stage::kEnded;
  return contains(kWaitingStates, job.state) ? Stage::kWaiting : Stage::kGranted;
}

std::string how_it_ended(const SlurmJob& job) {
  if (!contains(kEndedStates, job.state)) return "REQUEUED";
  std::string how = job.state;
  if (job.restarts > 0) how += ", after a requeue";
  if (!job.reason.empty() && job.reason != "None") how += " (" + job.reason + ")";
  return how;
}

}  // namespace

std::string squeue_format(SqueueWidths widths) {
  std::string format;
  for (Column column : kColumns) {
    if (column.field == "Name") column.width = widths.name;
    if (column.field == "NodeList") column.width = widths.nodes;
    if (!format.empty()) format += ',';
    format += std::string(column.field) + ':' + std::to_string(column.width) + kSeparator;
  }
  return format;
}

Result<std::vector<SlurmJob>> parse_squeue(std::string_view text) {
  std::vector<SlurmJob> jobs;
  while (!text.empty()) {
    const std::string_view line = take_line(text);
    if (trimmed(line).empty()) continue;
    std::optional<SlurmJob> job = parse_line(line);
    if (!job) {
      return make_error(ErrorCode::kUnavailable, "SLURM_ANSWER_UNREADABLE",
                        "squeue printed a line that is not in the requested format: '" +
                            printable(line, 120) + "'");
    }
    jobs.push_back(*std::move(job));
  }
  return jobs;
}

Sighting fold_jobs(std::span<const SlurmJob> jobs) {
  const SlurmJob* best = &jobs.front();
  for (const SlurmJob& job : jobs) {
    // If several jobs are in the same stage, the first submitted one counts: the others wait for
    // it.
    if (stage_of(job) > stage_of(*best)) best = &job;
    if (stage_of(job) == stage_of(*best) && number(job.id) < number(best->id)) best = &job;
  }
  Sighting sighting;
  sighting.handle = {best->id, best->name};
  sighting.start_estimate_us = best->start_s * 1'000'000;
  const std::string reason = best->reason == "None" ? "" : best->reason;
  switch (stage_of(*best)) {
    case Stage::kWaiting:
      sighting.seen = Seen::kWaiting;
      sighting.reason = reason;
      break;
    case Stage::kGranted:
      sighting.seen = Seen::kGranted;
      sighting.nodes = best->nodes;
      if (best->state != "RUNNING") sighting.reason = best->state;
      break;
    case Stage::kEnded:
      sighting.seen = Seen::kEnded;
      sighting.nodes = best->nodes;
      sighting.how = how_it_ended(*best);
  }
  return sighting;
}

namespace {

/// Returns all errors of sbatch in one line. The last one is the decision, those before it are
/// details.
std::string complaints(std::string_view errors) {
  errors = trimmed(errors);
  std::string all;
  while (!errors.empty() && all.size() < 500) {
    const std::string_view line = trimmed(take_line(errors));
    if (line.empty()) continue;
    if (!all.empty()) all += "; ";
    all += printable(line.starts_with("sbatch: ") ? line.substr(8) : line);
  }
  return all;
}

SubmitRefused::Cause cause_of(std::string_view text) {
  // `fatal:` is an error of Slurm on this host, such as a missing configuration, and not of the
  // job.
  constexpr std::string_view kFatal[] = {"fatal:"};
  if (mentions(text, kFatal) || mentions(text, kForNow)) return SubmitRefused::Cause::kNow;
  return mentions(text, kOfProfile) ? SubmitRefused::Cause::kCluster
                                    : SubmitRefused::Cause::kRequest;
}

}  // namespace

SubmitAnswer submit_answer(const CommandAnswer& answer, const std::string& name) {
  using End = CommandAnswer::End;
  const std::string text = "sbatch: " + describe(answer);
  if (answer.end == End::kNotStarted) return SubmitRefused{text, SubmitRefused::Cause::kNow};
  if (answer.end != End::kExited) return SubmitUnknown{text};
  if (answer.number == 0) {
    // The output is `17`, or `17;cluster` if there are several clusters; some sites print other
    // lines before it.
    std::string_view last = trimmed(answer.output);
    if (const size_t end = last.rfind('\n'); end != std::string_view::npos) {
      last = trimmed(last.substr(end + 1));
    }
    const std::string_view id = last.substr(0, last.find(';'));
    if (number(id).value_or(0) > 0) return Submitted{{std::string(id), name}};
    return SubmitUnknown{"sbatch succeeded, but printed no job id: '" + printable(last, 80) + "'"};
  }
  const bool is_slurms = answer.errors.find("error:") != std::string::npos ||
                         answer.errors.find("fatal:") != std::string::npos;
  if (!is_slurms || mentions(answer.errors, kCommunication)) return SubmitUnknown{text};
  std::string all = complaints(answer.errors);
  const SubmitRefused::Cause cause = cause_of(all);
  return SubmitRefused{std::move(all), cause};
}

std::string profile_refusal(const CommandAnswer& answer) {
  if (answer.end != CommandAnswer::End::kExited || answer.number == 0) return {};
  if (mentions(answer.errors, kCommunication)) return {};
  std::string all = complaints(answer.errors);
  return cause_of(all) == SubmitRefused::Cause::kCluster ? all : std::string();
}

bool says_no_such_job(const CommandAnswer& answer) {
  return answer.end == CommandAnswer::End::kExited && answer.number != 0 &&
         answer.errors.find("Invalid job id specified") != std::string::npos &&
         !mentions(answer.errors, kCommunication);
}

std::string config_value(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    const std::string_view line = take_line(text);
    const size_t equals = line.find('=');
    if (equals != std::string_view::npos && trimmed(line.substr(0, equals)) == key) {
      return printable(trimmed(line.substr(equals + 1)), 128);
    }
  }
  return {};
}

std::optional<int64_t> config_seconds(std::string_view value) {
  if (!value.ends_with(" sec")) return std::nullopt;
  return number(value.substr(0, value.size() - 4));
}

std::string field_value(std::string_view line, std::string_view key) {
  const std::string wanted = std::string(key) + '=';
  for (size_t at = line.find(wanted); at != std::string_view::npos;
       at = line.find(wanted, at + 1)) {
    if (at > 0 && line[at - 1] != ' ' && line[at - 1] != '\n') continue;
    const std::string_view value = line.substr(at + wanted.size());
    return printable(value.substr(0, value.find_first_of(" \n")), 256);
  }
  return {};
}

std::string version_warning(std::string_view version) {
  const size_t space = version.rfind(' ');
  const std::string_view number_text =
      trimmed(space == std::string_view::npos ? version : version.substr(space + 1));
  for (const std::string_view faulty : {"22.05.5", "22.05.6", "22.05.7", "22.05.8"}) {
    if (number_text == faulty) {
      return "Slurm " + std::string(faulty) +
             " may refuse requests that it could run with \"Requested node configuration is not "
             "available\"; fixed in 22.05.9 and 23.02";
    }
  }
  return {};
}

}  // namespace trainyard::server
