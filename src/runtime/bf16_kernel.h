// src/runtime/bf16_kernel.h: kernels of F32 on tensors that are stored in bf16, for backends that
// run on the host: inputs are widened into workspace, outputs are rounded out of it.
#pragma once

#include <algorithm>
#include <map>

#include "kernels/bf16.h"
#include "src/plan/program.h"
#include "src/runtime/kernel_table.h"

namespace trainyard {

/// `Conversion` has widen(count, const Bf16*, float*) and narrow(count, const float*, Bf16*).
template <typename Conversion>
class Bf16Kernel final : public Kernel {
 public:
  Bf16Kernel(std::unique_ptr<Kernel> inner, Conversion conversion, const Graph& g, const Node& n)
      : inner_(std::move(inner)), conversion_(conversion) {
    workspace_bytes_ = aligned(inner_->workspace_bytes());
    inputs_.resize(n.inputs.size());
    outputs_.resize(n.outputs.size());
    std::map<TensorId, int64_t> offsets;  // a tensor that is read twice is widened once
    for (size_t i = 0; i < n.inputs.size(); ++i) {
      if (!has_input(n, i) || !input_info(g, n, i).is_bf16()) continue;
      const auto [it, is_new] = offsets.emplace(n.inputs[i], workspace_bytes_);
      inputs_[i] = add(input_info(g, n, i), it->second, is_new);
    }
    std::vector<bool> taken(n.inputs.size());
    for (size_t o = 0; o < n.outputs.size(); ++o) {
      if (!has_output(n, o) || !output_info(g, n, o).is_bf16()) continue;
      const size_t in = input_to_overwrite(g, n, o, taken);
      const bool is_new = in == n.inputs.size();
      outputs_[o] =
          add(output_info(g, n, o), is_new ? workspace_bytes_ : inputs_[in].offset, is_new);
      if (!is_new) taken[in] = true;
    }
    args_.inputs.resize(n.inputs.size());
    args_.outputs.resize(n.outputs.size());
    args_.mutated.resize(n.op->mutated_inputs().size());  // persistent, and so F32
  }

  int64_t workspace_bytes() const override { return workspace_bytes_; }
  bool takes_bf16() const override { return true; }

  void run(const KernelArgs& a) override {
    auto* memory = static_cast<std::byte*>(a.workspace);
    args_.workspace = memory;
    std::ranges::copy(a.mutated, args_.mutated.begin());
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const Piece& p = inputs_[i];
      args_.inputs[i] = p.is_held ? memory + p.offset : a.inputs[i];
      if (p.is_converted) {
        conversion_.widen(p.count, a.in<math::Bf16>(i),
                          reinterpret_cast<float*>(memory + p.offset));
      }
    }
    for (size_t o = 0; o < outputs_.size(); ++o) {
      args_.outputs[o] = outputs_[o].is_held ? memory + outputs_[o].offset : a.outputs[o];
    }
    inner_->run(args_);
    for (size_t o = 0; o < outputs_.size(); ++o) {
      const Piece& p = outputs_[o];
      if (!p.is_held) continue;
      conversion_.narrow(p.count, reinterpret_cast<const float*>(memory + p.offset),
                         a.out<math::Bf16>(o));
    }
  }

 private:
  /// An F32 copy of a tensor in the workspace.
  struct Piece {
    bool is_held = false;
    bool is_converted = false;  // not by another input, which is the same tensor
    int64_t count = 0;
    int64_t offset = 0;
  };

  static int64_t aligned(int64_t bytes) {
    return (bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
  }
  Piece add(const TensorInfo& t, int64_t offset, bool is_new) {
    if (is_new) workspace_bytes_ += aligned(t.type.bytes());
    return {true, is_new, t.type.shape.elements(), offset};
  }
  /// The input whose copy output `o` may overwrite, as the op allows: the copy is nobody else's.
  size_t input_to_overwrite(const Graph& g, const Node& n, size_t o,
                            const std::vector<bool>& taken) const {
    for (const auto& [output, input] : n.op->may_alias()) {
      const auto i = static_cast<size_t>(input);
      if (static_cast<size_t>(output) != o || !has_input(n, i) || taken[i]) continue;
      const TensorInfo& in = input_info(g, n, i);
      const TensorInfo& out = output_info(g, n, o);
      if (inputs_[i].is_held && in.type.bytes() == out.type.bytes() && in.layout == out.layout &&
          std::ranges::count(n.inputs, n.inputs[i]) == 1) {
        return i;
      }
    }
    return n.inputs.size();
  }

  std::unique_ptr<Kernel> inner_;
  Conversion conversion_;
  std::vector<Piece> inputs_, outputs_;
  int64_t workspace_bytes_ = 0;
  KernelArgs args_;
};

/// The same of a pointwise kernel, a block at a time: the copies never leave the first cache, and
/// need no workspace. Gives the bits of Bf16Kernel.
template <typename Conversion>
class Bf16PointwiseKernel final : public Kernel {
 public:
  Bf16PointwiseKernel(std::unique_ptr<PointwiseKernel> inner, Conversion conversion, const Graph& g,
                      const Node& n)
      : inner_(std::move(inner)), conversion_(conversion) {
    const auto is_bf16 = [&](TensorId id) { return id != kNoTensor && g.tensor(id).is_bf16(); };
    for (const TensorId id : n.inputs) inputs_are_bf16_.push_back(is_bf16(id));
    for (const TensorId id : n.outputs) outputs_are_bf16_.push_back(is_bf16(id));
    TRAINYARD_CHECK(
        n.inputs.size() + n.outputs.size() <= kTensorsMax && n.op->mutated_inputs().empty(),
        n.name + ": not a pointwise op");
    KernelArgs args;
    args.inputs.resize(n.inputs.size());
    args.outputs.resize(n.outputs.size());
    args_.assign(static_cast<size_t>(conversion.parts_max()), args);
  }

