// Where a training step's time goes: each node's best time of many steps (the best, because it is
// what a busy machine changes least), its median, and the best one's GFLOP/s and GB/s; of whole
// steps also the CPU time of all threads, which other processes change little. usage: step_profile
// [MODEL] [batch] [threads] [none|blocks|full] [fp32|bf16], with a model of bench_models.h, for
// example resnet18:224; the last two are what is recomputed and the precision.
// TRAINYARD_WITHOUT_PASSES=fuse shows the step without fusion.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <thread>
#include <vector>

#include "kernels/math/philox.h"
#include "src/autodiff/differentiate.h"
#include "src/graph/op.h"
#include "src/models/model_spec.h"
#include "src/optim/optimizer.h"
#include "src/plan/program.h"
#include "src/runtime/backend.h"
#include "tests/bench/bench_models.h"
#include "tests/bench/peak_flops.h"

namespace trainyard {
namespace {

using Clock = std::chrono::steady_clock;

double us_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}
double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<int64_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

struct Example {
  Program program;
  TensorId input = kNoTensor, learning_rate = kNoTensor;
  int64_t batch = 0;
  int64_t vocabulary = 0;
};

Example compile_example(const std::string& name, int64_t batch, Recompute recompute,
                        Precision precision) {
  const bench::BenchModel m = bench::bench_model(name);
  BuildOptions options;
  options.batch_size = batch;
  Model built = build_model(m.model, m.interface, options).value();
  const auto gradients = differentiate(built.graph, built.loss);
  const UpdateInputs update = append_optimizer(built.graph, m.optimizer, gradients, built.step);
  return {compile(std::move(built.graph), {.recompute = recompute, .precision = precision}),
          built.input, update.learning_rate, batch, m.interface.vocabulary};
}

// Like Executor, but with a clock between the steps.
class Profiler {
 public:
  Profiler(const Example& example, Backend& backend) : example_(example), backend_(backend) {
    const Program& p = example.program;
    int64_t workspace_bytes = 0;
    for (const NodeId id : p.order) {
      kernels_.push_back(backend.prepare(p.graph, p.graph.node(id)));
      workspace_bytes = std::max(workspace_bytes, kernels_.back()->workspace_bytes());
    }
    workspace_bytes_ = workspace_bytes;
    persistent_ = backend.allocate(p.persistent_bytes + 64);
    transient_ = backend.allocate(p.transient_bytes + 64);
    workspace_ = backend.allocate(workspace_bytes + 64);
    for (const NodeId id : p.order) bind(p.graph.node(id));
    fill();
  }
  ~Profiler() {
    for (void* memory : {persistent_, transient_, workspace_}) backend_.release(memory);
  }

  int64_t workspace_bytes() const { return workspace_bytes_; }

  void run(int steps) {
    times_.assign(kernels_.size(), {});
    for (int step = 0; step < steps; ++step) {
      for (size_t i = 0; i < kernels_.size(); ++i) {
        const auto start = Clock::now();
        kernels_[i]->run(args_[i]);
        times_[i].push_back(us_since(start));
      }
    }
    for (int step = 0; step < steps; ++step) {
      const auto start = Clock::now();
      const std::clock_t cpu_start = std::clock();
      for (size_t i = 0; i < kernels_.size(); ++i) kernels_[i]->run(args_[i]);
      steps_.push_back(us_since(start));
      cpu_steps_.push_back(static_cast<double>(std::clock() - cpu_start) / CLOCKS_PER_SEC * 1e6);
    }
  }

  void print(double peak) const {
    const Graph& graph = example_.program.graph;
    double sum = 0;
    for (size_t i = 0; i < kernels_.size(); ++i) {
      const Node& node = graph.node(example_.program.order[i]);
      const Cost cost = node.op->cost(graph, node);
      const double us = *std::min_element(times_[i].begin(), times_[i].end());
      sum += us;
      std::printf("%9.1f us (%9.1f) %8.1f GFLOP/s %7.1f GB/s  %-28s %s\n", us, median(times_[i]),
                  static_cast<double>(cost.flops) / us / 1e3,
                  static_cast<double>(cost.bytes) / us / 1e3, std::string(node.op->type()).c_str(),
                  node.name.c_str());
    }
    const double us = median(steps_), best = *std::min_element(steps_.begin(), steps_.end());
    const double flops = static_cast<double>(example_.program.flops);
    std::printf(
        "sum of nodes %.1f us; step median %.1f us, best %.1f us; CPU median %.1f us, best "
        "%.1f us\n",
        sum, us, best, median(cpu_steps_), *std::min_element(cpu_steps_.begin(), cpu_steps_.end()));
    std::printf("samples/s median %.0f, best %.0f; %.0f GFLOP/s, best %.0f, peak %.0f\n",
                static_cast<double>(example_.batch) / us * 1e6,
                static_cast<double>(example_.batch) / best * 1e6, flops / us / 1e3,
                flops / best / 1e3, peak);
  }

