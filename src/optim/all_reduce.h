// src/optim/all_reduce.h: the gradients of several devices become one, in buckets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "src/graph/graph.h"

namespace trainyard {

/// As PyTorch's DistributedDataParallel has them: a first bucket that is soon full, so that the
/// exchange begins early, and then such that a link is used well.
struct BucketSpec {
  int64_t first_bytes = int64_t{1} << 20;
  int64_t bytes = int64_t{25} << 20;
  // So many are exchanged at a time before an update waits for the oldest: what bounds the memory
  // of gradients that wait, and how far the exchange may fall behind the backward pass.
  int64_t in_flight = 4;
};

/// Tensors that are exchanged together.
using Bucket = std::vector<TensorId>;
/// The gradients, each once, in the order in which the graph computes them.
std::vector<Bucket> fill_buckets(const Graph& graph, const std::map<TensorId, TensorId>& gradients,
                                 const BucketSpec& spec);
/// The bucket whose exchange has begun by the time that something waits for that of `bucket`.
size_t begun_behind(size_t bucket, size_t buckets, const BucketSpec& spec);

/// Appends, behind `gradients` (by parameter), the nodes that make each the mean over all ranks
/// (src/ops/all_reduce.h), and returns those. Buckets fill in the order in which the graph computes
/// the gradients, alike on every rank.
std::map<TensorId, TensorId> append_all_reduce(Graph& graph,
                                               const std::map<TensorId, TensorId>& gradients,
                                               const BucketSpec& spec = {});

}  // namespace trainyard
