// server/cluster/slurm_answers.h: parses the output of Slurm's commands. Pure.
//
// Slurm's texts change from release to release, so little of them is used: single fields of squeue,
// requested with widths, because older releases cut fields without widths at 20 characters; a
// number of sbatch; and from errors a few phrases that leave open whether a job exists.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/cluster/command.h"
#include "server/cluster/placement.h"
#include "src/base/result.h"

namespace trainyard::server {

/// A line of squeue.
struct SlurmJob {
  std::string id;
  std::string name;
  std::string state;  // PENDING, RUNNING, ...
  int64_t restarts = 0;
  int64_t start_s = 0;  // since 1970; 0: not known
  std::string nodes;
  std::string reason;  // "None" if there is none
};

/// The value of squeue's --Format for SlurmJob. squeue also needs SLURM_TIME_FORMAT=%s in its
/// environment. It cuts values that are longer than their widths.
struct SqueueWidths {
  int name = 256;  // names of attempts have at most 200 bytes
  int nodes = 256;
};
std::string squeue_format(SqueueWidths widths = {});

/// Parses all lines. UNAVAILABLE/SLURM_ANSWER_UNREADABLE with the first malformed line.
Result<std::vector<SlurmJob>> parse_squeue(std::string_view text);

/// Combines all jobs with one name, of which there must be at least one, into one sighting. A
/// duplicate counts as much as the first job: a running job hides waiting ones, and a waiting job
/// hides ended ones.
Sighting fold_jobs(std::span<const SlurmJob> jobs);

/// Converts sbatch's result for the job with this name.
SubmitAnswer submit_answer(const CommandAnswer& answer, const std::string& name);

/// Returns the text with which sbatch, also with --test-only, refuses the profile itself: a
/// partition, an account, a QOS or a reservation that does not exist or is not open to this user.
/// Empty for any other result.
std::string profile_refusal(const CommandAnswer& answer);

/// Returns whether squeue, queried for one ID, reported that there is no such job. Any other
/// failure is no evidence.
bool says_no_such_job(const CommandAnswer& answer);

/// Returns the value of `key` in the output of `scontrol show config` (lines such as `Key = value`)
/// or in a line of `scontrol show job --oneliner` (`Key=value`); empty if it is missing.
std::string config_value(std::string_view text, std::string_view key);
std::string field_value(std::string_view line, std::string_view key);

/// Returns the number of seconds in a text such as `300 sec`; nothing for any other text.
std::optional<int64_t> config_seconds(std::string_view value);

/// Returns a warning about a Slurm release with a known fault, or empty. `version` is a text such
/// as `slurm-wlm 22.05.8`.
std::string version_warning(std::string_view version);

}  // namespace trainyard::server
