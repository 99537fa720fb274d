// Measures the cpu kernels of MLP and LeNet training, in GFLOP/s and as a share of the fp32 peak
// that is measured in the same run. Threads: all cores, or TRAINYARD_THREADS.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "kernels/activation.h"
#include "kernels/batch_norm.h"
#include "kernels/conv.h"
#include "kernels/cpu/peak_flops.h"
#include "kernels/cpu/team.h"
#include "kernels/gemm.h"
#include "kernels/optimizer.h"
#include "kernels/pool.h"

namespace trainyard::kernels {
namespace {

int threads() {
  static const int count = [] {
    const char* wish = std::getenv("TRAINYARD_THREADS");
    return wish != nullptr ? std::max(1, std::atoi(wish))
                           : static_cast<int>(std::thread::hardware_concurrency());
  }();
  return count;
}

cpu::Team& team() {
  static cpu::Team shared(threads());
  return shared;
}

double peak_gflops() {
  static const double peak = kernels::cpu::measure_peak_gflops(threads());
  return peak;
}

// A buffer like a part of the arena: 64-byte aligned, filled with small numbers.
class Buffer {
 public:
  explicit Buffer(int64_t count)
      : data_(static_cast<float*>(
            std::aligned_alloc(64, static_cast<size_t>((count * 4 + 127) / 64 * 64)))) {
    for (int64_t i = 0; i < count; ++i) data_[i] = static_cast<float>(i % 17) * 0.1f - 0.8f;
  }
  ~Buffer() { std::free(data_); }
  Buffer(const Buffer&) = delete;
  float* get() const { return data_; }

