// server/cluster/slurm_script.h: creates the arguments and the script that sbatch gets for an
// attempt. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "server/cluster/placement.h"
#include "server/cluster/slurm_profile.h"
#include "src/base/result.h"

namespace trainyard::server {

/// Refuses values that must not occur in a script or an option: names, IDs and secrets with
/// unexpected characters, a malformed certificate, and numbers that are too small.
Status validate(const AttemptIntent& intent);

/// Returns the options for a valid intent. They contain no secret.
std::vector<std::string> sbatch_arguments(const SlurmProfile& profile, const AttemptIntent& intent);

/// Returns the /bin/sh script for a valid intent. It contains no text of the job, and exits
/// immediately if Slurm starts it a second time. The secret is passed to srun's standard input.
std::string job_script(const SlurmProfile& profile, const AttemptIntent& intent);

/// Quotes `text` as one word for a shell.
std::string shell_word(std::string_view text);

}  // namespace trainyard::server
