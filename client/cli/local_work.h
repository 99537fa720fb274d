// client/cli/local_work.h: the work for which trainyard needs trainyard-local, because only that
// program contains the engine and Cairo. Both programs have the same commands, which get these
// functions from Session::local(); in trainyard that call replaces the process by trainyard-local.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "client/cli/chart.h"
#include "client/cli/session.h"
#include "client/lib/spec_file.h"
#include "src/base/result.h"
#include "src/planning/job_plan.h"
#include "src/planning/known_gpus.h"
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
  std::string device;   // empty: as in the spec
  int64_t threads = 0;  // 0: as in the spec, or else all cores
  bool shardings = false;
  std::vector<const KnownGpu*> compared_gpus = {};
};

struct LocalWork {
  Result<int> (*run)(Session& session, const LocalRunOptions& options);
  Result<int> (*check)(Session& session, const std::string& device);
  /// Plans as the server does, but for this machine's CPU unless a GPU is requested.
  Result<v1::JobPlan> (*plan)(const client::SpecFile& spec, const LocalPlanOptions& options);
  /// Draws the same as draw_svg() and returns a PNG file's bytes, 1520 pixels wide. Refuses heights
  /// above 32767 pixels.
  Result<std::string> (*draw_png)(const std::vector<Chart>& charts);
};

}  // namespace trainyard::cli
