#include "src/inference/inference.h"

#include "src/artifact/model_artifact.h"
#include "src/checkpoint/typed_bytes.h"

namespace trainyard {

Status write_weights(const SafetensorsFile& weights, Executor& executor) {
  const Graph& graph = executor.program().graph;
  std::vector<std::byte> widened;
  for (size_t i = 0; i < graph.tensors().size(); ++i) {
    const TensorInfo& t = graph.tensors()[i];
    if (t.role != Role::kParameter && t.role != Role::kState) continue;
    const Result<const TensorView*> view = find_weight(weights, t);
    if (!view.ok()) return view.error();
    executor.write(static_cast<TensorId>(i), typed_bytes(**view, widened));
  }
  return {};
}

Inference::Inference(BoundProgram bound, Backend& backend)
    : input_(bound.input), positions_(bound.positions), output_(bound.output) {
  const int64_t persistent = bound.program.persistent_bytes;
  const int64_t transient = bound.program.transient_bytes;
  PreparedProgram prepared(std::move(bound.program), backend);
  arena_.emplace(backend, persistent, transient, prepared.workspace_bytes());
  executor_.emplace(std::move(prepared), *arena_);
}

Result<std::unique_ptr<Inference>> Inference::open(BoundProgram bound,
                                                   const SafetensorsFile& weights,
                                                   Backend& backend) {
  std::unique_ptr<Inference> inference(new Inference(std::move(bound), backend));
  if (Status s = write_weights(weights, *inference->executor_); !s.ok()) return s.error();
  return inference;
}

void Inference::run(std::span<const std::byte> input, std::span<const std::byte> positions) {
  executor_->write(input_, input);
  if (positions_ != kNoTensor) executor_->write(positions_, positions);
  executor_->run();
}

void Inference::read_output(std::span<float> values, int64_t first) const {
  executor_->read(output_, std::as_writable_bytes(values),
                  static_cast<size_t>(first) * sizeof(float));
}

}  // namespace trainyard
