// The programs of every preset, compiled for each kind of device, pass the verifier: nothing is
// read after it was overwritten, for every precision, recompute level and division of a step.
#include <gtest/gtest.h>

#include "src/job/recipe.h"
#include "src/planning/programs.h"

namespace trainyard {
namespace {

/// Returns the first of these interfaces that the preset accepts.
ModelInterface interface_of(const ModelSpec& model) {
  const ModelInterface all[] = {
      {{3, 32, 32}, 0, TargetForm::kClass, 10},
      {{16}, 50, TargetForm::kClass, 3, 0},
      {{16}, 50, TargetForm::kNextToken, 50},
      {{3, 32, 32}, 0, TargetForm::kInput, 3072},
  };
  for (const ModelInterface& interface : all) {
    if (build_model(model, interface, {.batch_size = 2}).ok()) return interface;
  }
  ADD_FAILURE() << model.preset << " takes none of the interfaces";
  return {};
}

void verify_all(const RunPrograms& programs) {
  verify(programs.train.program);
  for (const auto* more : {&programs.update, &programs.average, &programs.evaluate}) {
    if (more->has_value()) verify((*more)->program);
  }
}

class WholePrograms : public ::testing::TestWithParam<std::string> {};

TEST_P(WholePrograms, PassTheirVerifier) {
  ModelSpec model;
  model.preset = GetParam();
  const ModelInterface interface = interface_of(model);
  for (const DeviceTraits traits : {DeviceTraits{kHostAlignment, Processor::kCpu},
                                    DeviceTraits{kCudaAlignment, Processor::kGpu}}) {
    for (const Precision precision : {Precision::kFp32, Precision::kBf16, Precision::kFp16}) {
      for (const Recompute recompute : {Recompute::kNone, Recompute::kBlocks, Recompute::kFull}) {
        Recipe recipe;
        recipe.batch_size = 4;
        recipe.optimizer.type = "adamw";
        recipe.precision = precision;
        recipe.recompute = recompute;
        if (recompute != Recompute::kBlocks) {  // so that micro-batches and clipping occur both
                                                // with and without recompute
          recipe.accumulate_steps = 2;
          recipe.clip_norm = 1;
        }
        if (recompute == Recompute::kFull) recipe.ema_decay = 0.99;
        SCOPED_TRACE(std::string(traits.processor == Processor::kGpu ? "gpu " : "cpu ") +
                     std::string(name_of(precision)) + " " + std::string(name_of(recompute)));
        const auto programs = compile_step(model, recipe, interface, {}, traits);
        ASSERT_TRUE(programs.ok()) << programs.error().message;
        ASSERT_NO_THROW(verify_all(*programs));
        const PersistentLayout layout = persistent_layout(programs->train.program);
        const auto inference =
            compile_inference(model, interface, 3, &layout, precision, {}, traits);
        ASSERT_TRUE(inference.ok()) << inference.error().message;
        ASSERT_NO_THROW(verify(inference->program));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Presets, WholePrograms, ::testing::ValuesIn(preset_names()),
                         [](const auto& preset) { return preset.param; });

}  // namespace
}  // namespace trainyard
