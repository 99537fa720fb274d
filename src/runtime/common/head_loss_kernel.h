// src/runtime/common/head_loss_kernel.h: computes a fused head and loss (src/ops/head_loss.h) with
// a host backend's kernels of the ops that it replaces, in their order, so that the results are
// bit-identical. All scores are stored in the workspace.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/alignment.h"
#include "src/ops/gemm.h"
#include "src/ops/head_loss.h"
#include "src/ops/softmax_xent.h"
#include "src/runtime/common/kernel_table.h"

namespace trainyard {

class HeadLossKernel final : public Kernel {
 public:
  HeadLossKernel(Backend& backend, const Graph& graph, const Node& node) {
    Graph parts;
    std::vector<TensorId> in;
    for (size_t i = 0; i < kInputs; ++i) {
      in.push_back(has_input(node, i) ? add_like(parts, input_info(graph, node, i), i) : kNoTensor);
    }
    const Attributes of_gemm = only(node.attributes, {"transB", "tf32"}),
                     of_loss = only(node.attributes,
                                    {"label_smoothing", "ignore_index", "class_weights"});
    const auto add = [&](const char* name, const Op& op, const Attributes& attributes,
                         std::vector<TensorId> inputs, std::vector<std::string> outputs) -> Node& {
      const NodeId id =
          parts.add_node(name, op, attributes, std::move(inputs), std::move(outputs)).value();
      return nodes_.emplace_back(parts.node(id));
    };
    const auto name_if = [&](size_t output, const char* name) {
      return std::string(has_output(node, output) ? name : "");
    };
    const TensorId z = add("head", *gemm_op(), of_gemm, {in[0], in[1], in[4]}, {"z"}).outputs[0];
    const Node loss = add("loss", *softmax_xent_op(), of_loss, {z, in[2]}, {"loss", "prob"});
    const TensorId dz =
        add("loss/grad", *softmax_xent_grad_op(), of_loss, {loss.outputs[1], in[2], in[3]}, {"dz"})
            .outputs[0];
    const Node grad = add("head/grad", *gemm_grad_op(), of_gemm, {in[0], in[1], dz},
                          {name_if(1, "dx"), name_if(2, "dw"), name_if(3, "db")});
    if (has_output(node, 1)) {
      parts.set_storage(grad.outputs[0], output_info(graph, node, 1).storage);
    }
    for (const Node& part : nodes_) kernels_.push_back(backend.prepare(parts, part));
    places_.resize(parts.tensors().size());
    for (size_t i = 0; i < kInputs; ++i) place(in[i], i);
    place(loss.outputs[0], kInputs);
    for (size_t o = 0; o < 3; ++o) place(grad.outputs[o], kInputs + 1 + o);
    // The probabilities overwrite the scores, and the gradient of the scores overwrites the
    // probabilities.
    for (const TensorId id : {z, loss.outputs[1], dz}) place(id, kScores);
    scores_bytes_ = round_up(parts.tensor(z).type.bytes(), kHostAlignment);
  }

  int64_t workspace_bytes() const override {
    int64_t bytes = 0;
    for (const auto& kernel : kernels_) bytes = std::max(bytes, kernel->workspace_bytes());
    return scores_bytes_ + bytes;
  }
  bool accepts_stored_types() const override { return true; }  // each part converts as it needs
  void run(const KernelArgs& a) override {
    std::array<void*, kScores + 1> addresses{};
    for (size_t i = 0; i < a.inputs.size(); ++i) addresses[i] = const_cast<void*>(a.inputs[i]);
    std::ranges::copy(a.outputs, addresses.begin() + kInputs);
    addresses[kScores] = a.workspace;
    const auto address = [&](TensorId id) {
      return id == kNoTensor ? nullptr : addresses[places_[static_cast<size_t>(id)]];
    };
    KernelArgs args;
    args.workspace = static_cast<std::byte*>(a.workspace) + scores_bytes_;
    for (size_t k = 0; k < kernels_.size(); ++k) {
      args.inputs.clear();
      args.outputs.clear();
      for (const TensorId id : nodes_[k].inputs) args.inputs.push_back(address(id));
      for (const TensorId id : nodes_[k].outputs) args.outputs.push_back(address(id));
      kernels_[k]->run(args);
    }
  }

 private:
  static constexpr size_t kInputs = 5, kOutputs = 4, kScores = kInputs + kOutputs;

  static TensorId add_like(Graph& parts, const TensorInfo& t, size_t input) {
    TensorInfo like{
        "input " + std::to_string(input), t.type, Role::kInput, Layout::kRowMajor, kNoNode, {}};
    like.storage = t.storage;
    return parts.add_tensor(std::move(like));
  }
  static Attributes only(const Attributes& all, std::initializer_list<const char*> names) {
    Attributes some;
    for (const char* name : names) {
      if (const Attribute* value = all.find(name); value != nullptr) some.set(name, *value);
    }
    return some;
  }
  void place(TensorId id, size_t at) {
    if (id != kNoTensor) places_[static_cast<size_t>(id)] = at;
  }

  std::vector<Node> nodes_;
  std::vector<std::unique_ptr<Kernel>> kernels_;
  std::vector<size_t> places_;  // per tensor: index of an input, an output or kScores
  int64_t scores_bytes_ = 0;
};

}  // namespace trainyard
