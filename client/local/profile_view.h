// client/local/profile_view.h: shows on a terminal how a step's time is divided among its nodes.
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

/// Renders the step as a whole, then its time by op, then the slowest nodes.
std::string render_profile(const StepProfile& profile, int64_t batch_size,
                           const ProfileViewOptions& options);

}  // namespace trainyard::cli
