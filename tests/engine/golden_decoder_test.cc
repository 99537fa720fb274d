// Compares the preset decoder with the language models of transformers:
// tests/golden/make_decoder_golden.py made tiny ones of every family, with their scores and the
// losses of 20 steps of AdamW. Rows hold several documents and padding.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "src/checkpoint/safetensors.h"
#include "src/planning/programs.h"
#include "src/runtime/backend.h"
#include "src/runtime/executor.h"
#include "tests/support/source_path.h"

namespace trainyard {
namespace {

constexpr double kDecoderBound = 1e-4;  // relative
constexpr int64_t kDecoderBatches = 4, kDecoderRows = 2, kDecoderLength = 24;

const SafetensorsFile& decoders() {
  static const SafetensorsFile file =
      SafetensorsFile::open(testing::source_path("tests/golden/decoders.safetensors")).value();
  return file;
}

template <typename T>
std::vector<T> golden_values(const std::string& name) {
  const TensorView* tensor = decoders().find(name);
  if (tensor == nullptr) throw std::runtime_error("no tensor " + name);
  std::vector<T> values(tensor->bytes.size() / sizeof(T));
  std::memcpy(values.data(), tensor->bytes.data(), tensor->bytes.size());
  return values;
}

struct Family {
  std::string name;
  Attributes parameters;  // besides those that all families share
};

std::vector<Family> families() {
  const auto text = [](const char* value) { return Attribute(std::string(value)); };
  const int64_t yes = 1;
  return {
      {"llama",
       {{"head_dim", int64_t{4}},
        {"rope_theta", 500.0},
        {"rope_scaling", text("llama3")},
        {"rope_factor", 8.0},
        {"rope_low_freq_factor", 1.0},
        {"rope_high_freq_factor", 4.0},
        {"rope_original_positions", int64_t{16}}}},
      {"llama_bias",
       {{"head_dim", int64_t{8}},
        {"qkv_bias", yes},
        {"out_bias", yes},
        {"mlp_bias", yes},
        {"tied_head", yes},
        {"rope_scaling", text("linear")},
        {"rope_factor", 2.0}}},
      {"mistral", {{"window", int64_t{5}}}},
      {"qwen2",
       {{"qkv_bias", yes},
        {"tied_head", yes},
        {"window", int64_t{4}},
        {"window_layers", std::vector<int64_t>{1}}}},
      {"qwen3",
       {{"head_dim", int64_t{8}},
        {"qk_norm", text("head")},
        {"rope_scaling", text("yarn")},
        {"rope_factor", 4.0},
        {"rope_original_positions", int64_t{16}}}},
      {"granite",
       {{"tied_head", yes},
        {"embedding_multiplier", 3.0},
        {"residual_multiplier", 0.4},
        {"attention_multiplier", 0.2},
        {"logits_divisor", 2.0}}},
      {"olmo2", {{"qk_norm", text("all")}, {"norm_place", text("after")}}},
      {"smollm3", {{"tied_head", yes}, {"no_rope_layers", std::vector<int64_t>{1}}}},
  };
}

ModelSpec spec_of(const Family& family) {
  ModelSpec spec;
  spec.preset = "decoder";
  spec.parameters = family.parameters;
  for (const auto& [name, value] :
       std::initializer_list<std::pair<const char*, int64_t>>{{"vocab_size", 40},
                                                              {"n_layer", 2},
                                                              {"n_embd", 16},
                                                              {"n_head", 4},
                                                              {"n_kv_head", 2},
                                                              {"hidden", 24}}) {
    spec.parameters.set(name, value);
  }
  return spec;
}

ModelInterface documents_interface() {
  ModelInterface interface;
  interface.input = {kDecoderLength};
  interface.vocabulary = interface.outputs = 37;  // fewer than the model's 40
  interface.target = TargetForm::kNextToken;
  interface.documents = true;
  return interface;
}

/// A program in memory of its own, with the golden weights.
class RunnableDecoder {
 public:
  RunnableDecoder(Backend& backend, BoundProgram program, const std::string& family)
      : ids_(program), prepared_(std::move(program.program), backend) {
    const Program& p = prepared_.program();
    arena_.emplace(backend, p.persistent_bytes, p.transient_bytes, prepared_.workspace_bytes());
    executor_.emplace(std::move(prepared_), *arena_);
    const Graph& graph = executor_->program().graph;
    for (TensorId id = 0; id < std::ssize(graph.tensors()); ++id) {
      const TensorInfo& t = graph.tensor(id);
      if (t.role == Role::kParameter) {
        const TensorView* golden = decoders().find(family + "/" + t.name);
        if (golden == nullptr) throw std::runtime_error("no golden weight for " + t.name);
        executor_->write(id, golden->bytes);
      } else if (t.role == Role::kOptimizerState) {
        const std::vector<std::byte> zeros(static_cast<size_t>(t.type.bytes()));
        executor_->write(id, zeros);
      }
    }
  }

