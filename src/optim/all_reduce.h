// src/optim/all_reduce.h: averages the gradients over several devices, in buckets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "src/graph/graph.h"

namespace trainyard {

/// Sizes as in PyTorch's DistributedDataParallel: a small first bucket, so that the exchange begins
/// early, and then buckets large enough to use the link well.
struct BucketSpec {
  int64_t first_bytes = int64_t{1} << 20;
  int64_t bytes = int64_t{25} << 20;
  // The number of later exchanges that begin before an update waits for a bucket. It bounds the
  // memory of gradients that wait, and how far the exchange may lag behind the backward pass.
  int64_t in_flight = 4;
};

/// Tensors that are exchanged together.
using Bucket = std::vector<TensorId>;
/// Fills buckets with the gradients, each once, in the order in which the graph computes them.
std::vector<Bucket> fill_buckets(const Graph& graph, const std::map<TensorId, TensorId>& gradients,
                                 const BucketSpec& spec);
/// Returns the last bucket whose exchange begins before anything waits for the exchange of
/// `bucket`.
size_t last_started_before_wait(size_t bucket, size_t buckets, const BucketSpec& spec);

/// Appends nodes that average each of `gradients` (by parameter) over all ranks
/// (src/ops/all_reduce.h), and returns the means by parameter. Buckets fill in the order in which
/// the graph computes the gradients, which is the same on every rank.
std::map<TensorId, TensorId> append_all_reduce(Graph& graph,
                                               const std::map<TensorId, TensorId>& gradients,
                                               const BucketSpec& spec = {});

}  // namespace trainyard
