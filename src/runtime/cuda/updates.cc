// Parameter updates, and what happens to gradients before. What changes from step to step - the
// learning rate, the step - is read from device memory by the kernels, so that a recorded step can
// be replayed.
#include <algorithm>
#include <optional>

#include "kernels/gradient.h"
#include "src/runtime/cuda/kernels.h"
#include "src/runtime/cuda/matmul.h"
#include "src/runtime/op_params.h"

namespace trainyard::cuda {
namespace {

using namespace kernels;  // NOLINT: contracts
namespace gpu = kernels::cuda;

std::unique_ptr<Kernel> make_sgd(const Device& device, const Graph& g, const Node& n) {
  return make_kernel([p = sgd_params(g, n), operands = Operands(g, n),
                      stream = device.stream()](const KernelArgs& a) {
    gpu::sgd(p, operands.in(a, 1), a.in<float>(2), a.mut<float>(0), a.mut<float>(1), stream);
  });
}

std::unique_ptr<Kernel> make_adam(const Device& device, const Graph& g, const Node& n) {
  return make_kernel([p = adam_params(g, n), operands = Operands(g, n),
                      stream = device.stream()](const KernelArgs& a) {
    gpu::adam(p, operands.in(a, 1), a.in<float>(2), a.in<int64_t>(3), a.mut<float>(0),
              a.mut<float>(1), a.mut<float>(2), stream);
  });
}

std::unique_ptr<Kernel> make_rmsprop(const Device& device, const Graph& g, const Node& n) {
  return make_kernel([p = rmsprop_params(g, n), operands = Operands(g, n),
                      stream = device.stream()](const KernelArgs& a) {
    gpu::rmsprop(p, operands.in(a, 1), a.in<float>(2), a.mut<float>(0), a.mut<float>(1),
                 a.mut<float>(2), a.mut<float>(3), stream);
  });
}

std::unique_ptr<Kernel> make_lion(const Device& device, const Graph& g, const Node& n) {
  return make_kernel([p = lion_params(g, n), operands = Operands(g, n),
                      stream = device.stream()](const KernelArgs& a) {
    gpu::lion(p, operands.in(a, 1), a.in<float>(2), a.mut<float>(0), a.mut<float>(1), stream);
  });
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
      gram_->run(x, x, nullptr, gram, spare);
      square_->run(gram, gram, nullptr, square, spare);
      gpu::muon_polynomial(side_, gram, square, stream_);
      next_->run(tall_ ? x : square, tall_ ? square : x, nullptr, next, spare);
      std::swap(x, next);
    }
    gpu::muon_end(s_, x, a.in<float>(2), a.mut<float>(0), stream_);
  }

 private:
  static int64_t aligned(int64_t bytes) { return (bytes + 255) / 256 * 256; }

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

std::unique_ptr<Kernel> make_clip_gradient(const Device& device, const Graph& g, const Node& n) {
  return make_kernel([p = clip_gradient_params(g, n), scaled = has_input(n, 1),
                      operands = Operands(g, n), stream = device.stream()](const KernelArgs& a) {
    gpu::clip_gradient(p, operands.in(a, 0), scaled ? a.in<float>(1) : nullptr, operands.out(a, 0),
                       stream);
  });
}

std::unique_ptr<Kernel> make_loss_scale(const Device& device, const Graph&, const Node& n) {
  return make_kernel([s = loss_scaling(n), stream = device.stream()](const KernelArgs& a) {
    gpu::loss_scale_update(s, a.in<float>(3), a.in<float>(4), loss_scale<float>(a),
                           loss_scale_step<float>(a), stream);
  });
}

std::unique_ptr<Kernel> make_accumulate(const Device& device, const Graph& g, const Node& n) {
  return make_kernel([count = input_info(g, n, 0).type.shape.elements(),
                      share = n.attributes.get_float("share", 1), operands = Operands(g, n),
                      stream = device.stream()](const KernelArgs& a) {
    gpu::accumulate_gradient(count, share, operands.in(a, 1), a.in<int64_t>(2), a.mut<float>(0),
                             stream);
  });
}

std::unique_ptr<Kernel> make_moving_average(const Device& device, const Graph& g, const Node& n) {
  return make_kernel(
      [p = moving_average_params(g, n), stream = device.stream()](const KernelArgs& a) {
        gpu::moving_average(p, a.in<float>(1), a.in<int64_t>(2), a.mut<float>(0), stream);
      });
}

}  // namespace

std::span<const CudaEntry> update_kernels() {
  static constexpr CudaEntry kEntries[] = {
      {"SgdUpdate", make_sgd},
      {"AdamUpdate", make_adam},
      {"AdamWUpdate", make_adam},
      {"RmspropUpdate", make_rmsprop},
      {"LionUpdate", make_lion},
      {"AdafactorUpdate", make_adafactor},
      {"MuonUpdate", make_muon},
      {"GradientNorm", make_gradient_norm},
      {"ClipGradient", make_clip_gradient},
      {"LossScaleUpdate", make_loss_scale},
      {"AccumulateGradient", make_accumulate},
      {"MovingAverageUpdate", make_moving_average},
  };
  return kEntries;
}

}  // namespace trainyard::cuda
