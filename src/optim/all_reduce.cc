#include "src/optim/all_reduce.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "src/graph/op.h"
#include "src/ops/all_reduce.h"

namespace trainyard {
namespace {

/// Returns each gradient once, in the order of their producers. Sums over micro-batches have no
/// producer: they come first, in the order of their IDs.
std::vector<TensorId> in_production_order(const Graph& graph,
                                          const std::map<TensorId, TensorId>& gradients) {
  std::set<TensorId> unique;
  for (const auto& [parameter, gradient] : gradients) unique.insert(gradient);
  std::vector<TensorId> tensors(unique.begin(), unique.end());
  std::ranges::stable_sort(tensors, [&](TensorId a, TensorId b) {
    return graph.tensor(a).producer < graph.tensor(b).producer;
  });
  return tensors;
}

}  // namespace

std::vector<Bucket> fill_buckets(const Graph& graph, const std::map<TensorId, TensorId>& gradients,
                                 const BucketSpec& spec) {
  std::vector<Bucket> buckets;
  int64_t bytes = 0;
  bool full = true;
  for (const TensorId id : in_production_order(graph, gradients)) {
    if (full) {
      buckets.emplace_back();
      bytes = 0;
    }
    buckets.back().push_back(id);
    bytes += graph.tensor(id).type.bytes();
    full = bytes >= (buckets.size() == 1 ? spec.first_bytes : spec.bytes) ||
           std::ssize(buckets.back()) == kBucketTensorsMax;
  }
  return buckets;
}

size_t last_started_before_wait(size_t bucket, size_t buckets, const BucketSpec& spec) {
  return std::min(bucket + static_cast<size_t>(spec.in_flight), buckets - 1);
}

std::map<TensorId, TensorId> append_all_reduce(Graph& graph,
                                               const std::map<TensorId, TensorId>& gradients,
                                               const BucketSpec& spec) {
  const std::vector<Bucket> buckets = fill_buckets(graph, gradients, spec);
  const auto add = [&](size_t b, const Op& op, const char* part, const char* suffix,
                       std::vector<TensorId> inputs) {
    std::vector<std::string> names;
    for (const TensorId id : buckets[b]) names.push_back(graph.tensor(id).name + suffix);
    const NodeId node = graph
                            .add_node("all_reduce_" + std::to_string(b) + "/" + part, op,
                                      {{"bucket", static_cast<int64_t>(b)}}, std::move(inputs),
                                      names, Phase::kUpdate)
                            .value();
    for (const TensorId id : graph.node(node).outputs) graph.set_role(id, Role::kGradient);
    return graph.node(node).outputs;
  };
  std::vector<std::vector<TensorId>> started;
  for (size_t b = 0; b < buckets.size(); ++b) {
    started.push_back(add(b, *all_reduce_start_op(), "start", "/reduced", buckets[b]));
  }
  std::map<TensorId, TensorId> mean;
  for (size_t b = 0; b < buckets.size(); ++b) {
    // A bucket's update waits until `in_flight` later exchanges have begun, or all of them.
    const size_t behind = last_started_before_wait(b, buckets.size(), spec);
    std::vector<TensorId> inputs = {behind == b ? kNoTensor : started[behind].front()};
    inputs.insert(inputs.end(), started[b].begin(), started[b].end());
    const std::vector<TensorId> done =
        add(b, *all_reduce_done_op(), "done", "/mean", std::move(inputs));
    for (size_t i = 0; i < done.size(); ++i) mean[buckets[b][i]] = done[i];
  }
  std::map<TensorId, TensorId> result;
  for (const auto& [parameter, gradient] : gradients) result[parameter] = mean.at(gradient);
  return result;
}

}  // namespace trainyard
