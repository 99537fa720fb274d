// Parameter updates, and what happens to gradients before. What changes from step to step - the
// learning rate, the step - is read from device memory by the kernels, so that a recorded step can
// be replayed.
#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "kernels/cuda/updates.h"
#include "kernels/gradient.h"
#include "src/runtime/cuda/kernels.h"
#include "src/runtime/cuda/matmul.h"
#include "src/runtime/op_params.h"

namespace trainyard::cuda {
namespace {

using namespace kernels;  // NOLINT: contracts
namespace gpu = kernels::cuda;

// How each elementwise kind is read from a node's arguments.

auto read_sgd(const Graph& g, const Node& n) {
  return [p = sgd_params(g, n), operands = Operands(g, n)](const KernelArgs& a) {
    return gpu::SgdUpdate{{p, operands.in(a, 1), a.in<float>(2), a.mut<float>(0)}, a.mut<float>(1)};
  };
}

auto read_adam(const Graph& g, const Node& n) {
  return [p = adam_params(g, n), operands = Operands(g, n)](const KernelArgs& a) {
    return gpu::AdamUpdate{{p, operands.in(a, 1), a.in<float>(2), a.mut<float>(0)},
                           a.in<int64_t>(3),
                           a.mut<float>(1),
                           a.mut<float>(2)};
  };
}

auto read_rmsprop(const Graph& g, const Node& n) {
  return [p = rmsprop_params(g, n), operands = Operands(g, n)](const KernelArgs& a) {
    return gpu::RmspropUpdate{{p, operands.in(a, 1), a.in<float>(2), a.mut<float>(0)},
                              a.mut<float>(1),
                              a.mut<float>(2),
                              a.mut<float>(3)};
  };
}

auto read_lion(const Graph& g, const Node& n) {
  return [p = lion_params(g, n), operands = Operands(g, n)](const KernelArgs& a) {
    return gpu::LionUpdate{{p, operands.in(a, 1), a.in<float>(2), a.mut<float>(0)},
                           a.mut<float>(1)};
  };
}

auto read_moving_average(const Graph& g, const Node& n) {
  return [p = moving_average_params(g, n)](const KernelArgs& a) {
    return gpu::MovingAverageUpdate{p, a.in<float>(1), a.in<int64_t>(2), a.mut<float>(0)};
  };
}

auto read_accumulation(const Graph& g, const Node& n) {
  return [p = gpu::GradientAccumulation::Params{input_info(g, n, 0).type.shape.elements(),
                                                n.attributes.get_float("share", 1)},
          operands = Operands(g, n)](const KernelArgs& a) {
    return gpu::GradientAccumulation{p, operands.in(a, 1), a.in<int64_t>(2), a.mut<float>(0)};
  };
}

auto read_clipping(const Graph& g, const Node& n) {
  return [p = clip_gradient_params(g, n), scaled = has_input(n, 1),
          operands = Operands(g, n)](const KernelArgs& a) {
    return gpu::GradientClipping{p, operands.in(a, 0), scaled ? a.in<float>(1) : nullptr,
                                 operands.out(a, 0)};
  };
}

auto read_conversion(const Graph& g, const Node& n) {
  return [p = gpu::Conversion::Params{input_info(g, n, 0).type.shape.elements()},
          operands = Operands(g, n)](const KernelArgs& a) {
    return gpu::Conversion{p, operands.in(a, 0), operands.out(a, 0)};
  };
}

template <auto read>
std::unique_ptr<Kernel> make_one(const Device& device, const Graph& g, const Node& n) {
  return make_kernel([update = read(g, n), stream = device.stream()](const KernelArgs& a) {
    gpu::update(update(a), stream);
  });
}

/// The operands of all nodes lie in a table on the device, which the first run fills: addresses are
/// bound once. Its memory is there before, as a job that trains allocates none.
template <auto read>
class GroupKernel final : public Kernel {
  using Read = decltype(read(std::declval<Graph>(), std::declval<Node>()));
  using Update = decltype(std::declval<Read>()(KernelArgs{}));

 public:
  GroupKernel(const Device& device, const Graph& g, std::span<const NodeId> nodes)
      : device_(device) {
    KernelArgs unbound;
    for (const NodeId k : nodes) {
      const Node& n = g.node(k);
      const Member m{read(g, n), n.inputs.size(), n.outputs.size(), n.op->mutated_inputs().size()};
      unbound.inputs.resize(unbound.inputs.size() + m.inputs);
      unbound.outputs.resize(unbound.outputs.size() + m.outputs);
      unbound.mutated.resize(unbound.mutated.size() + m.mutated);
      members_.push_back(m);
    }
    table_ = device_.allocate(std::ssize(table_of(unbound).bytes));
  }

