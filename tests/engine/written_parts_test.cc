// Weights that are drawn, read from a file or written part by part, so that a large one never
// exists twice in memory, have the bits of whole ones. The embedding of the test is larger than a
// part, and is stored in 16 bits.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "src/base/files.h"
#include "src/planning/programs.h"
#include "src/planning/weight_match.h"
#include "src/runtime/backend.h"
#include "src/train/initial_weights.h"
#include "src/train/initialize.h"
#include "src/train/session.h"

namespace trainyard {
namespace {

constexpr uint64_t kSeed = 3;
constexpr int64_t kVocabulary = 40000, kWidth = 64;

std::unique_ptr<Session> open_session(Backend& backend) {
  ModelSpec model{"decoder",
                  {{"n_layer", int64_t{1}},
                   {"n_embd", kWidth},
                   {"n_head", int64_t{2}},
                   {"hidden", int64_t{96}},
                   {"tied_head", int64_t{1}}},
                  {},
                  {}};
  Recipe recipe;
  recipe.batch_size = 2;
  recipe.lora = {4, 8, 0, {"all-linear"}};
  recipe.frozen_storage = "bf16";
  const ModelInterface interface { {8}, kVocabulary, TargetForm::kNextToken, kVocabulary };
  return std::make_unique<Session>(
      compile_step(model, recipe, interface, {}, backend.traits()).value(), backend);
}

/// Returns a weight's values as initialize() should draw them.
std::vector<float> drawn(const TensorInfo& t) {
  std::vector<float> values(static_cast<size_t>(t.type.shape.elements()));
  initialize_tensor(t, kSeed, std::as_writable_bytes(std::span(values)));
  return values;
}

void expect_equal(const Session& a, const Session& b) {
  const Snapshot of_a = a.snapshot(), of_b = b.snapshot();
  ASSERT_EQ(of_a.weights.size(), of_b.weights.size());
  for (size_t i = 0; i < of_a.weights.size(); ++i) {
    EXPECT_TRUE(std::ranges::equal(of_a.weights[i].bytes, of_b.weights[i].bytes))
        << of_a.weights[i].name;
  }
}

/// Calls write(tensor, its values) for each weight of a new session.
template <typename F>
std::unique_ptr<Session> session_of(Backend& backend, const F& write) {
  std::unique_ptr<Session> session = open_session(backend);
  for (const TensorInfo& t : session->weight_tensors()) write(*session, t, drawn(t));
  return session;
}

std::unique_ptr<Session> session_of_whole_weights(Backend& backend) {
  return session_of(backend, [](Session& session, const TensorInfo& t, const auto& values) {
    session.write_weight(t.name, std::as_bytes(std::span(values)));
  });
}

TEST(WrittenParts, OfInitialValuesAreTheWholeTensors) {
  const auto backend = make_cpu_backend(1);
  const auto session = open_session(*backend);
  session->initialize(kSeed);
  expect_equal(*session, *session_of_whole_weights(*backend));
}

TEST(WrittenParts, OfAWeightAreTheWholeWeight) {
  const auto backend = make_cpu_backend(1);
  const auto in_parts = session_of(*backend, [](Session& to, const auto& t, const auto& values) {
    constexpr size_t kPart = 30001;
    for (size_t at = 0; at < values.size(); at += kPart) {
      const auto part = std::span(values).subspan(at, std::min(kPart, values.size() - at));
      to.write_weight_part(t.name, static_cast<int64_t>(at), std::as_bytes(part));
    }
  });
  expect_equal(*in_parts, *session_of_whole_weights(*backend));
}

// A file's tensors may be read again after their pages were dropped.
TEST(WrittenParts, OfAFileAreItsWholeTensors) {
  const auto backend = make_cpu_backend(1);
  const auto whole = session_of_whole_weights(*backend);
  std::vector<std::vector<float>> values;
  std::vector<TensorView> tensors;
  for (const TensorInfo& t : whole->weight_tensors()) {
    values.push_back(drawn(t));
    tensors.push_back({t.name, t.type, std::as_bytes(std::span(values.back()))});
  }
  const auto folder =
      std::filesystem::temp_directory_path() / ("written_parts_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  ASSERT_TRUE(write_safetensors(local_files(), folder / "w.safetensors", tensors, {}).ok());
  const WeightsFile file = WeightsFile::open(folder / "w.safetensors").value();
  InitialWeights spec;
  spec.source = "w.safetensors";
  for (int again = 0; again < 2; ++again) {
    const auto session = open_session(*backend);
    ASSERT_TRUE(load_initial_weights(spec, file, *session).ok());
    expect_equal(*session, *whole);
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace trainyard
