#include "tests/support/run_case.h"

#include <algorithm>
#include <set>

#include "src/autodiff/differentiate.h"
#include "src/base/check.h"
#include "src/graph/op.h"

namespace trainyard::testing {
namespace {

template <typename F>
void with_type(DType dtype, F f) {
  switch (dtype) {
    case DType::kF32:
      return f(float());
    case DType::kF64:
      return f(double());
    case DType::kI32:
      return f(int32_t());
    case DType::kI64:
      return f(int64_t());
    case DType::kU8:
      return f(uint8_t());
  }
}

std::set<TensorId> updated_tensors(const Graph& graph) {
  std::set<TensorId> ids;
  for (const Node& node : graph.nodes()) {
    for (const int64_t i : node.op->mutated_inputs(node)) {
      const TensorId id = node.inputs.at(static_cast<size_t>(i));
      if (id != kNoTensor) ids.insert(id);
    }
  }
  return ids;
}

}  // namespace

void write_values(Executor& executor, TensorId id, const std::vector<double>& values) {
  with_type(executor.program().graph.tensor(id).type.dtype, [&]<typename T>(T) {
    std::vector<T> typed(values.size());
    std::ranges::transform(values, typed.begin(), [](double v) { return static_cast<T>(v); });
    executor.write(id, std::as_bytes(std::span(typed)));
  });
}

std::vector<double> read_values(const Executor& executor, TensorId id) {
  const TensorType& type = executor.program().graph.tensor(id).type;
  std::vector<double> values(static_cast<size_t>(type.shape.elements()));
  with_type(type.dtype, [&]<typename T>(T) {
    std::vector<T> typed(values.size());
    executor.read(id, std::as_writable_bytes(std::span(typed)));
    std::ranges::transform(typed, values.begin(), [](T v) { return static_cast<double>(v); });
  });
  return values;
}

CaseGraph with_gradients(CaseGraph c, std::map<TensorId, TensorId>* gradients) {
  *gradients = differentiate(c.graph, c.loss);
  for (const auto& [parameter, gradient] : *gradients) c.graph.mark_output(gradient);
  return c;
}

CaseResult run_case(const CaseGraph& c, Backend& backend, const RunOptions& options) {
  const Processor processor = options.processor.value_or(backend.processor());
  CompileOptions compiled{.channels_last = options.channels_last,
                          .recompute = options.recompute,
                          .precision = options.precision,
                          .passes = options.passes,
                          .processor = processor,
                          .alignment = backend.alignment(),
                          .two_lanes = options.two_lanes};
  Graph graph = c.graph;
  if (options.keep_all) {
    if (options.precision != Precision::kFp32) {  // tensors marked before the passes would stay F32
      PassOptions passes = options.passes;
      passes.layouts = passes.layouts && options.channels_last;
      run_passes(graph, passes, options.recompute, options.precision, processor);
      compiled.channels_last = false;
      compiled.recompute = Recompute::kNone;
      compiled.precision = Precision::kFp32;
      compiled.passes = {false, false, false, false};
    }
    const std::vector<Node> nodes = graph.nodes();
    for (const Node& node : nodes) {
      for (const TensorId id : node.outputs) {
        if (id != kNoTensor) graph.mark_output(id);
      }
    }
  }
  Program program = compile(std::move(graph), compiled);
  verify(program);
  return run_program(c, std::move(program), backend, options.runs);
}

CaseResult run_program(const CaseGraph& c, Program program, Backend& backend, int runs) {
  PreparedProgram prepared(std::move(program), backend);
  const Program& p = prepared.program();
  Arena arena(backend, p.persistent_bytes, p.transient_bytes, prepared.workspace_bytes());
  const int64_t workspace_bytes = prepared.workspace_bytes();
  Executor executor(std::move(prepared), arena);
  CaseResult result;
  // All bits set is a NaN in both floating-point types.
  const std::vector<std::byte> nans(static_cast<size_t>(arena.size_bytes()), std::byte{0xFF});
  for (int run = 0; run < runs; ++run) {
    backend.copy_to_device(arena.persistent(), nans.data(), arena.size_bytes());
    for (const auto& [id, values] : c.values) write_values(executor, id, values);
    executor.run();
  }
  for (const TensorId id : executor.program().graph.outputs()) {
    result.values[executor.program().graph.tensor(id).name] = read_values(executor, id);
  }
  for (const TensorId id : updated_tensors(executor.program().graph)) {
    result.values[executor.program().graph.tensor(id).name] = read_values(executor, id);
  }
  result.program = executor.program();
  result.planned_bytes =
      executor.program().persistent_bytes + executor.program().transient_bytes + workspace_bytes;
  result.used_bytes = executor.used_bytes();
  return result;
}

}  // namespace trainyard::testing
