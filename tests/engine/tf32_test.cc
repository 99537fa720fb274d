// Tests of the default precision, tf32, which is only a flag for GPUs: on the CPU every model must
// give the bits of fp32. They fail if a pass or a kernel does not recognise a product with the
// flag.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "src/job/recipe.h"
#include "src/models/preset.h"
#include "src/ops/tf32.h"
#include "src/planning/programs.h"
#include "src/train/session.h"
#include "tests/support/small_presets.h"

namespace trainyard {
namespace {

using testing::small_presets;
using testing::SmallPreset;

template <typename T, typename F>
void fill(std::vector<std::byte>& bytes, const F& value_of) {
  for (size_t i = 0; i < bytes.size() / sizeof(T); ++i) {
    const auto value = static_cast<T>(value_of(i));
    std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
  }
}

/// Returns numbers in [0, 1), or classes or tokens 0, 1, 2. Empty if the input is the target.
std::vector<std::byte> some_values(const BoundProgram& bound, TensorId id) {
  if (id == kNoTensor) return {};
  const TensorType& type = bound.program.graph.tensor(id).type;
  std::vector<std::byte> bytes(static_cast<size_t>(type.bytes()));
  if (type.dtype == DType::kF32) {
    fill<float>(bytes, [](size_t i) { return static_cast<float>(i * 37 % 101) / 101; });
  } else {
    EXPECT_EQ(type.dtype, DType::kI32);
    fill<int32_t>(bytes, [](size_t i) { return i * 7 % 3; });
  }
  return bytes;
}

struct Outcome {
  int64_t marked_products = 0;
  std::vector<float> losses, outputs;
  std::vector<std::vector<std::byte>> tensors;  // weights, state and optimizer state
};

Outcome train_three_steps(const SmallPreset& preset, Precision precision) {
  Recipe recipe;
  recipe.steps = 3;
  recipe.batch_size = 6;
  recipe.validation_split = 0.25;
  recipe.context_length = preset.context_length;
  recipe.optimizer.type = "adamw";
  recipe.clip_norm = 1;
  recipe.precision = precision;
  DatasetSchema schema = preset.schema;
  schema.train_rows = 4000;
  const ModelSpec model{preset.name, preset.parameters, {}, {}};
  const RunShape shape = check_recipe(recipe, model, schema).value();
  RunPrograms programs = compile_run(model, recipe, schema, shape).value();
  Outcome outcome;
  for (const Node& node : programs.train.program.graph.nodes()) {
    outcome.marked_products += allows_tf32(node) ? 1 : 0;
  }
  const auto input = some_values(programs.train, programs.train.input);
  const auto target = some_values(programs.train, programs.train.target);
  const auto evaluated = some_values(*programs.evaluate, programs.evaluate->input);
  const auto cpu = make_cpu_backend(2);
  Session session(std::move(programs), *cpu);
  session.initialize(/*seed=*/3);
  for (int64_t step = 0; step < recipe.steps; ++step) {
    outcome.losses.push_back(session.run_step({input, target, step, 0.01F}).loss);
  }
  session.evaluate(evaluated);
  for (int64_t row = 0; row < session.evaluation_batch(); ++row) {
    const std::span<const float> output = session.evaluation_output(row);
    outcome.outputs.insert(outcome.outputs.end(), output.begin(), output.end());
  }
  outcome.tensors = session.snapshot().storage;
  return outcome;
}

TEST(Tf32, OfEveryPresetGivesTheBitsOfFp32OnACpu) {
  for (const SmallPreset& preset : small_presets()) {
    // these are wider variants of vit_tiny
    if (preset.name == "vit_small" || preset.name == "vit_base") continue;
    SCOPED_TRACE(preset.name);
    const Outcome strict = train_three_steps(preset, Precision::kFp32);
    const Outcome marked = train_three_steps(preset, Precision::kTf32);
    EXPECT_EQ(strict.marked_products, 0);
    EXPECT_GT(marked.marked_products, 0);
    EXPECT_EQ(marked.losses, strict.losses);
    EXPECT_NE(strict.losses.front(), strict.losses.back()) << "it has learned something";
    EXPECT_EQ(marked.outputs, strict.outputs);
    EXPECT_EQ(marked.tensors, strict.tensors);
  }
}

}  // namespace
}  // namespace trainyard
