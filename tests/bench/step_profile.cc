// Prints the time of a training step node by node, on random numbers: like `trainyard local run
// --profile` for a job (src/calibration/step_profile.h), but without a dataset. Shows each node's
// median of many steps in the order of execution, with GFLOP/s and GB/s.
//
//   step_profile [MODEL] [batch] [threads] [none|blocks|full] [fp32|bf16] [all|lora] [SHARE]
//
// MODEL is a model of bench_models.h, for example resnet18:224; then come the recompute level, the
// precision, and what is trained: all weights, or low-rank additions of rank 16 to all layers, with
// the weights in bfloat16. SHARE of the targets count (default 1), the others are -1.
// TRAINYARD_WITHOUT_PASSES=fuse shows the step without fusion.
#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "kernels/math/philox.h"
#include "src/base/cores.h"
#include "src/calibration/step_profile.h"
#include "src/job/recipe.h"
#include "tests/bench/bench_models.h"

namespace trainyard {
namespace {

/// Returns uniform numbers in [0, 1), or tokens and labels, for a tensor.
std::vector<std::byte> random_values(const TensorType& type, int64_t codes) {
  std::vector<std::byte> bytes(static_cast<size_t>(type.bytes()));
  for (int64_t i = 0; i < type.shape.elements(); ++i) {
    const float u = math::uniform01<float>(math::philox_u32(1, 0, 0, static_cast<uint64_t>(i)));
    if (type.dtype == DType::kI32) {
      reinterpret_cast<int32_t*>(bytes.data())[i] =
          static_cast<int32_t>(u * static_cast<float>(codes));
    } else {
      reinterpret_cast<float*>(bytes.data())[i] = u;
    }
  }
  return bytes;
}

/// Leaves `share` of the labels, and sets the others to -1.
void leave_out(std::vector<std::byte>& target, double share) {
  auto* const labels = reinterpret_cast<int32_t*>(target.data());
  const size_t count = target.size() / sizeof(int32_t);
  for (size_t i = static_cast<size_t>(share * static_cast<double>(count)); i < count; ++i) {
    labels[i] = -1;
  }
}

int run(const std::string& name, Recipe recipe, int threads, double share) {
  const bench::BenchModel m = bench::bench_model(name);
  recipe.optimizer = m.optimizer;
  RunPrograms programs = compile_step(m.model, recipe, m.interface).value();
  const Graph& graph = programs.train.program.graph;
  const ModelInterface& i = m.interface;
  const std::vector<std::byte> input =
      random_values(graph.tensor(programs.train.input).type, i.vocabulary);
  std::vector<std::byte> target;  // empty if the input is the target
  if (programs.train.target != kNoTensor) {
    target = random_values(graph.tensor(programs.train.target).type, i.outputs);
    if (share < 1) leave_out(target, share);
  }

  const auto cpu = make_cpu_backend(threads);
  ProfilingBackend backend(*cpu);
  Session session(std::move(programs), backend);
  session.initialize(/*seed=*/1);
  int64_t step = 0;
  const auto next = [&] { return Session::StepInputs{input, target, step++, 1e-3f}; };
  const StepProfile p = profile_steps(session, backend, next, ProfileOptions(), {}).value();

  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  std::printf("%s batch %lld threads %d %s, arena %lld bytes, most resident %ld KiB\n",
              name.c_str(), static_cast<long long>(recipe.batch_size), threads,
              std::string(name_of(recipe.precision)).c_str(),
              static_cast<long long>(session.arena_planned_bytes()), usage.ru_maxrss);
  for (const NodeProfile& node : p.nodes) {
    const Cost& cost = node.work.cost;
    std::printf("%9.1f us %8.1f GFLOP/s %7.1f GB/s  %-28s %s\n", node.seconds * 1e6,
                static_cast<double>(cost.flops) / node.seconds / 1e9,
                static_cast<double>(cost.bytes) / node.seconds / 1e9,
                std::string(node.work.op).c_str(), node.work.name.c_str());
  }
  std::printf(
      "sum of nodes %.1f us; step %.1f us, by nodes %.1f us; %.0f samples/s, %.0f GFLOP/s, "
      "peak %.0f\n",
      p.node_seconds() * 1e6, p.step_s * 1e6, p.timed_step_s * 1e6,
      static_cast<double>(recipe.batch_size) / p.step_s,
      static_cast<double>(p.flops()) / p.step_s / 1e9, p.peak.f32_flops / 1e9);
  return 0;
}

}  // namespace
}  // namespace trainyard

int main(int argc, char** argv) {
  const auto recompute = trainyard::find_recompute(argc > 4 ? argv[4] : "none");
  const auto precision = trainyard::find_precision(argc > 5 ? argv[5] : "fp32");
  if (!recompute || !precision) return 2;
  trainyard::Recipe recipe;
  recipe.batch_size = argc > 2 ? std::atoll(argv[2]) : 64;
  recipe.recompute = *recompute;
  recipe.precision = *precision;
  if (argc > 6 && std::string(argv[6]) == "lora") {
    recipe.lora = {16, 32, 0, {"all-linear"}};
    recipe.frozen_storage = "bf16";
  }
  return trainyard::run(argc > 1 ? argv[1] : "mlp_small", recipe,
                        argc > 3 ? std::atoi(argv[3]) : trainyard::usable_cores(),
                        argc > 7 ? std::atof(argv[7]) : 1);
}
