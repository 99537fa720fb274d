// tests/cuda/ranks.h: jobs on several GPUs beside the same on as many CPU devices: what the tests
// with a GPU and those on the emulator share.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/job/train_job.h"
#include "src/runtime/backend.h"
#include "tests/engine/train_support.h"

namespace trainyard::testing {

/// The backends that `make` gives for the ranks, connected.
std::vector<RankDevice> connected(int ranks,
                                  const std::function<std::shared_ptr<Backend>(int)>& make);
std::vector<RankDevice> cpu_ranks(int ranks);

/// A job on the dataset in the workspace, with batch normalization, dropout and clipping.
TrainJob rank_job(const Workspace& w, const std::string& name);
/// A refusal fails the test.
void run_job(const TrainJob& job, const std::vector<RankDevice>& devices, Recorder& recorder);

/// Two GPUs train as two CPU devices do, and give the same bits twice; the job as `change` leaves
/// it.
void expect_like_the_cpus(const std::function<std::vector<RankDevice>()>& two_gpus,
                          int64_t accumulate_steps, Shard shard = Shard::kNone,
                          const std::function<void(TrainJob&)>& change = nullptr);

/// The loss is over one drawn class beside those of the labels.
void sample_classes(TrainJob& job);
/// A GPT-2 of one block on a text of its own, whose head has the embedding's table.
void tie_the_head(TrainJob& job);
/// Dense layers that make two pairs, one with a dropout; another activation in each.
void split_pairs(TrainJob& job, const char* activation);

}  // namespace trainyard::testing
