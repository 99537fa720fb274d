// client/cli/gpu_view.h: shows the comparison of the CPU with GPUs that the user need not have.
#pragma once

#include <string>

#include "trainyard/v1/job_service.pb.h"

namespace trainyard::cli {

/// One row per GPU with its memory, the times there, the speed and the cost compared with the CPU,
/// and the advice; below it the sentences of those on which the job cannot run, and what the
/// numbers are based on. Empty without comparisons. Sentences are wrapped at `width` columns; 0:
/// not at all.
std::string render_gpu_comparisons(const v1::JobPlan& plan, bool colour, int width);

}  // namespace trainyard::cli
