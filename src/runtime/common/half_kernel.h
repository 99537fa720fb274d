// src/runtime/common/half_kernel.h: runs F32 kernels on tensors stored in 16 bits (bf16 or f16) on
// host backends: inputs are widened into the workspace, and outputs are rounded from there.
#pragma once

#include <algorithm>
#include <map>

#include "kernels/alignment.h"
#include "kernels/half.h"
#include "src/base/check.h"
#include "src/runtime/common/kernel_table.h"

namespace trainyard {

/// Calls f(math::Bf16()) or f(math::F16()).
template <typename F>
void with_half(Storage storage, F f) {
  if (storage == Storage::kF16) {
    f(math::F16());
  } else {
    f(math::Bf16());
  }
}
/// `Conversion` provides widen(count, const Half*, float*) and narrow(count, const float*, Half*).
template <typename Conversion>
void widen(const Conversion& conversion, Storage storage, int64_t count, const void* x, float* y) {
  with_half(storage,
            [&]<typename Half>(Half) { conversion.widen(count, static_cast<const Half*>(x), y); });
}
template <typename Conversion>
void narrow(const Conversion& conversion, Storage storage, int64_t count, const float* x, void* y) {
  with_half(storage,
            [&]<typename Half>(Half) { conversion.narrow(count, x, static_cast<Half*>(y)); });
}

template <typename Conversion>
class HalfKernel final : public Kernel {
 public:
  HalfKernel(std::unique_ptr<Kernel> inner, Conversion conversion, const Graph& g, const Node& n)
      : inner_(std::move(inner)), conversion_(conversion) {
    workspace_bytes_ = round_up(inner_->workspace_bytes(), kHostAlignment);
    inputs_.resize(n.inputs.size());
    outputs_.resize(n.outputs.size());
    std::map<TensorId, int64_t> offsets;  // a tensor that is read twice is widened once
    for (size_t i = 0; i < n.inputs.size(); ++i) {
      if (!has_input(n, i) || !input_info(g, n, i).is_half()) continue;
      const auto [it, is_new] = offsets.emplace(n.inputs[i], workspace_bytes_);
      inputs_[i] = add(input_info(g, n, i), it->second, is_new);
    }
    std::vector<bool> taken(n.inputs.size());
    for (size_t o = 0; o < n.outputs.size(); ++o) {
      if (!has_output(n, o) || !output_info(g, n, o).is_half()) continue;
      const size_t in = input_to_overwrite(g, n, o, taken);
      const bool is_new = in == n.inputs.size();
      outputs_[o] =
          add(output_info(g, n, o), is_new ? workspace_bytes_ : inputs_[in].offset, is_new);
      if (!is_new) taken[in] = true;
    }
    args_.inputs.resize(n.inputs.size());
    args_.outputs.resize(n.outputs.size());
    for (const int64_t i : n.op->mutated_inputs(n)) {
      mutated_.push_back(inputs_.at(static_cast<size_t>(i)));
    }
    args_.mutated.resize(mutated_.size());
  }

  int64_t workspace_bytes() const override { return workspace_bytes_; }
  bool accepts_stored_types() const override { return true; }

  void run(const KernelArgs& a) override {
    auto* memory = static_cast<std::byte*>(a.workspace);
    args_.workspace = memory;
    for (size_t i = 0; i < mutated_.size(); ++i) {
      args_.mutated[i] = mutated_[i].has_copy ? memory + mutated_[i].offset : a.mutated[i];
    }
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const Piece& p = inputs_[i];
      args_.inputs[i] = p.has_copy ? memory + p.offset : a.inputs[i];
      if (p.is_converted) {
        widen(conversion_, p.storage, p.count, a.inputs[i],
              reinterpret_cast<float*>(memory + p.offset));
      }
    }
    for (size_t o = 0; o < outputs_.size(); ++o) {
      args_.outputs[o] = outputs_[o].has_copy ? memory + outputs_[o].offset : a.outputs[o];
    }
    inner_->run(args_);
    narrow_all(outputs_, memory, a.outputs);
    narrow_all(mutated_, memory, a.mutated);
  }

 private:
  /// The F32 copy of a tensor in the workspace.
  struct Piece {
    bool has_copy = false;
    bool is_converted = false;  // false if another input is the same tensor and converts it
    Storage storage = Storage::kAsTyped;  // storage type of the tensor
    int64_t count = 0;
    int64_t offset = 0;
  };

  void narrow_all(const std::vector<Piece>& pieces, const std::byte* memory,
                  const std::vector<void*>& to) const {
    for (size_t i = 0; i < pieces.size(); ++i) {
      const Piece& p = pieces[i];
      if (!p.has_copy) continue;
      narrow(conversion_, p.storage, p.count, reinterpret_cast<const float*>(memory + p.offset),
             to[i]);
    }
  }
  Piece add(const TensorInfo& t, int64_t offset, bool is_new) {
    if (is_new) workspace_bytes_ += round_up(t.type.bytes(), kHostAlignment);
    return {true, is_new, t.storage, t.type.shape.elements(), offset};
  }
  /// Returns the input whose F32 copy output `o` may overwrite, if the op allows it and no other
  /// input uses the copy. n.inputs.size() if there is none.
  size_t input_to_overwrite(const Graph& g, const Node& n, size_t o,
                            const std::vector<bool>& taken) const {
    for (const auto& [output, input] : n.op->may_alias(n)) {
      const auto i = static_cast<size_t>(input);
      if (static_cast<size_t>(output) != o || !has_input(n, i) || taken[i]) continue;
      const TensorInfo& in = input_info(g, n, i);
      const TensorInfo& out = output_info(g, n, o);
      if (inputs_[i].has_copy && in.type.bytes() == out.type.bytes() && in.layout == out.layout &&
          std::ranges::count(n.inputs, n.inputs[i]) == 1) {
        return i;
      }
    }
    return n.inputs.size();
  }

