// Checks a program by executing it on a map of the owners of all bytes. It does not use the
// lifetimes computed by compile(), so it detects errors in them.
#include <algorithm>
#include <map>
#include <numeric>

#include "src/base/check.h"
#include "src/graph/op.h"
#include "src/plan/liveness.h"
#include "src/plan/program.h"

namespace trainyard {
namespace {

/// The owner of every byte range of a segment. Ranges do not overlap.
class Owners {
 public:
  void take(const Placement& place, TensorId id) {
    const int64_t begin = place.offset_bytes;
    const int64_t end = begin + place.size_bytes;
    std::map<int64_t, Range> kept;
    for (const auto& [from, range] : ranges_) {
      if (from < begin) kept[from] = {std::min(range.end, begin), range.owner};
      if (range.end > end) kept[std::max(from, end)] = {range.end, range.owner};
    }
    if (begin < end) kept[begin] = {end, id};
    ranges_ = std::move(kept);
  }
  bool owns(const Placement& place, TensorId id) const {
    if (place.size_bytes == 0) return true;
    const auto it = ranges_.find(place.offset_bytes);
    return it != ranges_.end() && it->second.owner == id &&
           it->second.end == place.offset_bytes + place.size_bytes;
  }

 private:
  struct Range {
    int64_t end;
    TensorId owner;
  };
  std::map<int64_t, Range> ranges_;
};

void check_bounds(const Program& program) {
  for (size_t i = 0; i < program.placements.size(); ++i) {
    const Placement& p = program.placements[i];
    const TensorInfo& t = program.graph.tensors()[i];
    const bool mapped = p.segment == Segment::kMapped;
    TRAINYARD_CHECK(mapped == t.is_mapped() && (!mapped || t.role == Role::kParameter),
                    t.name + " is mapped, but not a parameter of the file");
    const bool persistent = p.segment == Segment::kPersistent;
    TRAINYARD_CHECK(persistent == (!mapped && is_persistent(t.role)),
                    t.name + " is in the wrong segment");
    TRAINYARD_CHECK(p.offset_bytes >= 0 && p.offset_bytes % program.alignment == 0,
                    t.name + " is not aligned");
    TRAINYARD_CHECK(p.size_bytes >= t.stored_bytes(), t.name + " has too little memory");
    TRAINYARD_CHECK(mapped || p.offset_bytes + p.size_bytes <=
                                  (persistent ? program.persistent_bytes : program.transient_bytes),
                    t.name + " ends after its segment");
  }
}

void check_order(const Program& program) {
  std::vector<bool> ran(program.graph.nodes().size());
  // Indexed by tensor: the last node that updated it.
  std::vector<NodeId> updated(program.graph.tensors().size(), kNoNode);
  for (const NodeId k : program.order) {
    const Node& node = program.graph.node(k);
    TRAINYARD_CHECK(!ran.at(static_cast<size_t>(k)), node.name + " runs twice");
    ran[static_cast<size_t>(k)] = true;
    const std::vector<int64_t> updates = node.op->mutated_inputs(node);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const TensorId id = node.inputs[i];
      if (id == kNoTensor) continue;
      const NodeId producer = program.graph.tensor(id).producer;
      TRAINYARD_CHECK(producer == kNoNode || ran[static_cast<size_t>(producer)],
                      node.name + " runs before the producer of " + program.graph.tensor(id).name);
      // Updates of a tensor run in the graph's order, and nothing else reads it after the first
      // update; except a cache, which later nodes of the graph read.
      const NodeId last = updated[static_cast<size_t>(id)];
      const bool updates_again = std::ranges::count(updates, static_cast<int64_t>(i)) > 0 ||
                                 program.graph.tensor(id).role == Role::kCache;
      TRAINYARD_CHECK(last == kNoNode || (updates_again && last < k),
                      node.name + " reads " + program.graph.tensor(id).name + " after its update");
    }
    for (const int64_t i : updates) {
      const TensorId id = node.inputs.at(static_cast<size_t>(i));
      if (id == kNoTensor) continue;
      TRAINYARD_CHECK(
          !program.graph.tensor(id).is_mapped(),
          node.name + " updates " + program.graph.tensor(id).name + ", which is mapped");
      updated[static_cast<size_t>(id)] = k;
    }
  }
  TRAINYARD_CHECK(std::all_of(ran.begin(), ran.end(), [](bool b) { return b; }),
                  "a node never runs");
}

void check_memory(const Program& program) {
  const Graph& graph = program.graph;
  const auto place = [&](TensorId id) -> const Placement& {
    return program.placements[static_cast<size_t>(id)];
  };
  Owners transient, persistent;
  const auto owners = [&](TensorId id) -> Owners& {
    return place(id).segment == Segment::kPersistent ? persistent : transient;
  };
  const auto is_mapped = [&](TensorId id) { return place(id).segment == Segment::kMapped; };
  for (TensorId id = 0; id < static_cast<TensorId>(graph.tensors().size()); ++id) {
    if (graph.tensor(id).producer == kNoNode && !is_mapped(id)) owners(id).take(place(id), id);
  }
  // Indexed by tensor: the tensor of which it is a view, or itself.
  std::vector<TensorId> first_name(graph.tensors().size());
  std::iota(first_name.begin(), first_name.end(), 0);
  const auto owns = [&](TensorId id) {
    return is_mapped(id) || owners(id).owns(place(id), first_name[static_cast<size_t>(id)]);
  };
  for (const NodeId k : program.order) {
    const Node& node = graph.node(k);
    const auto check_inputs = [&](const std::string& when, auto exempt) {
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        const TensorId id = node.inputs[i];
        if (id == kNoTensor || exempt(static_cast<int64_t>(i))) continue;
        TRAINYARD_CHECK(owns(id),
                        node.name + ": " + graph.tensor(id).name + " is overwritten " + when);
      }
    };
    check_inputs("before it is read", [](int64_t) { return false; });
    std::vector<int64_t> shared;  // inputs whose memory an output uses, if the op allows it
    for (const auto& [o, i] : node.op->may_alias(node)) {
      if (i >= static_cast<int64_t>(node.inputs.size())) continue;
      const TensorId in = node.inputs[static_cast<size_t>(i)];
      const TensorId out = node.outputs.at(static_cast<size_t>(o));
      if (in == kNoTensor || out == kNoTensor) continue;
      if (place(in).segment == place(out).segment &&
          place(in).offset_bytes == place(out).offset_bytes &&
          std::count(node.inputs.begin(), node.inputs.end(), in) == 1) {
        shared.push_back(i);
      }
    }
    const bool is_second_name = is_view(node) && !shared.empty();
    if (is_second_name) {
      first_name[static_cast<size_t>(node.outputs[0])] =
          first_name[static_cast<size_t>(node.inputs[0])];
    }
    for (const TensorId id : node.outputs) {
      if (id != kNoTensor && !is_second_name) owners(id).take(place(id), id);
    }
    check_inputs("while it is read", [&](int64_t i) {
      return std::find(shared.begin(), shared.end(), i) != shared.end();
    });
    for (const TensorId id : node.outputs) {
      TRAINYARD_CHECK(id == kNoTensor || owns(id), node.name + ": two outputs share memory");
    }
  }
  for (TensorId id = 0; id < static_cast<TensorId>(graph.tensors().size()); ++id) {
    const bool lasts = graph.tensor(id).producer == kNoNode ||
                       std::count(graph.outputs().begin(), graph.outputs().end(), id) > 0;
    TRAINYARD_CHECK(!lasts || owns(id), graph.tensor(id).name + " does not outlive the run");
  }
}

