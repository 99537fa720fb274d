#include "server/cluster/slurm_placement.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <unordered_map>

#include "server/cluster/slurm_script.h"
#include "src/base/clock.h"

namespace trainyard::server {
namespace {

constexpr size_t kNamesOfOneCommandMax = 500;  // 100 KB; one argument may have at most 128 KB
constexpr int kNodesOfManyMax = 64;  // width in characters of a node list if there are many lines
constexpr size_t kQueriesByIdMax = 16;  // per observe(), because the controller is shared

constexpr int64_t kMinJobAgeWantedS = 180;  // queries are up to a minute apart, and one may fail

Error unavailable(const std::string& command, const CommandAnswer& answer) {
  return make_error(ErrorCode::kUnavailable, "SLURM_UNAVAILABLE",
                    command + ": " + describe(answer));
}

/// Returns the environment of Slurm's commands, which is only what they need: the daemon's
/// variables SBATCH_* and SQUEUE_* would act as options.
std::vector<std::string> environment_of_commands(const std::string& command) {
  std::vector<std::string> out{"LC_ALL=C"};
  for (const char* name : {"PATH", "SLURM_CONF", "HOME", "TZ"}) {
    if (const char* value = std::getenv(name)) out.push_back(std::string(name) + '=' + value);
  }
  if (command == "squeue") out.emplace_back("SLURM_TIME_FORMAT=%s");
  return out;
}

std::string joined(std::span<const std::string> words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : ",") + word;
  return out;
}

AttemptIntent sample_request(const SlurmProfile& profile) {
  AttemptIntent intent;
  intent.name = "ty-check";
  intent.gpus_per_node = profile.gpus_per_node;
  return intent;
}

}  // namespace

SlurmPlacement::SlurmPlacement(SlurmProfile profile)
    : profile_(std::move(profile)),
      user_(std::to_string(::geteuid())),
      cluster_(profile_.cluster) {}

CommandAnswer SlurmPlacement::run(const std::string& command, std::vector<std::string> arguments,
                                  std::string input) const {
  CommandRequest request;
  request.program = profile_.commands.empty() ? command : profile_.commands + '/' + command;
  request.arguments = std::move(arguments);
  request.environment = environment_of_commands(command);
  request.input = std::move(input);
  request.timeout_ms = profile_.command_timeout_ms;
  request.stop = stop_.get_token();
  return run_command(request);
}

SubmitAnswer SlurmPlacement::submit(const AttemptIntent& intent) {
  if (const Status valid = validate(intent); !valid.ok()) {
    return SubmitRefused{valid.error().message};
  }
  return submit_answer(
      run("sbatch", sbatch_arguments(profile_, intent), job_script(profile_, intent)), intent.name);
}

Result<std::vector<SlurmJob>> SlurmPlacement::list(std::span<const std::string> names) const {
  std::vector<std::string> arguments = {"--noheader", "--states=all", "--user=" + user_};
  SqueueWidths widths;
  if (names.size() <= kNamesOfOneCommandMax) {
    arguments.push_back("--name=" + joined(names));
  } else {
    // The column is so wide that a longer name, when squeue cuts it, equals none of `names`.
    widths.name = 2;
    for (const std::string& name : names) {
      widths.name = std::max(widths.name, static_cast<int>(name.size()) + 2);
    }
    widths.nodes = kNodesOfManyMax;
  }
  arguments.push_back("--Format=" + squeue_format(widths));
  const CommandAnswer answer = run("squeue", std::move(arguments));
  if (!answer.succeeded()) return unavailable("squeue", answer);
  return parse_squeue(answer.output);
}

