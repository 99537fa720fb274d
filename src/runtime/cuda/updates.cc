// src/runtime/cuda/updates.cc: parameter updates and the preceding operations on gradients. Kernels
// read values that change from step to step (learning rate, step number) from device memory, so
// that a recorded step can be replayed.
#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "kernels/cuda/updates.h"
#include "src/runtime/common/update_kernels.h"
#include "src/runtime/cuda/cublaslt_matmul.h"
#include "src/runtime/cuda/kernels.h"

namespace trainyard::cuda {
namespace {

using namespace kernels;  // NOLINT: contracts
namespace gpu = kernels::cuda;

/// Converts a tensor to another format, as a kind of update.
struct Conversion {
  static gpu::Conversion::Params params(const Graph& g, const Node& n) {
    return {input_info(g, n, 0).type.shape.elements()};
  }
  static gpu::ConversionOperands operands(const Operands& o, const KernelArgs& a) {
    return {.x = o.in(a, 0), .y = o.out(a, 0)};
  }
};

/// The operands of all nodes are in a table on the device, which the first run fills, since
/// addresses never change afterwards. The table is allocated in advance, because training must not
/// allocate memory.
template <typename Kind>
class GroupKernel final : public Kernel {
  using Params = decltype(Kind::params(std::declval<Graph>(), std::declval<Node>()));
  using Update = decltype(gpu::update_of(
      std::declval<Params>(), Kind::operands(std::declval<StreamOperands>(), KernelArgs{})));

 public:
  GroupKernel(const Device& device, const Graph& g, std::span<const NodeId> nodes)
      : device_(device) {
    KernelArgs unbound;
    for (const NodeId k : nodes) {
      const Node& n = g.node(k);
      const Member m{Kind::params(g, n),  StreamOperands(device, g, n),
                     first_updated(g, n), n.inputs.size(),
                     n.outputs.size(),    n.op->mutated_inputs(n).size()};
      unbound.inputs.resize(unbound.inputs.size() + m.inputs);
      unbound.outputs.resize(unbound.outputs.size() + m.outputs);
      unbound.mutated.resize(unbound.mutated.size() + m.mutated);
      members_.push_back(m);
    }
    table_ = device_.allocate(std::ssize(table_of(unbound, false).bytes));
  }

  void run(const KernelArgs& a) override {
    if (!is_bound_) {
      const gpu::UpdateTable table = table_of(a, true);
      if (table.chunks > 0) {
        check(cudaMemcpyAsync(table_.get(), table.bytes.data(), table.bytes.size(),
                              cudaMemcpyHostToDevice, device_.stream()),
              "copying the table of a group");
        device_.synchronize();
      }
      chunks_ = table.chunks;
      is_bound_ = true;
    }
    // A rank may have no elements of any of the parameters.
    if (chunks_ > 0) gpu::update_all<Update>(table_.get(), chunks_, device_.stream());
  }

 private:
  struct Member {
    Params params;
    StreamOperands operands;
    int64_t first;  // first updated element of the parameter
    size_t inputs, outputs, mutated;
  };

  gpu::UpdateTable table_of(const KernelArgs& a, bool is_bound) const {
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
      if (elements_of(m.params) == 0) continue;
      const auto operands = operands_from<Kind>(m.first, m.operands, own);
      if (is_bound) check(m.params, operands);
      updates.push_back(gpu::update_of(m.params, operands));
    }
    return updates.empty() ? gpu::UpdateTable() : gpu::update_table<Update>(updates);
  }

  const Device& device_;
  std::vector<Member> members_;
  DeviceMemory table_;
  int64_t chunks_ = 0;
  bool is_bound_ = false;
};

template <typename Kind>
std::unique_ptr<Kernel> make_group(const Device& device, const Graph& g,
                                   std::span<const NodeId> nodes) {
  return std::make_unique<GroupKernel<Kind>>(device, g, nodes);
}

/// nullptr if any of the casts does not change the format, or converts to another type.
std::unique_ptr<Kernel> make_cast_group(const Device& device, const Graph& g,
                                        std::span<const NodeId> nodes) {
  const bool converts = std::ranges::all_of(nodes, [&](NodeId k) {
    const TensorInfo &x = input_info(g, g.node(k), 0), &y = output_info(g, g.node(k), 0);
    return y.type.dtype == DType::kF32 && x.type.dtype == DType::kF32 && x.storage != y.storage;
  });
  return converts ? make_group<Conversion>(device, g, nodes) : nullptr;
}

/// The Newton-Schulz iteration: A = X X' (X' X for a tall matrix), A^2, and X times the polynomial.
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

}  // namespace

std::span<const CudaEntry> update_kernels() {
  return trainyard::update_kernels<const Device, gpu::gradient_norm_workspace_bytes,
                                   gpu::gradient_squares_workspace_bytes,
                                   gpu::adafactor_workspace_bytes>();
}

std::span<const CudaEntry> muon_kernels() {
  static constexpr CudaEntry kEntries[] = {{"MuonUpdate", make_muon}};
  return kEntries;
}

// Adafactor sums over its tensor and Muon multiplies it, so they are not grouped.
std::unique_ptr<Kernel> make_update_group(const Device& device, const Graph& graph,
                                          std::span<const NodeId> nodes) {
  using Make = std::unique_ptr<Kernel> (*)(const Device&, const Graph&, std::span<const NodeId>);
  static constexpr std::pair<std::string_view, Make> kMakes[] = {
      {"SgdUpdate", make_group<Sgd>},
      {"AdamUpdate", make_group<Adam>},
      {"AdamWUpdate", make_group<Adam>},
      {"RmspropUpdate", make_group<Rmsprop>},
      {"LionUpdate", make_group<Lion>},
      {"ClipGradient", make_group<ClipGradient>},
      {"AccumulateGradient", make_group<AccumulateGradient>},
      {"MovingAverageUpdate", make_group<MovingAverage>},
      {"Cast", make_cast_group},
  };
  const std::string_view type = graph.node(nodes[0]).op->type();
  for (const auto& [name, make] : kMakes) {
    if (name == type) return make(device, graph, nodes);
  }
  return nullptr;
}

}  // namespace trainyard::cuda
