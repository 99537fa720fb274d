#include "src/optim/sharding.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "src/graph/op.h"
#include "src/ops/shards.h"

namespace trainyard {

namespace {

struct NamedPart {
  Shard part;
  std::string_view name;
};
constexpr NamedPart kParts[] = {{Shard::kOptimizer, "optimizer"},
                                {Shard::kHead, "head"},
                                {Shard::kMlp, "mlp"},
                                {Shard::kParameters, "parameters"}};

}  // namespace

std::vector<Shard> shard_parts(Shard shard) {
  std::vector<Shard> parts;
  for (const NamedPart& named : kParts) {
    if (has(shard, named.part)) parts.push_back(named.part);
  }
  return parts;
}

std::vector<Shard> shard_sets() {
  std::vector<Shard> sets = {Shard::kNone};
  for (const NamedPart& named : kParts) {
    const size_t without = sets.size();
    for (size_t i = 0; i < without; ++i) sets.push_back(sets[i] | named.part);
  }
  std::erase_if(sets, [](Shard set) { return set == Shard::kNone || set != canonical(set); });
  std::ranges::stable_sort(sets, {}, [](Shard set) {
    return std::pair(shards_parameters(set), shard_parts(set).size());
  });
  return sets;
}

std::string name_of(Shard shard) {
  std::string names;
  for (const NamedPart& named : kParts) {
    if (has(shard, named.part)) names += (names.empty() ? "" : ", ") + std::string(named.name);
  }
  if (names.empty()) return "none";
  return shard_parts(shard).size() == 1 ? names : "[" + names + "]";
}

ScatteredGradients append_reduce_scatter(Graph& graph,
                                         const std::map<TensorId, TensorId>& gradients,
                                         int64_t ranks, const BucketSpec& spec) {
  const std::vector<Bucket> buckets = fill_buckets(graph, gradients, spec);
  const auto add = [&](size_t b, const Op& op, const char* part, Attributes attributes,
                       const char* suffix, std::vector<TensorId> inputs) {
    std::vector<std::string> names;
    for (const TensorId id : buckets[b]) names.push_back(graph.tensor(id).name + suffix);
    attributes.set("bucket", static_cast<int64_t>(b));
    const NodeId node =
        graph
            .add_node("reduce_scatter_" + std::to_string(b) + "/" + part, op, std::move(attributes),
                      std::move(inputs), names, Phase::kUpdate)
            .value();
    for (const TensorId id : graph.node(node).outputs) graph.set_role(id, Role::kGradient);
    return graph.node(node).outputs;
  };
  std::vector<std::vector<TensorId>> started;
  for (size_t b = 0; b < buckets.size(); ++b) {
    started.push_back(
        add(b, *reduce_scatter_start_op(), "start", {{kRanks, ranks}}, "/scattered", buckets[b]));
  }
  std::map<TensorId, TensorId> shard;  // shards by gradient
  ScatteredGradients result;
  result.buckets.resize(buckets.size());
  std::map<TensorId, size_t> bucket_of;
  for (size_t b = 0; b < buckets.size(); ++b) {
    const size_t behind = last_started_before_wait(b, buckets.size(), spec);
    std::vector<TensorId> inputs = {behind == b ? kNoTensor : started[behind].front()};
    inputs.insert(inputs.end(), started[b].begin(), started[b].end());
    inputs.insert(inputs.end(), buckets[b].begin(), buckets[b].end());
    const std::vector<TensorId> done =
        add(b, *reduce_scatter_done_op(), "done", {}, "/shard", std::move(inputs));
    for (size_t i = 0; i < done.size(); ++i) {
      shard[buckets[b][i]] = done[i];
      bucket_of[buckets[b][i]] = b;
    }
  }
  for (const auto& [parameter, gradient] : gradients) {
    result.shards[parameter] = shard.at(gradient);
    result.buckets[bucket_of.at(gradient)].push_back(parameter);
  }
  return result;
}

std::map<TensorId, TensorId> shard_parameters(Graph& graph, int64_t ranks) {
  std::map<TensorId, TensorId> shards, whole;
  const auto count = static_cast<TensorId>(graph.tensors().size());
  for (TensorId id = 0; id < count; ++id) {
    TensorInfo info = graph.tensor(id);
    if (info.role != Role::kParameter || info.spread != Spread::kOwn) continue;
    info.name += "/whole";
    whole[id] = graph.add_tensor(std::move(info));
    shards[whole[id]] = id;
  }
  std::vector<Node> nodes = graph.nodes();
  for (Node& node : nodes) {
    for (TensorId& id : node.inputs) {
      if (const auto read = whole.find(id); read != whole.end()) id = read->second;
    }
  }
  graph.rewrite(std::move(nodes));
  for (const auto& [id, other] : whole) {
    graph.make_shard(id, shard_type(graph.tensor(id).type, ranks).shape);
  }
  return shards;
}

void append_all_gather(Graph& graph, const std::vector<std::vector<TensorId>>& buckets,
                       int64_t ranks) {
  std::vector<int64_t> numbers;
  std::vector<TensorId> all;
  for (size_t b = 0; b < buckets.size(); ++b) {
    // Uses the numbers after those of the reductions.
    numbers.push_back(static_cast<int64_t>(buckets.size() + b));
    graph
        .add_node("all_gather_" + std::to_string(b) + "/start", *all_gather_start_op(),
                  {{"bucket", numbers.back()}, {kRanks, ranks}}, buckets[b], {}, Phase::kUpdate)
        .value();
    all.insert(all.end(), buckets[b].begin(), buckets[b].end());
  }
  // The exchanges work in the parameters' own memory, so one node can wait for all of them.
  graph
      .add_node("all_gather/done", *all_gather_done_op(), {{"buckets", numbers}}, std::move(all),
                {}, Phase::kUpdate)
      .value();
}

}  // namespace trainyard
