// The memory that a plan predicts for a job is the memory that the job uses, to the byte. The test
// measures it in the memory itself, independently of the plan (tests/support/watching_backend.h).
#include <gtest/gtest.h>

#include <set>

#include "src/job/recipe.h"
#include "src/job/run_plan.h"
#include "src/models/preset.h"
#include "src/planning/programs.h"
#include "src/train/session.h"
#include "tests/support/random_graph.h"
#include "tests/support/run_case.h"
#include "tests/support/small_presets.h"
#include "tests/support/watching_backend.h"

namespace trainyard {
namespace {

using testing::small_presets;
using testing::SmallPreset;
using testing::WatchingBackend;

// The bytes that all comparisons of one run may read together: for large models, memory is compared
// only after every n-th kernel.
constexpr int64_t kComparedBytesMax = int64_t{1} << 30;

/// Returns zero bytes, which are valid tokens, classes and numbers. Empty if the input is the
/// target.
std::vector<std::byte> zeros(const BoundProgram& bound, TensorId id) {
  if (id == kNoTensor) return {};
  return std::vector<std::byte>(static_cast<size_t>(bound.program.graph.tensor(id).type.bytes()));
}

/// Expects that kernels used the whole workspace, up to alignment.
void expect_workspace(const WatchingBackend& watched, int64_t begin, int64_t bytes) {
  if (bytes == 0) return;
  EXPECT_GT(watched.workspace_end(), begin + bytes - kHostAlignment);
  EXPECT_LE(watched.workspace_end(), begin + bytes);
  EXPECT_GT(watched.touched_end(begin + bytes), begin);
}

/// Trains and evaluates twice in watched memory. All weights are the same small number, because
/// drawing those of the large models would take longer than the rest of the test.
void expect_no_difference(const SmallPreset& preset, const Recipe& recipe, int threads) {
  const ModelSpec model{preset.name, preset.parameters, {}, {}};
  const RunShape shape = check_recipe(recipe, model, preset.schema).value();
  RunPrograms programs = compile_run(model, recipe, preset.schema, shape).value();
  ASSERT_TRUE(programs.evaluate.has_value());
  RunPlan plan = describe_run(programs, shape, recipe);
  const auto cpu = make_cpu_backend(threads);
  plan.memory.workspace_bytes = measure_workspace(programs, *cpu);

  std::vector<std::byte> input, target;
  for (int64_t k = 0; k < shape.micro_batches; ++k) {
    const auto append = [](std::vector<std::byte>& to, const std::vector<std::byte>& part) {
      to.insert(to.end(), part.begin(), part.end());
    };
    append(input, zeros(programs.train, programs.train.input));
    append(target, zeros(programs.train, programs.train.target));
  }
  const auto evaluated = zeros(*programs.evaluate, programs.evaluate->input);
  const int64_t persistent = programs.persistent_bytes();
  const auto kernels = static_cast<int64_t>(programs.train.program.order.size() +
                                            programs.evaluate->program.order.size());

  WatchingBackend watched(*cpu, 1 + 2 * kernels * plan.memory.total() / kComparedBytesMax);
  Session session(std::move(programs), watched, shape.micro_batches);
  for (const TensorInfo& t : session.weight_tensors()) {
    const std::vector<float> values(static_cast<size_t>(t.type.shape.elements()), 0.01F);
    session.write_weight(t.name, std::as_bytes(std::span(values)));
  }
  for (int64_t step = 0; step < 2; ++step) {
    session.run_step({input, target, step, 0.01F});
    session.evaluate(evaluated);
  }
  EXPECT_EQ(watched.fault(), "");
  EXPECT_EQ(watched.allocated_bytes(), plan.memory.total());
  const int64_t transient_end = watched.allocated_bytes() - plan.memory.workspace_bytes;
  EXPECT_EQ(watched.touched_end(persistent), persistent) << "parameters, state, optimizer state";
  EXPECT_EQ(watched.touched_end(transient_end), transient_end) << "activations";
  expect_workspace(watched, transient_end, plan.memory.workspace_bytes);
  EXPECT_EQ(session.arena_used_bytes(), session.arena_planned_bytes());
}

bool is_large(const std::string& preset) { return preset == "vit_small" || preset == "vit_base"; }

TEST(Arena, OfEveryPresetIsUsedToThePlannedByte) {
  std::set<std::string> missing;
  for (const std::string& name : preset_names()) missing.insert(name);
  for (SmallPreset& preset : small_presets()) {
    missing.erase(preset.name);
    const std::vector<int64_t> batches =
        is_large(preset.name) ? std::vector<int64_t>{2} : std::vector<int64_t>{1, 2, 7, 32};
    for (size_t i = 0; i < batches.size(); ++i) {
      SCOPED_TRACE(preset.name + " batch " + std::to_string(batches[i]));
      Recipe recipe;
      recipe.steps = 2;
      recipe.batch_size = batches[i];
      recipe.validation_split = 0.25;
      recipe.context_length = preset.context_length;
      recipe.optimizer.type = i % 2 == 0 ? "sgd" : "adamw";
      recipe.recompute = i == 2 ? Recompute::kBlocks : Recompute::kNone;
      recipe.precision = i % 2 == 1 || is_large(preset.name) ? Precision::kBf16 : Precision::kFp32;
      preset.schema.train_rows = 4000;
      // Training's batch normalization needs two values a channel; one small image may have one.
      if (batches[i] == 1 && preset.name.starts_with("resnet")) continue;
      expect_no_difference(preset, recipe, 1 + static_cast<int>(i % 3));
    }
  }
  EXPECT_EQ(missing, std::set<std::string>()) << "presets without a row";
}

// A step consists of several programs, all in one arena.
TEST(Arena, OfMicroBatchesAndAveragedWeightsIsUsedToThePlannedByte) {
  for (SmallPreset& preset : small_presets()) {
    if (preset.name != "lenet5" && preset.name != "gpt2") continue;
    SCOPED_TRACE(preset.name);
    preset.schema.train_rows = 4000;
    Recipe recipe;
    recipe.steps = 2;
    recipe.batch_size = 6;
    recipe.accumulate_steps = 3;
    recipe.ema_decay = 0.9;
    recipe.clip_norm = 1;
    recipe.validation_split = 0.25;
    recipe.context_length = preset.context_length;
    expect_no_difference(preset, recipe, 2);
  }
}

TEST(Arena, OfRandomGraphsIsUsedToThePlannedByte) {
  constexpr Precision kPrecisions[] = {Precision::kFp32, Precision::kTf32, Precision::kBf16,
                                       Precision::kFp16};
  for (const bool is_cpu : {false, true}) {
    const auto inner = is_cpu ? make_cpu_backend(2) : make_reference_backend();
    for (uint64_t seed = 0; seed < 1000; ++seed) {
      const auto rows = static_cast<int64_t>(1 + seed * seed % 67);
      const Precision precision = kPrecisions[seed % std::size(kPrecisions)];
      SCOPED_TRACE((is_cpu ? "cpu seed " : "reference seed ") + std::to_string(seed));
      const testing::CaseGraph c = testing::random_training_graph(seed, DType::kF32, rows);
      WatchingBackend watched(*inner);
      PreparedProgram prepared(
          compile(c.graph, {.channels_last = seed % 2 == 0,
                            .recompute = seed % 5 == 0 ? Recompute::kBlocks : Recompute::kNone,
                            .precision = precision}),
          watched);
      const int64_t persistent = prepared.program().persistent_bytes;
      const int64_t transient_end = persistent + prepared.program().transient_bytes;
      const int64_t planned = transient_end + prepared.workspace_bytes();
      Arena arena(watched, persistent, prepared.program().transient_bytes,
                  prepared.workspace_bytes());
      Executor executor(std::move(prepared), arena);
      for (int run = 0; run < 2; ++run) {
        for (const auto& [id, values] : c.values) testing::write_values(executor, id, values);
        executor.run();
      }
      EXPECT_EQ(watched.fault(), "");
      EXPECT_EQ(watched.allocated_bytes(), planned);
      EXPECT_EQ(watched.touched_end(persistent), persistent);
      EXPECT_EQ(watched.touched_end(transient_end), transient_end);
      expect_workspace(watched, transient_end, planned - transient_end);
      EXPECT_EQ(executor.used_bytes(), planned);
    }
  }
}

/// Writes `count` floats into its one output, whatever size that has.
class CarelessBackend final : public HostBackend {
 public:
  explicit CarelessBackend(int64_t count) : count_(count) {}
  std::string_view name() const override { return "careless"; }
  bool has_kernel(std::string_view) const override { return true; }
  std::unique_ptr<Kernel> prepare(const Graph&, const Node&) override {
    class Careless final : public Kernel {
     public:
      explicit Careless(int64_t count) : count_(count) {}
      void run(const KernelArgs& args) override { std::fill_n(args.out<float>(0), count_, 1.0F); }

     private:
      int64_t count_;
    };
    return std::make_unique<Careless>(count_);
  }

