#include "src/planning/generation_programs.h"

#include <algorithm>

namespace trainyard {
namespace {

Result<GenerationProgram> compile_one(const ModelSpec& spec, const ModelInterface& interface,
                                      int64_t rows, const GenerationShape& shape,
                                      const PersistentLayout* layout, DeviceTraits traits) {
  const BuildOptions options{.batch_size = rows, .training = false, .generation = shape};
  ASSIGN_OR_RETURN(Model model, build_model(spec, interface, options));
  GenerationProgram one;
  one.input = model.input;
  one.positions = model.positions;
  one.output = model.output;
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
                                              int64_t capacity, DeviceTraits traits) {
  GenerationPrograms programs;
  programs.fill_tokens = std::min(kFillTokens, capacity);
  ASSIGN_OR_RETURN(programs.step,
                   compile_one(spec, interface, rows, {.capacity = capacity}, nullptr, traits));
  const PersistentLayout layout = persistent_layout(programs.step.program);
  ASSIGN_OR_RETURN(
      programs.fill,
      compile_one(spec, interface, rows,
                  {.capacity = capacity, .new_tokens = programs.fill_tokens, .scores = false},
                  &layout, traits));
  return programs;
}

}  // namespace trainyard