/// Memory that steps of the side lane use, from their start until a step of the main lane joins.
class InUseAside {
 public:
  explicit InUseAside(const Program& program) : program_(program) {}

  void check(size_t step) {
    const Node& node = program_.graph.node(program_.order[step]);
    const LaneStep& at = program_.lanes[step];
    std::vector<TensorId> updated;
    for (const int64_t i : node.op->mutated_inputs(node)) {
      updated.push_back(node.inputs.at(static_cast<size_t>(i)));
    }
    if (at.lane == Lane::kSide) {
      add(node.inputs, read_);
      add(node.outputs, written_);
      add(updated, written_);
      return;
    }
    if (at.joins) {
      read_.clear();
      written_.clear();
    }
    for (const std::vector<TensorId>& ids : {node.outputs, updated}) {
      expect_apart(node, ids, read_, "reads");
      expect_apart(node, ids, written_, "writes");
    }
    expect_apart(node, node.inputs, written_, "writes");
  }

 private:
  void add(const std::vector<TensorId>& ids, std::vector<TensorId>& to) {
    for (const TensorId id : ids) {
      if (id != kNoTensor) to.push_back(id);
    }
  }
  void expect_apart(const Node& node, const std::vector<TensorId>& ids,
                    const std::vector<TensorId>& aside, const char* what) const {
    for (const TensorId id : ids) {
      if (id == kNoTensor) continue;
      for (const TensorId other : aside) {
        TRAINYARD_CHECK(!overlap(place(id), place(other)),
                        node.name + " uses the memory of " + program_.graph.tensor(id).name +
                            " while the side lane " + what + " " +
                            program_.graph.tensor(other).name);
      }
    }
  }
  static bool overlap(const Placement& a, const Placement& b) {
    return a.segment == b.segment && a.offset_bytes < b.offset_bytes + b.size_bytes &&
           b.offset_bytes < a.offset_bytes + a.size_bytes;
  }
  const Placement& place(TensorId id) const { return program_.placements[static_cast<size_t>(id)]; }

  const Program& program_;
  std::vector<TensorId> read_, written_;
};

void check_lanes(const Program& program) {
  if (program.lanes.empty()) return;
  TRAINYARD_CHECK(program.lanes.size() == program.order.size(), "a step has no lane");
  InUseAside aside(program);
  for (size_t step = 0; step < program.order.size(); ++step) aside.check(step);
}

}  // namespace

void verify(const Program& program) {
  program.graph.verify();
  TRAINYARD_CHECK(program.placements.size() == program.graph.tensors().size(),
                  "a tensor has no place");
  check_bounds(program);
  check_order(program);
  check_memory(program);
  check_lanes(program);
  TRAINYARD_CHECK(program.memory.total() - program.memory.workspace_bytes ==
                      program.persistent_bytes + program.transient_bytes,
                  "the breakdown does not sum to the arena");
}

}  // namespace trainyard
