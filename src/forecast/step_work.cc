#include "src/forecast/step_work.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <span>

#include "src/base/sha256.h"
#include "src/graph/op.h"
#include "src/plan/liveness.h"
#include "src/plan/node_groups.h"

namespace trainyard {
namespace {

// A byte gradually counts as far while the other memory touched since its last use grows from 0.5
// to 2 MiB (the size of a core's caches), and as one in memory from 8 to 64 MiB (a processor's
// caches).
constexpr double kFarBegins = 512.0 * 1024, kFarEnds = 2 * 1024 * 1024.0;
constexpr double kMemoryBegins = 8 * 1024 * 1024.0, kMemoryEnds = 64 * 1024 * 1024.0;

/// Returns a value that rises from 0 at `begins` to 1 at `ends`, in proportion to the logarithm of
/// `distance`.
double ramp(double distance, double begins, double ends) {
  if (distance <= begins) return 0;
  return std::min(1.0, std::log(distance / begins) / std::log(ends / begins));
}

/// Returns the op whose rates apply to `op`. A product fused with an activation hardly takes longer
/// than the product alone. A lookup in a part of a table has the same kernel as one in the whole
/// table.
std::string_view family_of(std::string_view op) {
  if (op == "ConvRelu") return "Conv";
  if (op == "ReluConvGrad") return "ConvGrad";
  if (op == "GemmGelu" || op == "GemmRelu") return "Gemm";
  if (op == "GeluGemmGrad" || op == "ReluGemmGrad") return "GemmGrad";
  if (op == "SplitGather") return "Gather";
  if (op == "SplitGatherGrad") return "GatherGrad";
  return op;
}

bool is_recurrent(std::string_view op) { return op.starts_with("LSTM") || op.starts_with("GRU"); }
bool is_gradient(std::string_view op) { return op.find("Grad") != op.npos; }

const Shape* shape_at(const Graph& graph, std::span<const TensorId> ids, size_t i) {
  return i < ids.size() && ids[i] != kNoTensor ? &graph.tensor(ids[i]).type.shape : nullptr;
}

/// Sets m, n and k if the node is a fully connected layer, a convolution or the gradient of one.
void set_product(const Graph& graph, const Node& node, NodeWorkload& work) {
  const bool conv = work.op.find("Conv") != work.op.npos;
  if (!conv && work.op.find("Gemm") == work.op.npos) return;
  const Shape* const w = shape_at(graph, node.inputs, 1);
  const Shape* const y =
      is_gradient(work.op) ? shape_at(graph, node.inputs, 2) : shape_at(graph, node.outputs, 0);
  if (w == nullptr || y == nullptr || w->rank() < 2 || y->elements() == 0) return;
  work.n = static_cast<double>((*w)[0]);
  work.k = static_cast<double>(w->elements()) / work.n;
  work.m = static_cast<double>(y->elements()) / work.n;
  if (conv && node.attributes.get_int("group", 1) > 1) work.op += "/groups";
}

/// Tracks when each tensor was last touched, as a count of touched bytes. The program is assumed to
/// follow another run of itself, so a tensor's first use in it is a reuse, too.
class Distances {
 public:
  explicit Distances(const Program& program)
      : touched_(program.graph.tensors().size(), -1),
        footprint_(static_cast<double>(program.persistent_bytes + program.transient_bytes)),
        transient_(static_cast<double>(program.transient_bytes)) {}

  void read(TensorId id, double bytes, NodeWorkload& work) {
    double& at = touched_[static_cast<size_t>(id)];
    add(std::min(at < 0 ? footprint_ : position_ - at, footprint_), bytes, work);
    position_ += bytes;
    at = position_;
  }
  /// A result is written to memory that other tensors have used before.
  void write(TensorId id, double bytes, NodeWorkload& work) {
    add(transient_, bytes, work);
    position_ += bytes;
    touched_[static_cast<size_t>(id)] = position_;
  }