  void write_batch(int64_t batch) {
    write("tokens", ids_.input, batch);
    write("positions", executor_->program().graph.find_tensor("input/positions").value(), batch);
    if (ids_.target != kNoTensor) write("targets", ids_.target, batch);
  }
  double step(int64_t step, float learning_rate) {
    executor_->write(ids_.step, std::as_bytes(std::span(&step, 1)));
    executor_->write(ids_.learning_rate, std::as_bytes(std::span(&learning_rate, 1)));
    executor_->run();
    float loss = 0;
    executor_->read(ids_.loss, std::as_writable_bytes(std::span(&loss, 1)));
    return loss;
  }
  std::vector<float> scores() {
    executor_->run();
    const Graph& graph = executor_->program().graph;
    std::vector<float> values(static_cast<size_t>(graph.tensor(ids_.output).type.shape.elements()));
    executor_->read(ids_.output, std::as_writable_bytes(std::span(values)));
    return values;
  }

 private:
  void write(const std::string& name, TensorId id, int64_t batch) {
    const std::vector<int32_t> all = golden_values<int32_t>(name);
    constexpr size_t kCount = static_cast<size_t>(kDecoderRows * kDecoderLength);
    executor_->write(
        id, std::as_bytes(std::span(all).subspan(static_cast<size_t>(batch) * kCount, kCount)));
  }

  ProgramIds ids_;
  PreparedProgram prepared_;
  std::optional<Arena> arena_;
  std::optional<Executor> executor_;
};

double largest(const std::vector<float>& values) {
  double most = 0;
  for (const float v : values) most = std::max(most, std::fabs(static_cast<double>(v)));
  return most;
}

void expect_scores_of_transformers(Backend& backend, const Family& family) {
  auto program = compile_inference(spec_of(family), documents_interface(), kDecoderRows, nullptr,
                                   Precision::kFp32, {}, backend.traits());
  ASSERT_TRUE(program.ok()) << program.error().message;
  RunnableDecoder model(backend, std::move(*program), family.name);
  model.write_batch(0);
  const std::vector<float> scores = model.scores();
  const std::vector<float> golden = golden_values<float>(family.name + "/scores");
  ASSERT_EQ(scores.size(), golden.size());
  const double bound = kDecoderBound * largest(golden);
  double worst = 0;
  for (size_t i = 0; i < golden.size(); ++i) {
    worst = std::max(worst, std::fabs(static_cast<double>(scores[i]) - golden[i]));
  }
  EXPECT_LE(worst, bound);
  std::printf("%s: scores within %.1e of transformers\n", family.name.c_str(),
              worst / largest(golden));
}

void expect_losses_of_transformers(Backend& backend, const Family& family) {
  Recipe recipe;
  recipe.optimizer.type = "adamw";
  recipe.optimizer.weight_decay = 0.01;
  auto program = compile_training(spec_of(family), recipe, documents_interface(), kDecoderRows,
                                  backend.traits());
  ASSERT_TRUE(program.ok()) << program.error().message;
  RunnableDecoder model(backend, std::move(*program), family.name);
  const std::vector<float> golden = golden_values<float>(family.name + "/losses");
  double worst = 0;
  for (int64_t step = 0; step < std::ssize(golden); ++step) {
    model.write_batch(step % kDecoderBatches);
    const double expected = golden[static_cast<size_t>(step)];
    const double loss = model.step(step, 3e-3f);
    worst = std::max(worst, std::fabs(loss - expected) / expected);
    ASSERT_NEAR(loss, expected, kDecoderBound * expected) << "step " << step + 1;
  }
  std::printf("%s: losses within %.1e of transformers\n", family.name.c_str(), worst);
}

template <typename F>
void on_each_family(const F& f) {
  const auto cpu = make_cpu_backend(2), reference = make_reference_backend();
  for (Backend* backend : {cpu.get(), reference.get()}) {
    for (const Family& family : families()) {
      SCOPED_TRACE(family.name + " on " + std::string(backend->name()));
      f(*backend, family);
    }
  }
}

TEST(DecoderGolden, ScoresAreThoseOfTransformers) { on_each_family(expect_scores_of_transformers); }
TEST(DecoderGolden, TwentyLossesAreThoseOfTransformers) {
  on_each_family(expect_losses_of_transformers);
}

}  // namespace
}  // namespace trainyard
