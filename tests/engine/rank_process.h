// tests/engine/rank_process.h: one of several processes that train a job, for tests that kill
// processes.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "src/runtime/backend.h"
#include "src/runtime/peers.h"

namespace trainyard::testing {

/// Opens this process's devices and connects them with those of the others.
using JoinDevices = std::function<std::vector<RankDevice>(const std::shared_ptr<Peers>&)>;

/// The main function of such a process. It writes its listener's port to standard output and then
/// reads the ports of all processes from standard input. It prints "step N" after each step, and at
/// the end "done", "lost RANK: MESSAGE", "fault MESSAGE" or "error REASON".
///
///   PROGRAM INDEX COUNT DATASET WORK QUIET_MS STEPS optimizer|parameters
int run_rank_process(int argc, char** argv, const JoinDevices& join);

}  // namespace trainyard::testing
