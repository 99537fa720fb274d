// client/cli/local_work.h: what trainyard-local can do and trainyard cannot, because it takes the
// engine or Cairo. Both programs have one table of commands, and a command asks its session for
// these (Session::local): trainyard becomes trainyard-local then.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "client/cli/chart.h"
#include "client/cli/session.h"
#include "client/lib/spec_file.h"
#include "src/base/result.h"
#include "src/planning/job_plan.h"
#include "trainyard/v1/job_service.pb.h"

namespace trainyard::cli {

struct LocalRunOptions {
  std::string spec;
  std::vector<std::string> sets;
  std::string device;
  std::string out;
  std::string tensorboard;
  std::string trace;
  bool profile = false;
  int64_t threads = 0;
};

struct LocalPlanOptions {
  PlanDump dump = PlanDump::kNone;
  std::string device;   // empty: the spec's
  int64_t threads = 0;  // 0: the spec's, then all cores
  bool shardings = false;
};

struct LocalWork {
  Result<int> (*run)(Session& session, const LocalRunOptions& options);
  Result<int> (*check)(Session& session, const std::string& device);
  /// Plans as the server does, except for the device: this machine's CPU unless a GPU is requested.
  Result<v1::JobPlan> (*plan)(const client::SpecFile& spec, const LocalPlanOptions& options);
  /// What draw_svg() draws as a PNG file's bytes, 1520 pixels wide. Refuses heights above 32767.
  Result<std::string> (*draw_png)(const std::vector<Chart>& charts);
};

}  // namespace trainyard::cli