Result<std::vector<Sighting>> SlurmPlacement::observe(std::span<const PlacementHandle> handles) {
  std::vector<Sighting> sightings;
  std::vector<PlacementHandle> absent;
  if (handles.empty()) return sightings;
  std::vector<std::string> names;
  for (const PlacementHandle& handle : handles) names.push_back(handle.name);
  ASSIGN_OR_RETURN(std::vector<SlurmJob> jobs, list(names));
  std::unordered_map<std::string, std::vector<SlurmJob>> by_name;
  for (SlurmJob& job : jobs) by_name[job.name].push_back(std::move(job));
  for (const PlacementHandle& handle : handles) {
    const auto found = by_name.find(handle.name);
    if (found == by_name.end()) {
      absent.push_back(handle);
    } else {
      sightings.push_back(fold_jobs(found->second));
    }
  }
  if (absent.empty()) return sightings;
  std::vector<Sighting> closer = query_absent(absent);
  std::move(closer.begin(), closer.end(), std::back_inserter(sightings));
  return sightings;
}

std::vector<Sighting> SlurmPlacement::query_absent(std::span<const PlacementHandle> absent) {
  // That a job is not listed does not prove that it has ended: another cluster, or a controller
  // that is starting, would return an empty list, too.
  if (!confirm_cluster().ok()) return {};
  size_t begin = 0;
  {
    const MutexLock lock(mu_);
    begin = next_absent_ % absent.size();
    next_absent_ = begin + kQueriesByIdMax;
  }
  std::vector<Sighting> sightings;
  const size_t count = std::min(absent.size(), kQueriesByIdMax);
  const int64_t until_us = system_clock().steady_us() + profile_.command_timeout_ms * 1000;
  for (size_t i = 0; i < count && system_clock().steady_us() < until_us; ++i) {
    if (auto seen = query_by_id(absent[(begin + i) % absent.size()])) sightings.push_back(*seen);
  }
  return sightings;
}

std::optional<Sighting> SlurmPlacement::query_by_id(const PlacementHandle& handle) const {
  const Sighting unseen{handle, Seen::kUnseen, {}, 0, {}, {}};
  if (handle.id.empty()) {
    // Query by name again, because there is no ID.
    const std::string names[] = {handle.name};
    Result<std::vector<SlurmJob>> jobs = list(names);
    if (!jobs.ok()) return std::nullopt;
    std::erase_if(*jobs, [&](const SlurmJob& job) { return job.name != handle.name; });
    return jobs->empty() ? unseen : fold_jobs(*jobs);
  }
  const CommandAnswer answer = run("squeue", {"--noheader", "--states=all", "--jobs=" + handle.id,
                                              "--Format=" + squeue_format()});
  if (says_no_such_job(answer)) return unseen;
  if (!answer.succeeded()) return std::nullopt;
  const Result<std::vector<SlurmJob>> jobs = parse_squeue(answer.output);
  if (!jobs.ok()) return std::nullopt;
  for (const SlurmJob& job : *jobs) {
    if (job.id != handle.id) continue;
    // A job with another name has reused the ID, so ours no longer exists.
    return job.name == handle.name ? fold_jobs({&job, 1}) : unseen;
  }
  return std::nullopt;  // success without any job: squeue responded to something else
}

Result<std::string> SlurmPlacement::confirm_cluster() {
  const CommandAnswer answer = run("scontrol", {"show", "config"});
  if (!answer.succeeded()) return unavailable("scontrol show config", answer);
  const std::string name = config_value(answer.output, "ClusterName");
  if (name.empty()) {
    return make_error(ErrorCode::kUnavailable, "SLURM_ANSWER_UNREADABLE",
                      "scontrol show config printed no ClusterName");
  }
  const MutexLock lock(mu_);
  if (cluster_.empty()) cluster_ = name;
  if (cluster_ == name) return answer.output;
  return make_error(ErrorCode::kUnavailable, "SLURM_OTHER_CLUSTER",
                    "slurm." + profile_.name + ".cluster: the cluster here is '" + name +
                        "', expected '" + cluster_ + "'");
}

Status SlurmPlacement::withdraw(const PlacementHandle& handle) {
  // Cancel by name and never by ID: another job may have reused the ID, and a second submission has
  // a different one.
  if (!is_placement_name(handle.name)) {
    return field_error("PLACEMENT_FIELD_INVALID", "name", "is not a valid name of an attempt");
  }
  const CommandAnswer answer =
      run("scancel", {"--quiet", "--user=" + user_, "--name=" + handle.name});
  if (!answer.succeeded()) return unavailable("scancel", answer);
  return {};
}