 private:
  float* data_;
};

void report(benchmark::State& state, double flops) {
  const double rate = flops * static_cast<double>(state.iterations()) / 1e9;
  state.counters["GFLOP/s"] = benchmark::Counter(rate, benchmark::Counter::kIsRate);
  state.counters["of_peak"] = benchmark::Counter(rate / peak_gflops(), benchmark::Counter::kIsRate);
}

void BM_Peak(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(peak_gflops());
  state.counters["GFLOP/s"] = peak_gflops();
  state.counters["threads"] = threads();
}
BENCHMARK(BM_Peak);

// Returns the convolutions of LeNet (batch 64), of ResNet-18 on 32 x 32 (batch 32), and of a text
// CNN.
const std::vector<std::pair<std::string, ConvDims>>& convolutions() {
  static const std::vector<std::pair<std::string, ConvDims>> all = {
      {"lenet1", {{64, 1, 28, 28}, 20, {5, 5}}},
      {"lenet2", {{64, 20, 12, 12}, 50, {5, 5}}},
      {"stem", {{32, 3, 32, 32}, 64, {3, 3, 1, 1, 1, 1, 1, 1}}},
      {"64x32", {{32, 64, 32, 32}, 64, {3, 3, 1, 1, 1, 1, 1, 1}}},
      {"128x16", {{32, 128, 16, 16}, 128, {3, 3, 1, 1, 1, 1, 1, 1}}},
      {"128x16_stride2", {{32, 64, 32, 32}, 128, {3, 3, 2, 2, 1, 1, 1, 1}}},
      {"256x8", {{32, 256, 8, 8}, 256, {3, 3, 1, 1, 1, 1, 1, 1}}},
      {"512x4", {{32, 512, 4, 4}, 512, {3, 3, 1, 1, 1, 1, 1, 1}}},
      {"512x2", {{32, 512, 2, 2}, 512, {3, 3, 1, 1, 1, 1, 1, 1}}},
      {"1x1_256_64x32", {{16, 256, 32, 32}, 64, {1, 1}}},
      {"1x1_64_256x32", {{16, 64, 32, 32}, 256, {1, 1}}},
      {"1x1_2048_512x4", {{16, 2048, 4, 4}, 512, {1, 1}}},
      {"1x1_64_128x16_stride2", {{32, 64, 32, 32}, 128, {1, 1, 2, 2}}},
      {"text3", {{32, 1, 128, 128}, 100, {3, 128}}},
  };
  return all;
}

/// The operands of a convolution benchmark: argument 0 selects the shape, 1 the algorithm.
struct ConvCase {
  const ConvDims& d;
  cpu::ConvOptions options;
  Buffer x, w, b, y;
  explicit ConvCase(benchmark::State& state)
      : d(convolutions().at(static_cast<size_t>(state.range(0))).second),
        options{true, true, static_cast<cpu::ConvAlgorithm>(state.range(1))},
        x(d.x.elements()),
        w(d.weight_elements()),
        b(d.K),
        y(d.y().elements()) {
    const char* names[] = {"", " direct", " columns"};
    state.SetLabel(convolutions()[static_cast<size_t>(state.range(0))].first +
                   names[state.range(1)]);
  }
};

void convolution_arguments(benchmark::internal::Benchmark* bench) {
  for (int64_t i = 0; i < std::ssize(convolutions()); ++i) {
    for (const int64_t algorithm : {1, 2}) bench->Args({i, algorithm});
  }
  bench->UseRealTime();
}

void BM_ConvForward(benchmark::State& state) {
  const ConvCase c(state);
  cpu::ConvForward conv(c.d, c.options, team());
  const Buffer workspace(conv.workspace_bytes() / 4);
  for (auto _ : state) conv.run(c.x.get(), c.w.get(), c.b.get(), c.y.get(), workspace.get());
  report(state, static_cast<double>(c.d.flops()));
}
BENCHMARK(BM_ConvForward)->Apply(convolution_arguments);

void BM_ConvBackwardData(benchmark::State& state) {
  const ConvCase c(state);
  cpu::ConvBackwardData conv(c.d, c.options, team());
  const Buffer workspace(conv.workspace_bytes() / 4);
  for (auto _ : state) conv.run(c.y.get(), c.w.get(), c.x.get(), workspace.get());
  report(state, static_cast<double>(c.d.flops()));
}
BENCHMARK(BM_ConvBackwardData)->Apply(convolution_arguments);

void BM_ConvBackwardWeights(benchmark::State& state) {
  const ConvCase c(state);
  cpu::ConvBackwardWeights conv(c.d, c.options, team());
  const Buffer workspace(conv.workspace_bytes() / 4);
  for (auto _ : state) conv.run(c.x.get(), c.y.get(), c.w.get(), c.b.get(), workspace.get());
  report(state, static_cast<double>(c.d.flops()));
}
BENCHMARK(BM_ConvBackwardWeights)->Apply(convolution_arguments);

void BM_MaxPool(benchmark::State& state) {
  const PoolDims d{{64, 20, 24, 24}, {2, 2, 2, 2}};
  const PoolStrides s{ImageStrides::channels_last(d.x), ImageStrides::channels_last(d.y())};
  const Buffer x(d.x.elements()), y(d.y().elements());
  std::vector<uint8_t> winner(static_cast<size_t>(d.y().elements()));
  for (auto _ : state) {
    cpu::max_pool_forward(d, s, {.x = x.get(), .y = y.get(), .winner = winner.data()}, team());
  }
  state.SetBytesProcessed(state.iterations() * 4 * (d.x.elements() + d.y().elements()));
}
BENCHMARK(BM_MaxPool)->UseRealTime();

void BM_MaxPoolGrad(benchmark::State& state) {
  const PoolDims d{{64, 20, 24, 24}, {2, 2, 2, 2}};
  const PoolStrides s{ImageStrides::channels_last(d.x), ImageStrides::channels_last(d.y())};
  const Buffer dy(d.y().elements()), dx(d.x.elements());
  const std::vector<uint8_t> winner(static_cast<size_t>(d.y().elements()));
  for (auto _ : state) {
    cpu::max_pool_backward(d, s, {.winner = winner.data(), .dy = dy.get(), .dx = dx.get()}, team());
  }
  state.SetBytesProcessed(state.iterations() * (4 * d.x.elements() + 5 * d.y().elements()));
}
BENCHMARK(BM_MaxPoolGrad)->UseRealTime();

// Measures the forward pass of training, with 64 channels and with LeNet's 20.
void BM_BatchNorm(benchmark::State& state) {
  const BatchNormDims d{{16, state.range(0), 56, 56}, 1e-5, 0.9};
  const ImageStrides s = ImageStrides::channels_last(d.x);
  const int64_t C = d.x.C;
  const Buffer x(d.x.elements()), y(d.x.elements()), scale(C), b(C), mean(C), variance(C),
      saved_mean(C), saved_inv(C), workspace(cpu::batch_norm_workspace_bytes(d, s) / 4);
  for (auto _ : state) {
    cpu::batch_norm_training(d, s,
                             {.x = x.get(),
                              .scale = scale.get(),
                              .b = b.get(),
                              .running_mean = mean.get(),
                              .running_var = variance.get(),
                              .y = y.get(),
                              .mean = saved_mean.get(),
                              .inv_std = saved_inv.get()},
                             {team(), workspace.get()});
  }
  state.SetBytesProcessed(state.iterations() * 4 * 4 * d.x.elements());  // three reads and a write
}
BENCHMARK(BM_BatchNorm)->Arg(64)->Arg(20)->UseRealTime();

// Adds F and K of the layers of 784-512-512-10 and of LeNet's 800-500-10, batch 64.
void gemm_layers(benchmark::internal::Benchmark* b) {
  for (const auto& [F, K] : {std::pair{784, 512}, {512, 512}, {512, 10}, {784, 256}, {800, 500}}) {
    b->Args({F, K});
  }
  b->UseRealTime();
}

void BM_GemmForward(benchmark::State& state) {
  const GemmDims d{64, state.range(1), state.range(0)};
  cpu::GemmForward gemm(d, true, team());
  const Buffer x(d.N * d.F), w(d.K * d.F), b(d.K), y(d.N * d.K),
      workspace(gemm.workspace_bytes() / 4);
  for (auto _ : state) gemm.run(x.get(), w.get(), b.get(), y.get(), workspace.get());
  report(state, 2.0 * static_cast<double>(d.N * d.K * d.F));
}
BENCHMARK(BM_GemmForward)->Apply(gemm_layers);

void BM_GemmBackward(benchmark::State& state) {
  const GemmDims d{64, state.range(1), state.range(0)};
  cpu::GemmBackward gemm(d, true, true, team());
  const Buffer x(d.N * d.F), w(d.K * d.F), dy(d.N * d.K), dx(d.N * d.F), dw(d.K * d.F), db(d.K),
      workspace(gemm.workspace_bytes() / 4);
  for (auto _ : state) {
    gemm.run(x.get(), w.get(), dy.get(), dx.get(), dw.get(), db.get(), workspace.get());
  }
  report(state, 4.0 * static_cast<double>(d.N * d.K * d.F));
}
BENCHMARK(BM_GemmBackward)->Apply(gemm_layers);

void BM_Relu(benchmark::State& state) {
  const int64_t count = state.range(0);
  const Buffer x(count), y(count);
  for (auto _ : state) cpu::activation_forward<math::Relu>(count, x.get(), y.get(), team());
  state.SetBytesProcessed(state.iterations() * 8 * count);
}
BENCHMARK(BM_Relu)->Arg(64 * 10)->Arg(64 * 512)->Arg(64 * 20 * 24 * 24)->UseRealTime();

template <typename F>
void BM_Activation(benchmark::State& state) {
  const int64_t count = state.range(0);
  const Buffer x(count), y(count);
  for (auto _ : state) cpu::activation_forward<F>(count, x.get(), y.get(), team());
  state.counters["elements/s"] = benchmark::Counter(static_cast<double>(count * state.iterations()),
                                                    benchmark::Counter::kIsRate);
}
BENCHMARK(BM_Activation<math::Sigmoid>)->Arg(64 * 512)->UseRealTime();
BENCHMARK(BM_Activation<math::Tanh>)->Arg(64 * 512)->UseRealTime();
BENCHMARK(BM_Activation<math::GeluErf>)->Arg(64 * 512)->UseRealTime();

void BM_SgdMomentum(benchmark::State& state) {
  const SgdParams s{state.range(0), 0.9, 0, false};
  const Buffer p(s.count), g(s.count), v(s.count);
  const float rate = 1e-6f;
  for (auto _ : state)
    cpu::sgd(s, {.g = g.get(), .learning_rate = &rate, .p = p.get(), .v = v.get()}, team());
  state.SetBytesProcessed(state.iterations() * 20 * s.count);
}
BENCHMARK(BM_SgdMomentum)->Arg(784 * 256)->Arg(784 * 512)->UseRealTime();

}  // namespace
}  // namespace trainyard::kernels

BENCHMARK_MAIN();
