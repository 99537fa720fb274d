// src/runtime/common/parts_kernel.h: runs a fused op as the kernels of the ops that it replaces
// (src/ops/parts.h), for backends without a kernel for it.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "src/base/check.h"
#include "src/ops/parts.h"
#include "src/runtime/backend.h"

namespace trainyard {

class PartsKernel final : public Kernel {
 public:
  PartsKernel(Backend& backend, const Graph& graph, const Node& node) {
    for (const Node& part : parts_of(node)) {
      TRAINYARD_CHECK(part.op->mutated_inputs(part).empty(), node.name + ": a part that updates");
      Part p{backend.prepare(graph, part), {}, {}, {}};
      for (const TensorId id : part.inputs) p.inputs.push_back(find(node, id));
      for (const TensorId id : part.outputs) p.outputs.push_back(find(node, id));
      p.args.inputs.resize(part.inputs.size());
      p.args.outputs.resize(part.outputs.size());
      parts_.push_back(std::move(p));
    }
  }

  int64_t workspace_bytes() const override {
    int64_t bytes = 0;
    for (const Part& p : parts_) bytes = std::max(bytes, p.kernel->workspace_bytes());
    return bytes;
  }
  bool accepts_stored_types() const override { return true; }  // each part converts as it needs
  void run(const KernelArgs& a) override {
    for (Part& p : parts_) {
      for (size_t i = 0; i < p.inputs.size(); ++i) p.args.inputs[i] = address(a, p.inputs[i]);
      for (size_t o = 0; o < p.outputs.size(); ++o) p.args.outputs[o] = address(a, p.outputs[o]);
      p.args.workspace = a.workspace;
      p.kernel->run(p.args);
    }
  }

 private:
  /// An input or output of the fused node.
  struct Place {
    enum class Of : uint8_t { kNone, kInputs, kOutputs } of = Of::kNone;
    size_t index = 0;
  };
  struct Part {
    std::unique_ptr<Kernel> kernel;
    std::vector<Place> inputs, outputs;
    KernelArgs args;
  };

  static Place find(const Node& node, TensorId id) {
    if (id == kNoTensor) return {};
    const auto out = std::ranges::find(node.outputs, id);
    if (out != node.outputs.end()) {
      return {Place::Of::kOutputs, static_cast<size_t>(out - node.outputs.begin())};
    }
    const auto in = std::ranges::find(node.inputs, id);
    TRAINYARD_CHECK(in != node.inputs.end(), node.name + ": a part reads what it does not have");
    return {Place::Of::kInputs, static_cast<size_t>(in - node.inputs.begin())};
  }
  static void* address(const KernelArgs& a, const Place& place) {
    if (place.of == Place::Of::kNone) return nullptr;
    return place.of == Place::Of::kOutputs ? a.outputs[place.index]
                                           : const_cast<void*>(a.inputs[place.index]);
  }

  std::vector<Part> parts_;
};

}  // namespace trainyard
