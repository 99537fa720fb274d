#include "src/planning/generation_programs.h"

#include <algorithm>

#include "src/ops/gather.h"
#include "src/ops/gemm.h"

namespace trainyard {
namespace {

/// Returns whether the kernels of a node read 16-bit numbers of input `index` directly.
bool reads_half(const Node& node, size_t index) {
  return (node.op == gemm_op() && index == 1) || (node.op == gather_op() && index == 0);
}

void store_weights(const WeightStorage& storage, Graph& graph) {
  std::vector<bool> stays(graph.tensors().size());
  for (const Node& node : graph.nodes()) {
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] == kNoTensor || reads_half(node, i)) continue;
      stays[static_cast<size_t>(node.inputs[i])] = true;
    }
  }
  for (const auto& [name, stored] : storage) {
    const std::optional<TensorId> id = graph.find_tensor(name);
    if (!id || stays[static_cast<size_t>(*id)]) continue;
    if (graph.tensor(*id).role == Role::kParameter) graph.set_storage(*id, stored);
  }
}

Result<GenerationProgram> compile_one(const ModelSpec& spec, const ModelInterface& interface,
                                      int64_t rows, const GenerationShape& shape,
                                      const PersistentLayout* layout, DeviceTraits traits,
                                      const WeightStorage& storage) {
  const BuildOptions options{.batch_size = rows, .training = false, .generation = shape};
  ASSIGN_OR_RETURN(Model model, build_model(spec, interface, options));
  GenerationProgram one;
  one.input = model.input;
  one.positions = model.positions;
  one.output = model.output;
  if (traits.processor == Processor::kCpu) store_weights(storage, model.graph);
  one.program =
      compile(std::move(model.graph),
              {.processor = traits.processor, .alignment = traits.alignment, .persistent = layout});
  return one;
}

}  // namespace

int64_t GenerationPrograms::persistent_bytes() const {
  return std::max(fill.program.persistent_bytes, step.program.persistent_bytes);
}
int64_t GenerationPrograms::transient_bytes() const {
  return std::max(fill.program.transient_bytes, step.program.transient_bytes);
}

Result<GenerationPrograms> compile_generation(const ModelSpec& spec,
                                              const ModelInterface& interface, int64_t rows,
                                              int64_t capacity, DeviceTraits traits,
                                              const WeightStorage& storage) {
  GenerationPrograms programs;
  programs.fill_tokens = std::min(kFillTokens, capacity);
  ASSIGN_OR_RETURN(programs.step, compile_one(spec, interface, rows, {.capacity = capacity},
                                              nullptr, traits, storage));
  const PersistentLayout layout = persistent_layout(programs.step.program);
  ASSIGN_OR_RETURN(
      programs.fill,
      compile_one(spec, interface, rows,
                  {.capacity = capacity, .new_tokens = programs.fill_tokens, .scores = false},
                  &layout, traits, storage));
  return programs;
}

}  // namespace trainyard