Result<std::optional<PlacementHandle>> SlurmPlacement::find(const std::string& name) {
  const std::string names[] = {name};
  ASSIGN_OR_RETURN(std::vector<SlurmJob> jobs, list(names));
  std::erase_if(jobs, [&](const SlurmJob& job) { return job.name != name; });
  if (!jobs.empty()) return std::optional(fold_jobs(jobs).handle);
  if (const auto confirmed = confirm_cluster(); !confirmed.ok()) return confirmed.error();
  return std::optional<PlacementHandle>();
}

std::string SlurmPlacement::explain(const PlacementHandle& handle) {
  if (handle.id.empty()) return {};
  const CommandAnswer shown = run("scontrol", {"--oneliner", "show", "job", handle.id});
  if (shown.succeeded() && field_value(shown.output, "JobName") == handle.name) {
    return "Slurm job " + handle.id + ": " + field_value(shown.output, "JobState") + ", reason " +
           field_value(shown.output, "Reason") + ", exit code " +
           field_value(shown.output, "ExitCode") + ", node " +
           field_value(shown.output, "NodeList");
  }
  // The controller has deleted the job's record; accounting, if enabled, still has it.
  const CommandAnswer config = run("scontrol", {"show", "config"});
  const std::string storage = config_value(config.output, "AccountingStorageType");
  if (!config.succeeded() || storage.empty() || storage.ends_with("/none")) return {};
  const CommandAnswer kept =
      run("sacct", {"--noheader", "--parsable2", "--allocations", "--jobs=" + handle.id,
                    "--name=" + handle.name, "--format=State,ExitCode,NodeList"});
  if (!kept.succeeded() || kept.output.empty()) return {};
  const std::string line = kept.output.substr(0, kept.output.find('\n'));
  return "Slurm job " + handle.id +
         " according to its accounting (state|exit code|nodes): " + printable(line);
}

PlacementCheck SlurmPlacement::check() {
  const std::string prefix = "slurm." + profile_.name + ": ";
  const CommandAnswer version = run("sbatch", {"--version"});
  if (!version.succeeded()) {
    return {prefix + "warning: sbatch --version: " + describe(version) + "\n", {}};
  }
  const std::string text = printable(version.output.substr(0, version.output.find('\n')), 80);
  std::string out = prefix + text;
  const Result<std::string> confirmed = confirm_cluster();
  {
    const MutexLock lock(mu_);
    if (confirmed.ok()) out += ", cluster '" + cluster_ + "'";
  }
  out += '\n';
  if (!confirmed.ok()) return {out + prefix + "warning: " + confirmed.error().message + "\n", {}};
  if (const std::string warning = version_warning(text); !warning.empty()) {
    out += prefix + "warning: " + warning + "\n";
  }
  const auto kept_s = config_seconds(config_value(*confirmed, "MinJobAge"));
  if (kept_s && *kept_s < kMinJobAgeWantedS) {
    out += prefix + "warning: MinJobAge is " + std::to_string(*kept_s) +
           " s, so Slurm may forget how an attempt ended before the daemon queries it; expected " +
           std::to_string(kMinJobAgeWantedS) + " or more\n";
  }
  const std::string names[] = {"ty-check"};
  if (const auto listed = list(names); !listed.ok()) {
    out += prefix + "warning: " + listed.error().message + "\n";
  }
  std::vector<std::string> arguments = sbatch_arguments(profile_, sample_request(profile_));
  arguments.insert(arguments.begin(), "--test-only");
  const CommandAnswer tested = run("sbatch", std::move(arguments), "#!/bin/sh\n");
  if (tested.succeeded()) {
    return {out + prefix + "a request of one node would be accepted\n", {}};
  }
  out += prefix + "warning: a request of one node, " + std::to_string(profile_.gpus_per_node) +
         " GPUs is not accepted: " + describe(tested) + "\n";
  // Only a refusal of the profile's own settings keeps jobs in the daemon's queue. Any other error
  // counts only when it is the response to a real request.
  return {std::move(out), profile_refusal(tested)};
}

}  // namespace trainyard::server
