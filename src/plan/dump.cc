#include <algorithm>

#include "src/graph/op.h"
#include "src/plan/liveness.h"
#include "src/plan/program.h"

namespace trainyard {
namespace {

std::string place_text(const Placement& p) {
  const char* segment = p.segment == Segment::kMapped       ? "file+"
                        : p.segment == Segment::kPersistent ? "p+"
                                                            : "t+";
  return segment + std::to_string(p.offset_bytes);
}

std::string padded(std::string text, size_t width) {
  text.resize(std::max(text.size(), width), ' ');
  return text;
}

std::string right(int64_t value, size_t width) {
  std::string text = std::to_string(value);
  return std::string(width > text.size() ? width - text.size() : 0, ' ') + text;
}

}  // namespace

std::string Program::dump_program() const {
  const auto tensor_text = [this](TensorId id) {
    return id == kNoTensor
               ? std::string("-")
               : graph.tensor(id).name + "@" + place_text(placements[static_cast<size_t>(id)]);
  };
  std::string text;
  for (size_t step = 0; step < order.size(); ++step) {
    const Node& node = graph.node(order[step]);
    text += right(static_cast<int64_t>(step), 3) + " " + node.name + " " +
            std::string(node.op->type()) + "(";
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      text += (i > 0 ? ", " : "") + tensor_text(node.inputs[i]);
    }
    text += ")";
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      text += (i > 0 ? ", " : " -> ") + tensor_text(node.outputs[i]);
    }
    if (!lanes.empty() && lanes[step].waits_for_all()) {
      text += lanes[step].joins ? "  joins" : "  aside";
    }
    text += "\n";
  }
  return text;
}

std::string Program::dump_memory() const {
  std::string text =
      "persistent " + std::to_string(persistent_bytes) + " transient " +
      std::to_string(transient_bytes) + "\nparameters " + std::to_string(memory.parameter_bytes) +
      " state " + std::to_string(memory.state_bytes) + " optimizer " +
      std::to_string(memory.optimizer_bytes) + " gradients " +
      std::to_string(memory.gradient_bytes) + " activations " +
      std::to_string(memory.activation_bytes) + " inputs " + std::to_string(memory.input_bytes);
  if (memory.mapped_bytes > 0) text += " mapped " + std::to_string(memory.mapped_bytes);
  text += "\n";
  for (size_t i = 0; i < placements.size(); ++i) {
    if (placements[i].segment == Segment::kTransient) continue;
    text += padded(place_text(placements[i]), 12) + right(placements[i].size_bytes, 10) +
            "  always     " + graph.tensors()[i].name + "\n";
  }
  for (const Buffer& b : find_buffers(graph, order, alignment, lanes)) {
    const Placement& place = placements[static_cast<size_t>(b.tensors.front())];
    text += padded(place_text(place), 12) + right(b.size_bytes, 10) + "  " +
            padded(std::to_string(b.first) + ".." + std::to_string(b.last), 10);
    for (const TensorId id : b.tensors) text += " " + graph.tensor(id).name;
    text += "\n";
  }
  return text;
}

}  // namespace trainyard