 private:
  int64_t count_;
};

// A watch that detects nothing would let the tests above pass.
TEST(Arena, WatchFindsWritesBeyondABufferAndBuffersNeverWritten) {
  const auto watch = [](int64_t count) {
    testing::CaseBuilder b(DType::kF32);
    const TensorId x = b.input("x", {1, 20});
    const TensorId y = b.one("y", "Relu", {}, {x});
    testing::CaseGraph c = b.finish_update();
    c.graph.mark_output(y);
    CarelessBackend careless(count);
    auto watched = std::make_unique<WatchingBackend>(careless);
    PreparedProgram prepared(compile(c.graph, {}), *watched);
    EXPECT_EQ(prepared.program().transient_bytes, 256) << "80 bytes each, in two lines";
    Arena arena(*watched, 0, 256, 0);
    Executor executor(std::move(prepared), arena);
    testing::write_values(executor, x, c.values.at(x));
    executor.run();
    return std::make_pair(watched->fault(), watched->touched_end(256));
  };
  EXPECT_EQ(watch(20), std::make_pair(std::string(), int64_t{256}));
  EXPECT_EQ(watch(16), std::make_pair(std::string(), int64_t{192})) << "the second line is not";
  EXPECT_EQ(watch(21).first, "byte 210 of 256 was written by 'y', which may not");
  EXPECT_EQ(watch(33).first, "byte 210 of 256 was written by 'y', which may not");
}

}  // namespace
}  // namespace trainyard
