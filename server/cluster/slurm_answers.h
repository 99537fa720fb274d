// server/cluster/slurm_answers.h: what Slurm's commands print, as facts. Pure.
//
// Their texts change from release to release, so little is read: of squeue, fields that were asked
// for one by one, with widths, since without widths older ones cut at 20; of sbatch a number; of
// errors a few phrases that leave open whether a job exists.
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
  int64_t start_s = 0;  // since 1970; 0: none is known
  std::string nodes;
  std::string reason;  // None: there is none
};

/// squeue's --Format of SlurmJob; it also wants SLURM_TIME_FORMAT=%s in its environment. What is
/// longer than its width is cut.
struct SqueueWidths {
  int name = 256;  // names of attempts have at most 200 bytes
  int nodes = 256;
};
std::string squeue_format(SqueueWidths widths = {});

/// All lines or an error: UNAVAILABLE/SLURM_ANSWER_UNREADABLE with the first line that is none.
Result<std::vector<SlurmJob>> parse_squeue(std::string_view text);

/// All jobs under one name as one sighting; they are at least one. A duplicate counts like the
/// first: what runs hides what waits, which hides what has ended.
Sighting fold_jobs(std::span<const SlurmJob> jobs);

/// sbatch's, for the job of this name.
SubmitAnswer submit_answer(const CommandAnswer& answer, const std::string& name);

/// What sbatch, also with --test-only, says against the profile itself: a partition, an account, a
/// QOS or a reservation that is not there or not for this user. Empty for any other answer.
std::string profile_refusal(const CommandAnswer& answer);

/// Whether squeue, asked for one id, said that there is no such job. Any other failure says
/// nothing.
bool says_no_such_job(const CommandAnswer& answer);

/// The value of `key` in `scontrol show config` (`Key    = value`) or in a line of `scontrol show
/// job --oneliner` (`Key=value`); empty if it is not there.
std::string config_value(std::string_view text, std::string_view key);
std::string field_value(std::string_view line, std::string_view key);

/// Seconds of `300 sec`; nothing for any other text.
std::optional<int64_t> config_seconds(std::string_view value);

/// A warning about a release that is known for a fault, or empty. Of `slurm-wlm 22.05.8`.
std::string version_warning(std::string_view version);

}  // namespace trainyard::server
