// Rates of the cpu kernels that MLP and LeNet training are made of, in GFLOP/s and as a share of
// the fp32 peak that is measured in the same run. Threads: all cores, or TRAINYARD_THREADS.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "kernels/activation.h"
#include "kernels/batch_norm.h"
#include "kernels/conv.h"
#include "kernels/cpu/team.h"
#include "kernels/gemm.h"
#include "kernels/optimizer.h"
#include "kernels/pool.h"
#include "tests/bench/peak_flops.h"

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
  static const double peak = bench::measure_peak_gflops(threads());
  return peak;
}

// A buffer like a piece of the arena: 64-byte aligned, filled with small numbers.
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

ConvDims lenet_conv(int64_t which) {
  if (which == 1) return {{64, 1, 28, 28}, 20, {5, 5}};
  return {{64, 20, 12, 12}, 50, {5, 5}};
}

void BM_ConvForward(benchmark::State& state) {
  const ConvDims d = lenet_conv(state.range(0));
  cpu::ConvForward conv(d, {true, true}, team());
  const Buffer x(d.x.elements()), w(d.weight_elements()), b(d.K), y(d.y().elements()),
      workspace(conv.workspace_bytes() / 4);
  for (auto _ : state) conv.run(x.get(), w.get(), b.get(), y.get(), workspace.get());
  report(state, static_cast<double>(d.flops()));
}
BENCHMARK(BM_ConvForward)->Arg(1)->Arg(2)->UseRealTime();

void BM_ConvBackwardData(benchmark::State& state) {
  const ConvDims d = lenet_conv(state.range(0));
  cpu::ConvBackwardData conv(d, {true, true}, team());
  const Buffer dx(d.x.elements()), w(d.weight_elements()), dy(d.y().elements()),
      workspace(conv.workspace_bytes() / 4);
  for (auto _ : state) conv.run(dy.get(), w.get(), dx.get(), workspace.get());
  report(state, static_cast<double>(d.flops()));
}
BENCHMARK(BM_ConvBackwardData)->Arg(2)->UseRealTime();  // the first layer needs no dx

void BM_ConvBackwardWeights(benchmark::State& state) {
  const ConvDims d = lenet_conv(state.range(0));
  cpu::ConvBackwardWeights conv(d, {true, true}, team());
  const Buffer x(d.x.elements()), dw(d.weight_elements()), db(d.K), dy(d.y().elements()),
      workspace(conv.workspace_bytes() / 4);
  for (auto _ : state) conv.run(x.get(), dy.get(), dw.get(), db.get(), workspace.get());
  report(state, static_cast<double>(d.flops()));
}
BENCHMARK(BM_ConvBackwardWeights)->Arg(1)->Arg(2)->UseRealTime();

void BM_MaxPool(benchmark::State& state) {
  const PoolDims d{{64, 20, 24, 24}, {2, 2, 2, 2}};
  const ImageStrides xs = ImageStrides::channels_last(d.x), ys = ImageStrides::channels_last(d.y());
  const Buffer x(d.x.elements()), y(d.y().elements());
  for (auto _ : state) cpu::max_pool_forward(d, xs, x.get(), ys, y.get(), team());
  state.SetBytesProcessed(state.iterations() * 4 * (d.x.elements() + d.y().elements()));
}
BENCHMARK(BM_MaxPool)->UseRealTime();

void BM_MaxPoolGrad(benchmark::State& state) {
  const PoolDims d{{64, 20, 24, 24}, {2, 2, 2, 2}};
  const ImageStrides xs = ImageStrides::channels_last(d.x), ys = ImageStrides::channels_last(d.y());
  const Buffer x(d.x.elements()), dy(d.y().elements()), dx(d.x.elements());
  for (auto _ : state) {
    cpu::max_pool_backward(d, xs, x.get(), ys, dy.get(), dx.get(), team());
  }
  state.SetBytesProcessed(state.iterations() * 4 * (2 * d.x.elements() + d.y().elements()));
}
BENCHMARK(BM_MaxPoolGrad)->UseRealTime();

// Training forward, 64 channels and LeNet's 20.
void BM_BatchNorm(benchmark::State& state) {
  const BatchNormDims d{{16, state.range(0), 56, 56}, 1e-5, 0.9};
  const ImageStrides s = ImageStrides::channels_last(d.x);
  const int64_t C = d.x.C;
  const Buffer x(d.x.elements()), y(d.x.elements()), scale(C), b(C), mean(C), variance(C),
      saved_mean(C), saved_inv(C), workspace(cpu::batch_norm_workspace_bytes(d) / 4);
  for (auto _ : state) {
    cpu::batch_norm_training(d, s, x.get(), scale.get(), b.get(), mean.get(), variance.get(),
                             y.get(), saved_mean.get(), saved_inv.get(), workspace.get(), team());
  }
  state.SetBytesProcessed(state.iterations() * 4 * 4 * d.x.elements());  // three reads, a write
}
BENCHMARK(BM_BatchNorm)->Arg(64)->Arg(20)->UseRealTime();

// F, K of the layers of 784-512-512-10 and of LeNet's 800-500-10, batch 64.
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
  for (auto _ : state) cpu::sgd(s, g.get(), &rate, p.get(), v.get(), team());
  state.SetBytesProcessed(state.iterations() * 20 * s.count);
}
BENCHMARK(BM_SgdMomentum)->Arg(784 * 256)->Arg(784 * 512)->UseRealTime();

}  // namespace
}  // namespace trainyard::kernels

BENCHMARK_MAIN();
