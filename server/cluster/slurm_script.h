// server/cluster/slurm_script.h: what sbatch is given for an attempt. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "server/cluster/placement.h"
#include "server/cluster/slurm_profile.h"
#include "src/base/result.h"

namespace trainyard::server {

/// Refuses what has no place in a script or an option: names, ids and secrets of other characters,
/// a certificate that is none, numbers below what makes sense.
Status validate(const AttemptIntent& intent);

/// The options, for an intent that is valid. Nothing in them is secret.
std::vector<std::string> sbatch_arguments(const SlurmProfile& profile, const AttemptIntent& intent);

/// The script, for an intent that is valid: /bin/sh, no text of the job in it. It ends at once when
/// Slurm starts it a second time. The secret goes to srun's standard input.
std::string job_script(const SlurmProfile& profile, const AttemptIntent& intent);

/// As one word for a shell.
std::string shell_word(std::string_view text);

}  // namespace trainyard::server
