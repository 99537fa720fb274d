#include "src/runtime/cuda/gelu_product.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <new>
#include <span>
#include <string_view>
#include <utility>

#include "src/runtime/cuda/budgets.h"
#include "src/runtime/cuda/graph_builder.h"
#include "src/runtime/cuda/kernels.h"
#include "src/runtime/cuda/timing.h"

namespace trainyard::cuda {
namespace {

using MatrixGraph = dnn::GraphBuilder<3>;
using MatrixSizes = MatrixGraph::Sizes;
using kernels::cuda::Format;
using kernels::cuda::In;

constexpr std::string_view kSeparateWord = "separate";
constexpr size_t kGeluEnginesMax = 4;  // compiling one takes up to a second
constexpr std::chrono::seconds kGeluPlansTimeMax{2};

MatrixSizes matrix(int64_t rows, int64_t columns) { return {1, rows, columns}; }
/// Returns the strides of a row-major matrix, or of the transpose of one.
MatrixSizes strides(int64_t rows, int64_t columns, bool is_transposed = false) {
  if (is_transposed) return {rows * columns, 1, rows};
  return {rows * columns, columns, 1};
}

/// cuDNN's engines for products in 16 bits and TF32 need tensor cores, which read 16 bytes at once.
bool may_have_engine(const Device& device, const GeluProblem& p) {
  const bool multiplies = p.format != Format::kF32 || (p.tf32 && device.has_tf32());
  return multiplies && device.capability() >= 80 && p.n % 8 == 0 && p.k % 8 == 0;
}

/// The structured bindings list all members, so a new member that is missing here causes a compile
/// error.
std::string key_of(const GeluProblem& p, int64_t workspace) {
  const auto& [is_gradient, m, n, k, format, tf32, has_bias, keeps_pre] = p;
  std::string key = is_gradient ? "gelu_gradient" : "gelu";
  add_numbers(key, "sizes", {m, n, k});
  key += " " + name_of(format);
  if (tf32) key += " tf32";
  if (has_bias) key += " bias";
  if (keeps_pre) key += " keeps_pre";
  add_numbers(key, "workspace", {workspace});
  return key;
}

int64_t workspace_max(const Device& device) { return matmul_workspace_max(device.memory_bytes()); }

/// Returns the bytes of a, b, bias, pre and c.
std::array<int64_t, 5> operand_bytes(const GeluProblem& p) {
  const int64_t size = element_bytes(p.format);
  const bool has_pre = p.is_gradient || p.keeps_pre;
  return {p.m * p.k * size, p.k * p.n * size, p.has_bias ? p.n * size : 0,
          has_pre ? p.m * p.n * size : 0, p.m * p.n * size};
}

}  // namespace

GeluGraph::GeluGraph(const GeluProblem& p, cudnnHandle_t handle) {
  MatrixGraph g(parts_, kFirstVirtual);
  const cudnnDataType_t type = dnn::data_type(p.format);
  const MatrixSizes result = matrix(p.m, p.n), dense = strides(p.m, p.n);
  const auto a = g.tensor(kA, matrix(p.m, p.k), strides(p.m, p.k), type);
  const auto b = g.tensor(kB, matrix(p.k, p.n), strides(p.k, p.n, !p.is_gradient), type);
  const auto c = g.tensor(kC, result, dense, type);
  const auto make_pre = [&] { return g.tensor(kPre, result, dense, type); };
  const auto product =
      p.is_gradient || p.has_bias || !p.keeps_pre ? g.virtual_tensor(result) : make_pre();
  g.matmul(a, b, product);
  if (p.is_gradient) {
    g.pointwise_gradient(CUDNN_POINTWISE_GELU_BWD, make_pre(), product, c);
  } else {
    auto pre = product;
    if (p.has_bias) {
      const auto bias = g.tensor(kBias, matrix(1, p.n), strides(1, p.n), type);
      pre = p.keeps_pre ? make_pre() : g.virtual_tensor(result);
      g.pointwise(CUDNN_POINTWISE_ADD, product, bias, nullptr, pre);
    }
    g.pointwise(CUDNN_POINTWISE_GELU_FWD, pre, nullptr, nullptr, c);
  }
  graph_ = g.graph(handle);
}

std::optional<GeluProduct> GeluProduct::choose(const Device& device, const GeluProblem& problem,
                                               const Separate& separate) {
  if (!may_have_engine(device, problem)) return std::nullopt;
  std::optional<GeluProduct> chosen;
  AlgorithmProblem algorithms;
  algorithms.take = [&](const std::string& words) {
    chosen.reset();
    if (words == kSeparateWord) return true;
    if (const auto choice = parse_engine(words)) chosen = restore(device, problem, *choice);
    if (chosen.has_value() && !chosen->passes_trial(device)) chosen.reset();
    return chosen.has_value();
  };
  algorithms.take_first = [&] {
    chosen.reset();
    return std::optional(std::string(kSeparateWord));
  };
  algorithms.time = [&] { return time(device, problem, separate); };
  device.choose(key_of(problem, workspace_max(device)), algorithms);
  return chosen;
}

std::optional<GeluProduct> GeluProduct::restore(const Device& device, const GeluProblem& problem,
                                                const EngineChoice& choice) {
  try {
    GeluGraph graph(problem, device.dnn());
    auto plan = DnnPlan::restore(device, graph.graph(), {problem.format, problem.tf32},
                                 workspace_max(device), choice);
    if (plan) return GeluProduct(problem, std::move(graph), std::move(*plan));
  } catch (const CudaError& e) {
    if (CUDNN_STATUS_CATEGORY(e.code()) != CUDNN_STATUS_NOT_SUPPORTED) throw;
  }
  return std::nullopt;
}

std::vector<GeluProduct> GeluProduct::propose(const Device& device, const GeluProblem& problem) {
  std::vector<GeluProduct> proposed;
  const auto begin = std::chrono::steady_clock::now();
  try {
    const GeluGraph graph(problem, device.dnn());
    for (const EngineChoice& choice :
         allowed_engines(graph.graph(), {problem.format, problem.tf32}, Engines::kFast)) {
      auto product = restore(device, problem, choice);
      if (!product.has_value() || !product->passes_trial(device)) continue;
      proposed.push_back(std::move(*product));
      const bool is_late = std::chrono::steady_clock::now() - begin > kGeluPlansTimeMax;
      if (proposed.size() == kGeluEnginesMax || is_late) break;
    }
  } catch (const CudaError& e) {
    if (CUDNN_STATUS_CATEGORY(e.code()) != CUDNN_STATUS_NOT_SUPPORTED) throw;
  }
  return proposed;
}

std::optional<TimedChoice> GeluProduct::time(const Device& device, const GeluProblem& problem,
                                             const Separate& separate) {
  const std::vector<GeluProduct> engines = propose(device, problem);
  std::vector<Candidate> candidates = {{std::string(kSeparateWord), separate.workspace_bytes}};
  for (const GeluProduct& e : engines) {
    candidates.push_back({words_of(e.plan_.choice()), e.workspace_bytes()});
  }
  return time_candidates(device, candidates, operand_bytes(problem),
                         [&](size_t i, std::span<void* const> at, void* workspace) {
                           const Operands o{at[0], at[1], at[2], at[3], at[4]};
                           if (i == 0) {
                             separate.run(o, workspace);
                           } else {
                             engines[i - 1].run(o, workspace);
                           }
                         });
}

void GeluProduct::run(const Operands& o, void* workspace) const {
  std::array<int64_t, 5> names{GeluGraph::kA, GeluGraph::kB, GeluGraph::kC};
  std::array<const void*, 5> data{o.a, o.b, o.c};
  size_t count = 3;
  const auto add = [&](int64_t name, const void* pointer) {
    names[count] = name;
    data[count++] = pointer;
  };
  if (problem_.has_bias) add(GeluGraph::kBias, o.bias);
  if (problem_.is_gradient || problem_.keeps_pre) add(GeluGraph::kPre, o.pre);
  plan_.run(std::span(names).first(count), std::span(data).first(count), workspace);
}

bool GeluProduct::passes_trial(const Device& device) const {
  const std::string key = key_of(problem_, workspace_max(device)) + " " + words_of(plan_.choice());
  return device.test_once(key, [&] {
    try {
      return cuda::passes_trial(device, /*results_matter=*/true, [&] { return try_out(device); });
    } catch (const std::bad_alloc&) {
      return false;  // too little memory to find out
    }
  });
}

bool GeluProduct::try_out(const Device& device) const {
  std::vector<DeviceMemory> memory;
  for (const int64_t bytes : operand_bytes(problem_)) memory.push_back(device.allocate(bytes));
  const DeviceMemory workspace = device.allocate(workspace_bytes());
  const WaitsAtEnd waits(device);
  const std::array<int64_t, 5> bytes = operand_bytes(problem_);
  for (size_t i = 0; i + 1 < bytes.size(); ++i) {  // NaN in every format
    check(cudaMemsetAsync(memory[i].get(), 0xFF, static_cast<size_t>(bytes[i]), device.stream()),
          "preparing the trial of a cuDNN engine");
  }
  check(cudaMemsetAsync(memory[4].get(), 0, static_cast<size_t>(bytes[4]), device.stream()),
        "preparing the trial of a cuDNN engine");
  run({memory[0].get(), memory[1].get(), memory[2].get(), memory[3].get(), memory[4].get()},
      workspace.get());
  const int64_t sample = std::min<int64_t>(problem_.m * problem_.n, 4096);
  std::vector<std::byte> made(static_cast<size_t>(sample * element_bytes(problem_.format)));
  check(cudaMemcpyAsync(made.data(), memory[4].get(), made.size(), cudaMemcpyDeviceToHost,
                        device.stream()),
        "reading the result of a cuDNN engine's NaN test");
  device.synchronize();
  const In c{made.data(), problem_.format};
  for (int64_t i = 0; i < sample; ++i) {
    if (!std::isnan(c[i])) return false;
  }
  return true;
}

}  // namespace trainyard::cuda
