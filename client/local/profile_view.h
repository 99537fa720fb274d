// client/local/profile_view.h: where a step's time goes, on a terminal.
#pragma once

#include <string>

#include "src/calibration/step_profile.h"

namespace trainyard::cli {

struct ProfileViewOptions {
  int width = 80;  // columns
  int nodes_max = 20;
  bool utf8 = true;
  bool colour = false;
};

/// The step as a whole, then by op, then the slowest nodes.
std::string render_profile(const StepProfile& profile, int64_t batch_size,
                           const ProfileViewOptions& options);

}  // namespace trainyard::cli
