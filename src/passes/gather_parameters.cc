#include "src/passes/gather_parameters.h"

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "src/base/check.h"
#include "src/graph/op.h"
#include "src/ops/all_reduce.h"
#include "src/ops/cast.h"
#include "src/ops/shards.h"

namespace trainyard {
namespace {

// The first number of this pass's exchanges (src/ops/shards.h), larger than that of any bucket of
// gradients. Exchanges of a split head (src/parallel/split_head.cc) have larger numbers.
constexpr int64_t kFirstGather = int64_t{1} << 29;

class ParameterGathering {
 public:
  ParameterGathering(Graph& graph, const ParameterGathers& gathers)
      : graph_(graph), gathers_(gathers), nodes_(graph.nodes()), before_(nodes_.size()) {}

  void run() {
    find_uses();
    fill_groups();
    const auto count = static_cast<int64_t>(groups_.size());
    for (int64_t g = 0; g < count; ++g) {
      const int64_t newest = std::min(g + gathers_.ahead, count - 1);
      for (int64_t next = g == 0 ? 0 : g + gathers_.ahead; next <= newest; ++next) {
        add_start(next, group(g).first);
      }
      add_done(g);
    }
    replace_inputs();
    std::vector<Node> all;
    for (size_t k = 0; k < nodes_.size(); ++k) {
      for (const NodeId inserted : before_[k]) all.push_back(graph_.node(inserted));
      if (!replaced_casts_.contains(k)) all.push_back(std::move(nodes_[k]));
    }
    graph_.rewrite(std::move(all));
    for (const auto& [whole, shard] : gathers_.shards) graph_.remove(whole);
  }

 private:
  enum Pass : uint8_t { kForwardPass, kBackwardPass };
  /// The first and the last node that read a parameter or its 16-bit copy.
  struct Use {
    size_t first = 0, last = 0;
  };
  struct Group {
    Pass pass = kForwardPass;
    // Lowest and highest of the first readers of the group's parameters.
    size_t first = 0, newest = 0;
    std::vector<TensorId> read;  // parameters or copies, in the order of their first readers
    int64_t bytes = 0;
    std::vector<TensorId> shards, started;  // set when the exchange is started
  };
  Group& group(int64_t g) { return groups_[static_cast<size_t>(g)]; }
  bool is_gathered(TensorId id) const {
    return gathers_.shards.contains(id) || parameter_of_.contains(id);
  }
  TensorId parameter_of(TensorId read) const {
    const auto copy = parameter_of_.find(read);
    return copy == parameter_of_.end() ? read : copy->second;
  }

  void find_uses() {
    bool is_behind = false;  // whether node k comes after the forward pass
    for (size_t k = 0; k < nodes_.size(); ++k) {
      const Node& node = nodes_[k];
      is_behind = is_behind || node.phase == Phase::kBackward;
      if (node.op == cast_op() && gathers_.shards.contains(node.inputs[0]) &&
          graph_.tensor(node.outputs[0]).is_half()) {
        parameter_of_[node.outputs[0]] = node.inputs[0];
        replaced_casts_.insert(k);
        continue;
      }
      const Pass pass = is_behind ? kBackwardPass : kForwardPass;
      for (const TensorId id : node.inputs) {
        if (id == kNoTensor || !is_gathered(id)) continue;
        TRAINYARD_CHECK(node.phase != Phase::kUpdate,
                        node.name + " reads a whole parameter where each rank has its shard");
        const auto [use, is_first] = uses_[pass].try_emplace(id, Use{k, k});
        if (is_first) in_order_[pass].push_back(id);
        use->second.last = k;
      }
    }
  }

  void fill_groups() {
    for (const TensorId id : in_order_[kForwardPass]) add_to_group(kForwardPass, id);
    // The backward pass may begin with parameters that are still in memory: those of the last
    // group, and those that the forward pass reads while that group is in use. They are not
    // gathered again.
    const std::vector<TensorId> last =
        groups_.empty() ? std::vector<TensorId>() : groups_.back().read;
    const auto lasts = [&](TensorId id) {
      const auto use = uses_[kForwardPass].find(id);
      return std::ranges::count(last, id) > 0 ||
             (use != uses_[kForwardPass].end() && use->second.last > groups_.back().first);
    };
    const auto& backward = in_order_[kBackwardPass];
    const auto first = std::ranges::find_if_not(backward, lasts);
    kept_.assign(backward.begin(), first);
    for (auto id = first; id != backward.end(); ++id) add_to_group(kBackwardPass, *id);
  }

  /// Adds the parameter to the newest group, or begins a group. Parameters that the same
  /// node is the first to read are in one group, so that a group is no longer needed when the next
  /// one is.
  void add_to_group(Pass pass, TensorId id) {
    const size_t reader = uses_[pass].at(id).first;
    const auto count = groups_.empty() ? 0 : std::ssize(groups_.back().read);
    const bool is_full = groups_.empty() || groups_.back().bytes >= gathers_.group_bytes ||
                         count >= kBucketTensorsMax / 2;
    const bool may_end = groups_.empty() || groups_.back().newest != reader;
    const bool is_other = groups_.empty() || groups_.back().pass != pass;
    if (is_other || (is_full && may_end) || count == kBucketTensorsMax) {
      groups_.push_back({pass, reader, reader, {}, 0, {}, {}});
    }
    Group& g = groups_.back();
    g.newest = reader;
    g.read.push_back(id);
    g.bytes += graph_.tensor(id).stored_bytes();
  }