 private:
  static void add(double distance, double bytes, NodeWorkload& work) {
    // The end of a large tensor evicts its own beginning from the cache.
    distance = std::max(distance, bytes);
    work.far_bytes += bytes * ramp(distance, kFarBegins, kFarEnds);
    work.memory_bytes += bytes * ramp(distance, kMemoryBegins, kMemoryEnds);
  }
  std::vector<double> touched_;
  double footprint_, transient_;
  double position_ = 0;
};

void add_number(Sha256& digest, double value) {
  const auto number = static_cast<int64_t>(value);
  digest.update(std::as_bytes(std::span(&number, 1)));
}

void add_node(Sha256& digest, const NodeWorkload& node) {
  digest.update(node.op);
  for (const double value : {node.flops, node.bytes, node.m, node.n, node.k, node.serial}) {
    add_number(digest, value);
  }
}

/// Returns the workloads with those of nodes that a GPU runs as one kernel added up. Nodes of the
/// side lane (src/plan/lanes.h) are left out, because a step does not wait for them.
std::vector<NodeWorkload> joined(const Program& program, const std::vector<NodeWorkload>& nodes) {
  std::vector<NodeWorkload> groups;
  for (size_t first = 0; first < nodes.size();) {
    const size_t end = first + joinable_nodes(program, first);
    const bool is_aside = !program.lanes.empty() && program.lanes[first].lane == Lane::kSide;
    NodeWorkload group = nodes[first];
    while (++first < end) group += nodes[first];
    if (!is_aside) groups.push_back(std::move(group));
  }
  return groups;
}

/// Returns true if the node's output has the same address as its input, so that nothing is copied.
bool moves_nothing(const Program& program, const Node& node) {
  if (!is_view(node) || node.inputs.empty() || node.outputs.empty()) return false;
  const auto placement = [&](TensorId id) { return program.placements[static_cast<size_t>(id)]; };
  if (node.inputs[0] == kNoTensor || node.outputs[0] == kNoTensor) return false;
  const Placement from = placement(node.inputs[0]), to = placement(node.outputs[0]);
  return from.segment == to.segment && from.offset_bytes == to.offset_bytes;
}

}  // namespace

NodeWorkload& NodeWorkload::operator+=(const NodeWorkload& other) {
  flops += other.flops;
  bytes += other.bytes;
  far_bytes += other.far_bytes;
  memory_bytes += other.memory_bytes;
  return *this;
}

double StepWork::flops() const {
  double sum = 0;
  for (const WorkItem& item : items) sum += item.count * item.node.flops;
  return sum;
}

std::vector<NodeWorkload> node_workloads(const Program& program) {
  const Graph& graph = program.graph;
  Distances distances(program);
  std::vector<NodeWorkload> all;
  all.reserve(program.order.size());
  for (const NodeId id : program.order) {
    const Node& node = graph.node(id);
    NodeWorkload work;
    if (moves_nothing(program, node)) {
      work.op = kViewOp;
      all.push_back(std::move(work));
      continue;
    }
    work.op = family_of(node.op->type());
    const Cost cost = node.op->cost(graph, node);
    work.flops = static_cast<double>(cost.flops);
    for (const TensorId t : node.inputs) {
      if (t == kNoTensor) continue;
      distances.read(t, static_cast<double>(graph.tensor(t).stored_bytes()), work);
    }
    for (const TensorId t : node.outputs) {
      if (t == kNoTensor) continue;
      distances.write(t, static_cast<double>(graph.tensor(t).stored_bytes()), work);
    }
    work.bytes = static_cast<double>(cost.bytes);
    if (is_recurrent(work.op)) {
      if (const Shape* x = shape_at(graph, node.inputs, 0); x != nullptr && x->rank() == 3) {
        work.serial = static_cast<double>((*x)[1]);
      }
    }
    // Rounded to sixteenths of `bytes`, so that nearly equal nodes become one item of the step.
    for (double* far : {&work.far_bytes, &work.memory_bytes}) {
      *far =
          work.bytes > 0 ? std::min(1.0, std::round(16 * *far / work.bytes) / 16) * work.bytes : 0;
    }
    set_product(graph, node, work);
    if (work.m > 0 && is_gradient(work.op) && !node.outputs.empty() &&
        node.outputs[0] == kNoTensor) {
      work.op += "/no_dx";
    }
    all.push_back(std::move(work));
  }
  return all;
}

StepWork step_work(const std::vector<ProgramRuns>& programs, double input_bytes,
                   Processor processor) {
  StepWork step;
  step.processor = processor;
  step.steps_of_host = 0;
  step.input_bytes = input_bytes;
  std::map<NodeWorkload, double> counts;
  Sha256 digest;
  for (const ProgramRuns& p : programs) {
    step.steps_of_host += p.runs;
    add_number(digest, p.runs);
    std::vector<NodeWorkload> nodes = node_workloads(*p.program);
    for (const NodeWorkload& node : nodes) add_node(digest, node);
    if (processor == Processor::kGpu) nodes = joined(*p.program, nodes);
    for (NodeWorkload& node : nodes) counts[std::move(node)] += p.runs;
  }
  for (auto& [node, count] : counts) step.items.push_back({node, count});
  step.digest = digest.finish();
  return step;
}

}  // namespace trainyard
