// src/runtime/join.h: connects the devices of the processes that train one job together. All
// processes perform the same steps, and after each they agree on whether it succeeded everywhere,
// so that none continues alone and all report the same error.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "src/base/result.h"
#include "src/runtime/backend.h"
#include "src/runtime/peers.h"

namespace trainyard {

/// Returns OK if `here` is OK in all processes. Otherwise the same error in all of them, prefixed
/// with the ranks of the process that caused it. A stop takes precedence over a failure, and a
/// failure over an error of a process that only waited for the failed one. Throws RankLost.
Status agree(Peers& peers, const Status& here);

/// Opens this process's devices, peers->ranks_each() of them, and connects them with those of the
/// other processes. Errors are those of `open`, Backend::prepare_join() and join() in any process,
/// and UNAVAILABLE/RANK_FAULT for an exception in another one. Throws RankLost, and rethrows an
/// exception of this process.
Result<std::vector<RankDevice>> join_devices(
    const std::shared_ptr<Peers>& peers,
    const std::function<Result<std::vector<RankDevice>>()>& open);

/// Describes in a sentence how the devices of all processes are connected; empty if there is
/// nothing to describe. Throws RankLost.
std::string describe_connection(Peers& peers, const Communicator& mine);

}  // namespace trainyard