  void run(const KernelArgs& a) override {
    if (chunks_ == 0) {
      const gpu::UpdateTable table = table_of(a);
      check(cudaMemcpyAsync(table_.get(), table.bytes.data(), table.bytes.size(),
                            cudaMemcpyHostToDevice, device_.stream()),
            "copying the table of a group");
      device_.synchronize();
      chunks_ = table.chunks;
    }
    gpu::update_all<Update>(table_.get(), chunks_, device_.stream());
  }

 private:
  struct Member {
    Read read_update;
    size_t inputs, outputs, mutated;
  };

  gpu::UpdateTable table_of(const KernelArgs& a) const {
    std::vector<Update> updates;
    auto in = a.inputs.begin();
    auto out = a.outputs.begin();
    auto mutated = a.mutated.begin();
    const auto take = [](auto& from, size_t count) {
      const auto begin = from;
      from += static_cast<std::ptrdiff_t>(count);
      return std::vector(begin, from);
    };
    for (const Member& m : members_) {
      KernelArgs own;
      own.inputs = take(in, m.inputs);
      own.outputs = take(out, m.outputs);
      own.mutated = take(mutated, m.mutated);
      updates.push_back(m.read_update(own));
    }
    return gpu::update_table<Update>(updates);
  }

  const Device& device_;
  std::vector<Member> members_;
  DeviceMemory table_;
  int64_t chunks_ = 0;  // 0: not bound
};

template <auto read>
std::unique_ptr<Kernel> make_group(const Device& device, const Graph& g,
                                   std::span<const NodeId> nodes) {
  return std::make_unique<GroupKernel<read>>(device, g, nodes);
}

/// nullptr where one of them does more than change the format, or nothing.
std::unique_ptr<Kernel> make_cast_group(const Device& device, const Graph& g,
                                        std::span<const NodeId> nodes) {
  const bool converts = std::ranges::all_of(nodes, [&](NodeId k) {
    const TensorInfo &x = input_info(g, g.node(k), 0), &y = output_info(g, g.node(k), 0);
    return y.type.dtype == DType::kF32 && x.type.dtype == DType::kF32 && x.storage != y.storage;
  });
  return converts ? make_group<read_conversion>(device, g, nodes) : nullptr;
}

std::unique_ptr<Kernel> make_adafactor(const Device& device, const Graph& g, const Node& n) {
  const AdafactorParams p = adafactor_params(g, n);
  return make_kernel(
      [p, operands = Operands(g, n), stream = device.stream()](const KernelArgs& a) {
        gpu::adafactor(p, operands.in(a, 1), a.in<float>(2), a.in<int64_t>(3), a.mut<float>(0),
                       a.mut<float>(2), a.mut<float>(1), a.workspace, stream);
      },
      gpu::adafactor_workspace_bytes(p));
}

/// The Newton-Schulz iteration: A = X X' (of a tall matrix X' X), A^2, and X times the polynomial.
class MuonKernel final : public Kernel {
 public:
  MuonKernel(const Device& device, const Graph& g, const Node& n)
      : stream_(device.stream()), operands_(g, n), s_(muon_params(g, n)) {
    const int64_t rows = s_.rows, columns = s_.columns;
    const bool tall = rows > columns;
    side_ = std::min(rows, columns);
    gram_.emplace(device, MatmulDims{side_, side_, std::max(rows, columns), tall, !tall});
    square_.emplace(device, MatmulDims{side_, side_, side_});
    next_.emplace(device, MatmulDims{rows, columns, side_});
    tall_ = tall;
    const auto floats = [](int64_t count) {
      return aligned(count * static_cast<int64_t>(sizeof(float)));
    };
    next_at_ = floats(rows * columns);
    gram_at_ = 2 * next_at_;
    square_at_ = gram_at_ + floats(side_ * side_);
    spare_at_ = square_at_ + floats(side_ * side_);
  }

  int64_t workspace_bytes() const override {
    return spare_at_ + std::max({gpu::muon_norm_workspace_bytes(), gram_->workspace_bytes(),
                                 square_->workspace_bytes(), next_->workspace_bytes()});
  }