  /// Adds a node at the end of the graph, where all inputs exist; run() moves it to the position
  /// before node `before`.
  std::vector<TensorId> add(size_t before, std::string name, const Op& op, Attributes attributes,
                            std::vector<TensorId> inputs, std::vector<std::string> names) {
    before_[before].push_back(graph_
                                  .add_node(std::move(name), op, std::move(attributes),
                                            std::move(inputs), std::move(names),
                                            nodes_[before].phase)
                                  .value());
    return graph_.node(before_[before].back()).outputs;
  }

  /// Returns the name of a gathered tensor: "fc1.weight/gathered", or "fc1.weight/gathered_again"
  /// in the backward pass.
  std::string name_of(const Group& g, TensorId read, const char* what) const {
    const TensorInfo& t = graph_.tensor(read);
    return graph_.tensor(gathers_.shards.at(parameter_of(read))).name + "/" + what +
           (g.pass == kBackwardPass ? "_again" : "") +
           (t.is_bf16()  ? "/bf16"
            : t.is_f16() ? "/f16"
                         : "");
  }

  void add_start(int64_t number, size_t before) {
    Group& g = group(number);
    std::vector<std::string> names;
    std::vector<Shape> shapes;
    for (const TensorId id : g.read) {
      TRAINYARD_CHECK(graph_.tensor(id).layout == Layout::kRowMajor,
                      graph_.tensor(id).name + " is not row-major, as shards are");
      g.shards.push_back(shard_of(g, id, before));
      names.push_back(name_of(g, id, "gathering"));
      shapes.push_back(graph_.tensor(id).type.shape);
    }
    g.started =
        add(before, "gather_" + std::to_string(number) + "/start", *gather_shards_start_op(),
            {{"bucket", kFirstGather + number},
             {kRank, gathers_.rank},
             {kRanks, gathers_.ranks},
             {"shapes", flat_shapes(shapes)}},
            g.shards, std::move(names));
    store_alike(g, g.started);
  }

  /// Returns the shard of the parameter `read`, in the same storage.
  TensorId shard_of(const Group& g, TensorId read, size_t before) {
    const TensorId shard = gathers_.shards.at(parameter_of(read));
    const Storage storage = graph_.tensor(read).storage;
    if (storage == Storage::kAsTyped) return shard;
    const std::string name = name_of(g, read, "shard");
    const TensorId copy = add(before, name, *cast_op(), {}, {shard}, {name})[0];
    graph_.set_storage(copy, storage);
    return copy;
  }

  void add_done(int64_t number) {
    Group& g = group(number);
    std::vector<TensorId> inputs = g.started;
    inputs.insert(inputs.end(), g.shards.begin(), g.shards.end());
    std::vector<std::string> names;
    for (const TensorId id : g.read) names.push_back(name_of(g, id, "gathered"));
    const std::vector<TensorId> whole =
        add(g.first, "gather_" + std::to_string(number) + "/done", *gather_shards_done_op(),
            {{"bucket", kFirstGather + number}}, std::move(inputs), std::move(names));
    store_alike(g, whole);
    for (size_t i = 0; i < whole.size(); ++i) gathered_[g.pass][g.read[i]] = whole[i];
  }

  void store_alike(const Group& g, const std::vector<TensorId>& outputs) {
    for (size_t i = 0; i < outputs.size(); ++i) {
      graph_.set_storage(outputs[i], graph_.tensor(g.read[i]).storage);
    }
  }

  void replace_inputs() {
    for (const TensorId id : kept_) gathered_[kBackwardPass][id] = gathered_[kForwardPass].at(id);
    bool is_behind = false;
    for (size_t k = 0; k < nodes_.size(); ++k) {
      is_behind = is_behind || nodes_[k].phase == Phase::kBackward;
      if (replaced_casts_.contains(k)) continue;
      for (TensorId& id : nodes_[k].inputs) {
        if (id == kNoTensor || !is_gathered(id)) continue;
        id = gathered_[is_behind ? kBackwardPass : kForwardPass].at(id);
      }
    }
  }

  Graph& graph_;
  const ParameterGathers& gathers_;
  std::vector<Node> nodes_;
  std::vector<std::vector<NodeId>> before_;    // by node: the nodes inserted before it
  std::map<TensorId, TensorId> parameter_of_;  // by 16-bit copy
  std::set<size_t> replaced_casts_;            // nodes that created the 16-bit copies
  std::array<std::map<TensorId, Use>, 2> uses_;
  std::array<std::vector<TensorId>, 2> in_order_;  // in the order of first use
  std::vector<TensorId> kept_;  // parameters that stay in memory from the forward pass on
  std::vector<Group> groups_;
  std::array<std::map<TensorId, TensorId>, 2> gathered_;
};

}  // namespace

void gather_parameters(Graph& graph, const ParameterGathers& gathers) {
  if (!gathers.shards.empty()) ParameterGathering(graph, gathers).run();
}

}  // namespace trainyard
