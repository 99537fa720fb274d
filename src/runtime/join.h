// src/runtime/join.h: how the processes that train one job together connect their devices. All of
// them take the same steps, and behind each they agree whether it worked everywhere: none goes on
// alone, and what has gone wrong in one is said by all.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "src/base/result.h"
#include "src/runtime/backend.h"
#include "src/runtime/peers.h"

namespace trainyard {

/// OK if it is OK in all processes. Otherwise what went wrong, the same in all of them, with the
/// ranks of the process first: a stop before a failure, and a failure before what only waited for
/// the one that failed. Throws RankLost.
Status agree(Peers& peers, const Status& here);

/// Opens this process's devices, peers->ranks_each() of them, and connects them with those of the
/// others. Refusals are those of `open`, Backend::prepare_join() and join(), of any process, and
/// UNAVAILABLE/RANK_FAULT for a fault of another. Throws RankLost, and a fault of this one.
Result<std::vector<RankDevice>> join_devices(
    const std::shared_ptr<Peers>& peers,
    const std::function<Result<std::vector<RankDevice>>()>& open);

/// By what the devices of all processes are connected, in a sentence; empty where there is nothing
/// to tell. Throws RankLost.
std::string describe_connection(Peers& peers, const Communicator& mine);

}  // namespace trainyard
