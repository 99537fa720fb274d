// tests/cuda/many_buckets.h: a session on several devices whose steps have many exchanges in
// flight.
#pragma once

#include <cmath>
#include <memory>
#include <vector>

#include "src/autodiff/differentiate.h"
#include "src/models/model_spec.h"
#include "src/optim/all_reduce.h"
#include "src/train/replicated_session.h"

namespace trainyard::testing {

/// Ten layers whose gradients are exchanged in buckets of a few bytes, on connected devices; each
/// bucket has two tensors.
struct ManyBuckets {
  static constexpr int64_t kRows = 4, kColumns = 6;

  explicit ManyBuckets(std::vector<RankDevice> devices, const StepLimits& limits = {},
                       Shard shard = Shard::kNone) {
    const Peers* const peers = devices.front().backend->communicator()->peers();
    const int64_t ranks = peers == nullptr ? std::ssize(devices) : peers->ranks();
    const int64_t first = peers == nullptr ? 0 : peers->first_rank();
    std::vector<RunPrograms> programs;
    for (int64_t r = 0; r < std::ssize(devices); ++r) {
      programs.push_back(build(first + r, ranks, shard));
    }
    session =
        std::make_unique<ReplicatedSession>(std::move(programs), std::move(devices), 1, limits);
    session->initialize(7);
    for (int64_t i = 0; i < ranks * kRows * kColumns; ++i) {
      input.push_back(static_cast<float>(std::sin(static_cast<double>(i))));
    }
    for (int64_t i = 0; i < ranks * kRows; ++i) target.push_back(static_cast<int32_t>(i % 3));
  }

  static RunPrograms build(int64_t rank = 0, int64_t ranks = 2, Shard shard = Shard::kNone) {
    const Updater updater{rank, ranks, shards_optimizer(shard)};
    ModelSpec spec;
    for (int i = 0; i < 9; ++i) {
      spec.layers.push_back({"", "Gemm", {}, {{"units", int64_t{10 + i}}}});
      spec.layers.push_back({"", "Tanh", {}, {}});
    }
    spec.layers.push_back({"", "Gemm", {}, {}});
    ModelInterface interface;
    interface.input = {kColumns};
    interface.outputs = 3;
    BuildOptions options;
    options.batch_size = kRows;
    Model model = build_model(spec, interface, options).value();
    const BucketSpec buckets{.first_bytes = 64, .bytes = 600, .in_flight = 2};
    auto gradients = differentiate(model.graph, model.loss);
    std::vector<std::vector<TensorId>> scattered;
    ParameterGathers gathers{.rank = rank, .ranks = ranks, .group_bytes = 600, .ahead = 2};
    if (shards_parameters(shard)) {
      gathers.shards = shard_parameters(model.graph, ranks);
      gradients = append_reduce_scatter(model.graph, gradients, ranks, buckets).shards;
    } else if (updater.is_sharded) {
      ScatteredGradients shards =
          append_reduce_scatter(model.graph, gradients, updater.ranks, buckets);
      gradients = std::move(shards.shards);
      scattered = std::move(shards.buckets);
    } else {
      gradients = append_all_reduce(model.graph, gradients, buckets);
    }
    gradients =
        append_clipping(model.graph, {.clip_norm = 0.1}, gradients, kNoTensor, updater).gradients;
    OptimizerSpec optimizer;
    optimizer.momentum = 0.9;
    const UpdateInputs inputs =
        append_optimizer(model.graph, optimizer, gradients, model.step, {}, {}, updater);
    if (updater.is_sharded) append_all_gather(model.graph, scattered, updater.ranks);
    RunPrograms programs;
    BoundProgram& train = programs.train;
    train.input = model.input;
    train.target = model.target;
    train.loss = model.loss;
    train.output = model.output;
    train.learning_rate = inputs.learning_rate;
    train.batch_size = kRows;
    train.program = compile(std::move(model.graph),
                            {.alignment = kCudaAlignment, .gathers = std::move(gathers)});
    return programs;
  }

  /// Runs the steps ahead of their results, as the training loop does.
  std::vector<float> losses(int64_t steps) {
    std::vector<float> all;
    for (int64_t s = 0; s < steps; ++s) {
      session->begin_step(
          {std::as_bytes(std::span(input)), std::as_bytes(std::span(target)), s, 0.05f});
      if (s > 0) all.push_back(session->finish_step().loss);
    }
    all.push_back(session->finish_step().loss);
    return all;
  }

  std::unique_ptr<ReplicatedSession> session;
  std::vector<float> input;
  std::vector<int32_t> target;
};

}  // namespace trainyard::testing
