// Where a training step's time goes: each node's best time of many steps (the best, because it is
// what a busy machine changes least), its median, and the best one's GFLOP/s and GB/s. usage:
// step_profile [mlp|mlp_wide|lenet|residual] [batch] [threads] [none|blocks|full]
// `residual` is nine residual blocks on 32x32 images; the last argument is what is recomputed.
// TRAINYARD_WITHOUT_PASSES=fuse shows the step without fusion.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
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
};

/// Residual blocks as in a ResNet for small images: three stages of three blocks of two
/// convolutions, 16, 32 and 64 channels.
std::vector<LayerSpec> residual_layers() {
  std::vector<LayerSpec> layers;
  const auto add = [&](std::string name, std::string op, std::vector<std::string> inputs,
                       Attributes attributes) {
    layers.push_back({std::move(name), std::move(op), std::move(inputs), std::move(attributes)});
  };
  const auto conv = [&](const std::string& name, const std::string& input, int64_t channels,
                        int64_t size, int64_t stride) {
    add(name, "Conv", {input},
        {{"out_channels", channels},
         {"kernel_shape", std::vector<int64_t>{size}},
         {"pads", std::vector<int64_t>{size / 2}},
         {"strides", std::vector<int64_t>{stride}},
         {"bias", int64_t{0}}});
    add(name + "_norm", "BatchNormalization", {name}, {});
  };
  conv("stem", "input", 16, 3, 1);
  add("x0", "Relu", {"stem_norm"}, {});
  int64_t k = 0;
  for (const int64_t channels : {16, 32, 64}) {
    for (int block = 0; block < 3; ++block, ++k) {
      const std::string x = "x" + std::to_string(k), n = std::to_string(k + 1);
      const int64_t stride = block == 0 && channels > 16 ? 2 : 1;
      conv("a" + n, x, channels, 3, stride);
      add("r" + n, "Relu", {"a" + n + "_norm"}, {});
      conv("b" + n, "r" + n, channels, 3, 1);
      std::string shortcut = x;
      if (stride == 2) {
        conv("s" + n, x, channels, 1, 2);
        shortcut = "s" + n + "_norm";
      }
      add("sum" + n, "Add", {"b" + n + "_norm", shortcut}, {});
      add("x" + n, "Relu", {"sum" + n}, {});
    }
  }
  add("pool", "GlobalAveragePool", {"x" + std::to_string(k)}, {});
  add("flat", "Flatten", {"pool"}, {});
  add("head", "Gemm", {"flat"}, {});
  return layers;
}

Example compile_example(const std::string& name, int64_t batch, Recompute recompute) {
  ModelSpec model;
  ModelInterface interface;
  interface.outputs = 10;
  if (name == "lenet") {
    model.preset = "lenet5";
    interface.input = Shape{1, 28, 28};
  } else if (name == "residual") {
    model.layers = residual_layers();
    interface.input = Shape{3, 32, 32};
  } else {
    model.preset = "mlp";
    model.parameters.set("hidden", name == "mlp_wide" ? std::vector<int64_t>{512, 512}
                                                      : std::vector<int64_t>{256, 128});
    interface.input = Shape{784};
  }
  BuildOptions options;
  options.batch_size = batch;
  Model built = build_model(model, interface, options).value();
  const auto gradients = differentiate(built.graph, built.loss);
  OptimizerSpec optimizer;
  optimizer.momentum = 0.9;
  const UpdateInputs update = append_optimizer(built.graph, optimizer, gradients, built.step);
  return {compile(std::move(built.graph), {.recompute = recompute}), built.input,
          update.learning_rate, batch};
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
    persistent_ = backend.allocate(p.persistent_bytes + 64);
    transient_ = backend.allocate(p.transient_bytes + 64);
    workspace_ = backend.allocate(workspace_bytes + 64);
    for (const NodeId id : p.order) bind(p.graph.node(id));
    fill();
  }
  ~Profiler() {
    for (void* memory : {persistent_, transient_, workspace_}) backend_.release(memory);
  }

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
      for (size_t i = 0; i < kernels_.size(); ++i) kernels_[i]->run(args_[i]);
      steps_.push_back(us_since(start));
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
    std::printf("sum of nodes %.1f us; step median %.1f us, best %.1f us\n", sum, us, best);
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
  std::vector<std::vector<double>> times_;
  std::vector<double> steps_;
};

}  // namespace
}  // namespace trainyard

int main(int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "mlp";
  const int64_t batch = argc > 2 ? std::atoll(argv[2]) : 64;
  const int threads =
      argc > 3 ? std::atoi(argv[3]) : static_cast<int>(std::thread::hardware_concurrency());
  const auto recompute = trainyard::find_recompute(argc > 4 ? argv[4] : "none");
  if (!recompute) return 2;
  const auto example = trainyard::compile_example(name, batch, *recompute);
  const auto backend = trainyard::make_cpu_backend(threads);
  trainyard::Profiler profiler(example, *backend);
  profiler.run(name == "residual" ? 2 : 20);  // warm
  profiler.run(name == "residual" ? 20 : name == "lenet" ? 200 : 1000);
  std::printf("%s batch %lld threads %d, %lld + %lld bytes\n", name.c_str(),
              static_cast<long long>(batch), threads,
              static_cast<long long>(example.program.persistent_bytes),
              static_cast<long long>(example.program.transient_bytes));
  profiler.print(trainyard::bench::measure_peak_gflops(threads));
  return 0;
}
