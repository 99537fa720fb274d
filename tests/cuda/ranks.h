// tests/cuda/ranks.h: jobs on several GPUs, compared with the same number of CPU devices; shared by
// the tests with a GPU and those on the emulator.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/job/train_job.h"
#include "src/runtime/backend.h"
#include "tests/engine/train_support.h"

namespace trainyard::testing {

/// The backends that `make` creates for the ranks, connected.
std::vector<RankDevice> connected(int ranks,
                                  const std::function<std::shared_ptr<Backend>(int)>& make);
std::vector<RankDevice> cpu_ranks(int ranks);

/// A job on the dataset in the workspace, with batch normalization, dropout and clipping.
TrainJob rank_job(const Workspace& w, const std::string& name);
/// Trains the job; a refusal fails the test.
void run_job(const TrainJob& job, const std::vector<RankDevice>& devices, Recorder& recorder);

/// Expects the job, after `change`, to train on two GPUs as on two CPU devices, and to give the
/// same bits twice.
void expect_like_the_cpus(const std::function<std::vector<RankDevice>()>& two_gpus,
                          int64_t accumulate_steps, Shard shard = Shard::kNone,
                          const std::function<void(TrainJob&)>& change = nullptr);

/// Sets the sampled loss, over one drawn class in addition to the labels.
void sample_classes(TrainJob& job);
/// Sets a GPT-2 of one block on a text, whose head shares the embedding's table.
void tie_the_head(TrainJob& job);
/// Sets dense layers that form two pairs, one with a dropout, with another activation in each.
void split_pairs(TrainJob& job, const char* activation);

}  // namespace trainyard::testing