  std::unique_ptr<Kernel> inner_;
  Conversion conversion_;
  std::vector<Piece> inputs_, outputs_, mutated_;
  int64_t workspace_bytes_ = 0;
  KernelArgs args_;
};

/// Like HalfKernel for a pointwise kernel, one block at a time: the F32 copies stay in the L1 cache
/// and need no workspace. Results are bit-identical to those of HalfKernel.
template <typename Conversion>
class HalfPointwiseKernel final : public Kernel {
 public:
  HalfPointwiseKernel(std::unique_ptr<PointwiseKernel> inner, Conversion conversion, const Graph& g,
                      const Node& n)
      : inner_(std::move(inner)), conversion_(conversion) {
    const auto storage = [&](TensorId id) {
      return id == kNoTensor ? Storage::kAsTyped : g.tensor(id).storage;
    };
    for (const TensorId id : n.inputs) inputs_.push_back(storage(id));
    for (const TensorId id : n.outputs) outputs_.push_back(storage(id));
    TRAINYARD_CHECK(
        n.inputs.size() + n.outputs.size() <= kTensorsMax && n.op->mutated_inputs(n).empty(),
        n.name + ": not a pointwise op");
    KernelArgs args;
    args.inputs.resize(n.inputs.size());
    args.outputs.resize(n.outputs.size());
    args_.assign(static_cast<size_t>(conversion.parts_max()), args);
  }

  bool accepts_stored_types() const override { return true; }

  void run(const KernelArgs& a) override {
    conversion_.for_parts(inner_->count(), [&](int part, int64_t begin, int64_t end) {
      for (int64_t at = begin; at < end; at += kBlock) {
        run_block(a, args_[static_cast<size_t>(part)], at, std::min(kBlock, end - at));
      }
    });
  }

 private:
  static constexpr int64_t kBlock = 1024;  // elements; a few blocks fit into 32 KiB
  static constexpr size_t kTensorsMax = 6;
  static constexpr int64_t kHalfBytes = 2;

  void run_block(const KernelArgs& a, KernelArgs& block, int64_t at, int64_t count) const {
    alignas(kHostAlignment) float memory[kTensorsMax][kBlock];
    size_t used = 0;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (inputs_[i] == Storage::kAsTyped) {
        block.inputs[i] = a.inputs[i] == nullptr ? nullptr : a.in<float>(i) + at;
        continue;
      }
      widen(conversion_, inputs_[i], count, a.in<std::byte>(i) + kHalfBytes * at, memory[used]);
      block.inputs[i] = memory[used++];
    }
    const size_t first_output = used;
    for (size_t o = 0; o < outputs_.size(); ++o) {
      block.outputs[o] = outputs_[o] != Storage::kAsTyped ? memory[used++]
                         : a.outputs[o] == nullptr        ? nullptr
                                                          : a.out<float>(o) + at;
    }
    inner_->run_span(block, count);
    used = first_output;
    for (size_t o = 0; o < outputs_.size(); ++o) {
      if (outputs_[o] == Storage::kAsTyped) continue;
      narrow(conversion_, outputs_[o], count, memory[used++],
             a.out<std::byte>(o) + kHalfBytes * at);
    }
  }

  std::unique_ptr<PointwiseKernel> inner_;
  Conversion conversion_;
  std::vector<Storage> inputs_, outputs_;
  std::vector<KernelArgs> args_;  // one per part (thread)
};

/// Returns `kernel` if it accepts the node's tensors in their stored types, else a kernel that
/// wraps it and converts.
template <typename Conversion>
std::unique_ptr<Kernel> with_storage(std::unique_ptr<Kernel> kernel, Conversion conversion,
                                     const Graph& g, const Node& n) {
  if (kernel->accepts_stored_types() || !touches_half(g, n)) return kernel;
  if (auto* pointwise = dynamic_cast<PointwiseKernel*>(kernel.get()); pointwise != nullptr) {
    (void)kernel.release();
    return std::make_unique<HalfPointwiseKernel<Conversion>>(
        std::unique_ptr<PointwiseKernel>(pointwise), conversion, g, n);
  }
  return std::make_unique<HalfKernel<Conversion>>(std::move(kernel), conversion, g, n);
}

/// Makes the kernel of y = x, each in its stored type. `Conversion` must also provide copy(bytes,
/// const std::byte*, std::byte*).
template <typename Conversion>
std::unique_ptr<Kernel> make_stored_copy(Conversion conversion, const TensorInfo& x,
                                         const TensorInfo& y) {
  const int64_t count = x.type.shape.elements();
  if (x.storage == y.storage) {
    return make_stored_kernel([conversion, bytes = x.stored_bytes()](const KernelArgs& a) {
      conversion.copy(bytes, a.in<std::byte>(0), a.out<std::byte>(0));
    });
  }
  TRAINYARD_CHECK(!x.is_half() || !y.is_half(), x.name + ": one program has one half precision");
  if (x.is_half()) {
    return make_stored_kernel([conversion, storage = x.storage, count](const KernelArgs& a) {
      widen(conversion, storage, count, a.inputs[0], a.out<float>(0));
    });
  }
  return make_stored_kernel([conversion, storage = y.storage, count](const KernelArgs& a) {
    narrow(conversion, storage, count, a.in<float>(0), a.outputs[0]);
  });
}

}  // namespace trainyard
