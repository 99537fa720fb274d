// client/cli/plan_view.h: shows a job's plan on a terminal.
#pragma once

#include <cstdint>
#include <string>

#include "client/cli/terminal.h"
#include "trainyard/v1/job_service.pb.h"

namespace trainyard::cli {

struct PlanViewOptions {
  int64_t layers_max = 24;  // maximum rows of the layer table; 0: all
  int width = 80;           // columns
  bool utf8 = true;
  bool colour = false;
  int line_width = 0;  // at which sentences are wrapped; 0: not at all
};

/// Renders the layers, with repeated blocks collapsed, then the memory, then all other fields.
std::string render_job_plan(const v1::JobPlan& plan, const PlanViewOptions& options);

}  // namespace trainyard::cli