 private:
  std::byte* address(TensorId id) const {
    const Placement& place = example_.program.placements.at(static_cast<size_t>(id));
    void* base = place.segment == Segment::kPersistent ? persistent_ : transient_;
    return static_cast<std::byte*>(base) + place.offset_bytes;
  }
  void bind(const Node& node) {
    KernelArgs args;
    for (const TensorId id : node.inputs) {
      args.inputs.push_back(id == kNoTensor ? nullptr : address(id));
    }
    for (const TensorId id : node.outputs) {
      args.outputs.push_back(id == kNoTensor ? nullptr : address(id));
    }
    for (const int64_t i : node.op->mutated_inputs()) {
      const TensorId id = node.inputs.at(static_cast<size_t>(i));
      args.mutated.push_back(id == kNoTensor ? nullptr : address(id));
    }
    args.workspace = workspace_;
    args_.push_back(std::move(args));
  }
  void fill() {
    const Graph& graph = example_.program.graph;
    for (TensorId id = 0; id < static_cast<TensorId>(graph.tensors().size()); ++id) {
      const TensorInfo& t = graph.tensor(id);
      if (t.role != Role::kParameter && id != example_.input) continue;
      if (t.type.dtype == DType::kI32) {
        auto* tokens = reinterpret_cast<int32_t*>(address(id));
        for (int64_t i = 0; i < t.type.shape.elements(); ++i) {
          tokens[i] = static_cast<int32_t>(i * i % example_.vocabulary);
        }
        continue;
      }
      auto* values = reinterpret_cast<float*>(address(id));
      const float low = id == example_.input ? 0.0f : -0.05f,
                  high = id == example_.input ? 1 : 0.05f;
      for (int64_t i = 0; i < t.type.shape.elements(); ++i) {
        const auto index = static_cast<uint64_t>(i);
        const float u =
            math::uniform01<float>(math::philox_u32(1, static_cast<uint32_t>(id), 0, index));
        values[i] = low + (high - low) * u;
      }
    }
    // Labels and the step are 0 as the memory is; the learning rate is small but real.
    const float rate = 1e-3f;
    std::memcpy(address(example_.learning_rate), &rate, sizeof rate);
  }

  const Example& example_;
  Backend& backend_;
  std::vector<std::unique_ptr<Kernel>> kernels_;
  std::vector<KernelArgs> args_;
  void *persistent_, *transient_, *workspace_;
  int64_t workspace_bytes_ = 0;
  std::vector<std::vector<double>> times_;
  std::vector<double> steps_, cpu_steps_;
};

}  // namespace
}  // namespace trainyard

int main(int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "mlp_small";
  const int64_t batch = argc > 2 ? std::atoll(argv[2]) : 64;
  const int threads =
      argc > 3 ? std::atoi(argv[3]) : static_cast<int>(std::thread::hardware_concurrency());
  const auto recompute = trainyard::find_recompute(argc > 4 ? argv[4] : "none");
  const auto precision = trainyard::find_precision(argc > 5 ? argv[5] : "fp32");
  if (!recompute || !precision) return 2;
  const auto example = trainyard::compile_example(name, batch, *recompute, *precision);
  const auto backend = trainyard::make_cpu_backend(threads);
  trainyard::Profiler profiler(example, *backend);
  const bool large = name != "lenet5" && !name.starts_with("mlp");
  profiler.run(large ? 2 : 20);  // warm
  profiler.run(large ? 8 : name == "lenet5" ? 200 : 1000);
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  std::printf("%s batch %lld threads %d %s, %lld + %lld + %lld bytes, most resident %ld KiB\n",
              name.c_str(), static_cast<long long>(batch), threads,
              std::string(name_of(*precision)).c_str(),
              static_cast<long long>(example.program.persistent_bytes),
              static_cast<long long>(example.program.transient_bytes),
              static_cast<long long>(profiler.workspace_bytes()), usage.ru_maxrss);
  profiler.print(trainyard::bench::measure_peak_gflops(threads));
  return 0;
}