  bool takes_bf16() const override { return true; }

  void run(const KernelArgs& a) override {
    conversion_.for_parts(inner_->count(), [&](int part, int64_t begin, int64_t end) {
      for (int64_t at = begin; at < end; at += kBlock) {
        run_block(a, args_[static_cast<size_t>(part)], at, std::min(kBlock, end - at));
      }
    });
  }

 private:
  static constexpr int64_t kBlock = 1024;  // a few of them fit into 32 KiB
  static constexpr size_t kTensorsMax = 6;

  void run_block(const KernelArgs& a, KernelArgs& block, int64_t at, int64_t count) const {
    alignas(kArenaAlignment) float memory[kTensorsMax][kBlock];
    size_t used = 0;
    for (size_t i = 0; i < inputs_are_bf16_.size(); ++i) {
      if (!inputs_are_bf16_[i]) {
        block.inputs[i] = a.inputs[i] == nullptr ? nullptr : a.in<float>(i) + at;
        continue;
      }
      conversion_.widen(count, a.in<math::Bf16>(i) + at, memory[used]);
      block.inputs[i] = memory[used++];
    }
    const size_t first_output = used;
    for (size_t o = 0; o < outputs_are_bf16_.size(); ++o) {
      block.outputs[o] = outputs_are_bf16_[o]      ? memory[used++]
                         : a.outputs[o] == nullptr ? nullptr
                                                   : a.out<float>(o) + at;
    }
    inner_->run_span(block, count);
    used = first_output;
    for (size_t o = 0; o < outputs_are_bf16_.size(); ++o) {
      if (!outputs_are_bf16_[o]) continue;
      conversion_.narrow(count, memory[used++], a.out<math::Bf16>(o) + at);
    }
  }

  std::unique_ptr<PointwiseKernel> inner_;
  Conversion conversion_;
  std::vector<bool> inputs_are_bf16_, outputs_are_bf16_;
  std::vector<KernelArgs> args_;  // by part
};

/// `kernel`, if it takes the node's tensors as they are stored, or one around it that converts.
template <typename Conversion>
std::unique_ptr<Kernel> with_storage(std::unique_ptr<Kernel> kernel, Conversion conversion,
                                     const Graph& g, const Node& n) {
  if (kernel->takes_bf16() || !touches_bf16(g, n)) return kernel;
  if (auto* pointwise = dynamic_cast<PointwiseKernel*>(kernel.get()); pointwise != nullptr) {
    (void)kernel.release();
    return std::make_unique<Bf16PointwiseKernel<Conversion>>(
        std::unique_ptr<PointwiseKernel>(pointwise), conversion, g, n);
  }
  return std::make_unique<Bf16Kernel<Conversion>>(std::move(kernel), conversion, g, n);
}

/// y = x, each as it is stored. `Conversion` has copy(bytes, const std::byte*, std::byte*) too.
template <typename Conversion>
std::unique_ptr<Kernel> make_stored_copy(Conversion conversion, const TensorInfo& x,
                                         const TensorInfo& y) {
  const int64_t count = x.type.shape.elements();
  if (x.storage == y.storage) {
    return make_stored_kernel([conversion, bytes = x.stored_bytes()](const KernelArgs& a) {
      conversion.copy(bytes, a.in<std::byte>(0), a.out<std::byte>(0));
    });
  }
  if (x.is_bf16()) {
    return make_stored_kernel([conversion, count](const KernelArgs& a) {
      conversion.widen(count, a.in<math::Bf16>(0), a.out<float>(0));
    });
  }
  return make_stored_kernel([conversion, count](const KernelArgs& a) {
    conversion.narrow(count, a.in<float>(0), a.out<math::Bf16>(0));
  });
}

}  // namespace trainyard