  void run(const KernelArgs& a) override {
    auto* memory = static_cast<std::byte*>(a.workspace);
    auto* x = reinterpret_cast<float*>(memory);
    auto* next = reinterpret_cast<float*>(memory + next_at_);
    auto* gram = reinterpret_cast<float*>(memory + gram_at_);
    auto* square = reinterpret_cast<float*>(memory + square_at_);
    void* spare = memory + spare_at_;
    gpu::muon_begin(s_, operands_.in(a, 1), a.in<float>(2), a.mut<float>(1), x, spare, stream_);
    for (int64_t k = 0; k < s_.iterations; ++k) {
      gram_->run(x, x, {}, gram, spare);
      square_->run(gram, gram, {}, square, spare);
      gpu::muon_polynomial(side_, gram, square, stream_);
      next_->run(tall_ ? x : square, tall_ ? square : x, {}, next, spare);
      std::swap(x, next);
    }
    gpu::muon_end(s_, x, a.in<float>(2), a.mut<float>(0), stream_);
  }

 private:
  CUstream_st* stream_;
  Operands operands_;
  MuonParams s_;
  int64_t side_ = 0;
  bool tall_ = false;
  std::optional<Matmul> gram_, square_, next_;
  int64_t next_at_ = 0, gram_at_ = 0, square_at_ = 0, spare_at_ = 0;
};

std::unique_ptr<Kernel> make_muon(const Device& device, const Graph& g, const Node& n) {
  return std::make_unique<MuonKernel>(device, g, n);
}

std::unique_ptr<Kernel> make_gradient_norm(const Device& device, const Graph& g, const Node& n) {
  const GradientNormParams p = gradient_norm_params(g, n);
  const int64_t workspace_bytes = gpu::gradient_norm_workspace_bytes(p);
  return make_kernel(
      [p, operands = Operands(g, n), gradients = std::vector<gpu::In>(p.counts.size()),
       stream = device.stream()](const KernelArgs& a) mutable {
        for (size_t i = 0; i < gradients.size(); ++i) gradients[i] = operands.in(a, i);
        gpu::gradient_norm(p, gradients, p.scaled ? a.in<float>(p.counts.size()) : nullptr,
                           a.out<float>(0), a.out<float>(1), a.workspace, stream);
      },
      workspace_bytes);
}

std::unique_ptr<Kernel> make_loss_scale(const Device& device, const Graph&, const Node& n) {
  return make_kernel([s = loss_scaling(n), stream = device.stream()](const KernelArgs& a) {
    gpu::loss_scale_update(s, a.in<float>(3), a.in<float>(4), loss_scale<float>(a),
                           loss_scale_step<float>(a), stream);
  });
}

}  // namespace

std::span<const CudaEntry> update_kernels() {
  static constexpr CudaEntry kEntries[] = {
      {"SgdUpdate", make_one<read_sgd>},
      {"AdamUpdate", make_one<read_adam>},
      {"AdamWUpdate", make_one<read_adam>},
      {"RmspropUpdate", make_one<read_rmsprop>},
      {"LionUpdate", make_one<read_lion>},
      {"AdafactorUpdate", make_adafactor},
      {"MuonUpdate", make_muon},
      {"GradientNorm", make_gradient_norm},
      {"ClipGradient", make_one<read_clipping>},
      {"LossScaleUpdate", make_loss_scale},
      {"AccumulateGradient", make_one<read_accumulation>},
      {"MovingAverageUpdate", make_one<read_moving_average>},
  };
  return kEntries;
}

// Adafactor sums over its tensor and Muon multiplies it: they stay single.
std::unique_ptr<Kernel> make_update_group(const Device& device, const Graph& graph,
                                          std::span<const NodeId> nodes) {
  using Make = std::unique_ptr<Kernel> (*)(const Device&, const Graph&, std::span<const NodeId>);
  static constexpr std::pair<std::string_view, Make> kMakes[] = {
      {"SgdUpdate", make_group<read_sgd>},
      {"AdamUpdate", make_group<read_adam>},
      {"AdamWUpdate", make_group<read_adam>},
      {"RmspropUpdate", make_group<read_rmsprop>},
      {"LionUpdate", make_group<read_lion>},
      {"ClipGradient", make_group<read_clipping>},
      {"AccumulateGradient", make_group<read_accumulation>},
      {"MovingAverageUpdate", make_group<read_moving_average>},
      {"Cast", make_cast_group},
  };
  const std::string_view type = graph.node(nodes[0]).op->type();
  for (const auto& [name, make] : kMakes) {
    if (name == type) return make(device, graph, nodes);
  }
  return nullptr;
}

}  // namespace trainyard::cuda
