// A model's output for a row depends neither on the row's place in the batch nor on the other rows,
// to the bit: requests that are batched together get the results that each would get alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "src/inference/inference.h"
#include "src/inference/predictor.h"
#include "src/models/preset.h"
#include "src/runtime/open_backend.h"
#include "tests/engine/train_support.h"
#include "tests/support/small_presets.h"

namespace trainyard {
namespace {

using testing::small_presets;
using testing::SmallPreset;
using testing::Workspace;

/// The program that predicts, with random weights.
class RowProgram {
 public:
  RowProgram(const SmallPreset& preset, Precision precision, int threads)
      : backend_(make_cpu_backend(threads)) {
    ModelSpec model;
    model.preset = preset.name;
    model.parameters = preset.parameters;
    BoundProgram bound =
        compile_inference(model, preset.schema.interface(preset.context_length), kPredictBatch,
                          nullptr, precision, {}, backend_->traits())
            .value();
    const Graph& graph = bound.program.graph;
    const TensorType& input = graph.tensor(bound.input).type;
    tokens_ = input.dtype == DType::kI32;
    input_size_ = static_cast<size_t>(input.shape.elements() / kPredictBatch);
    output_size_ =
        static_cast<size_t>(graph.tensor(bound.output).type.shape.elements() / kPredictBatch);
    std::vector<std::vector<float>> values;
    std::vector<TensorView> views;
    for (const TensorInfo& t : graph.tensors()) {
      if (t.role != Role::kParameter && t.role != Role::kState) continue;
      std::vector<float>& v = values.emplace_back(static_cast<size_t>(t.type.shape.elements()));
      // Matrices are scaled so that activations keep their magnitude; variances are positive.
      const bool matrix = t.type.shape.rank() > 1;
      const float high =
          matrix
              ? std::sqrt(3.0f * static_cast<float>(t.type.shape[0]) / static_cast<float>(v.size()))
              : 1.3f;
      std::uniform_real_distribution<float> uniform(matrix ? -high : 0.5f, high);
      for (float& x : v) x = uniform(random_);
      views.push_back({t.name, {t.type.shape, DType::kF32}, std::as_bytes(std::span(v))});
    }
    const Workspace w;
    const auto path = w / "model.safetensors";
    EXPECT_TRUE(write_safetensors(local_files(), path, views, {}).ok());
    const SafetensorsFile weights = SafetensorsFile::open(path).value();
    inference_ = Inference::open(std::move(bound), weights, *backend_).value();
  }

  std::vector<std::byte> random_row(int vocabulary) {
    std::vector<std::byte> row(input_size_ * 4);
    std::uniform_real_distribution<float> uniform(-2, 2);
    for (size_t i = 0; i < input_size_; ++i) {
      const float x = uniform(random_);
      const int32_t token = static_cast<int32_t>(random_() % static_cast<unsigned>(vocabulary));
      std::memcpy(row.data() + i * 4, tokens_ ? static_cast<const void*>(&token) : &x, 4);
    }
    return row;
  }
  /// Returns the output of each row of the batch.
  std::vector<std::vector<float>> run(const std::vector<std::vector<std::byte>>& rows) {
    std::vector<std::byte> input;
    for (const auto& row : rows) input.insert(input.end(), row.begin(), row.end());
    inference_->run(input);
    std::vector<std::vector<float>> outputs(rows.size(), std::vector<float>(output_size_));
    for (size_t i = 0; i < rows.size(); ++i) {
      inference_->read_output(outputs[i], static_cast<int64_t>(i * output_size_));
    }
    return outputs;
  }

 private:
  std::mt19937 random_{17};
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Inference> inference_;
  bool tokens_ = false;
  size_t input_size_ = 0, output_size_ = 0;
};

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

void check(const SmallPreset& preset, Precision precision, int threads) {
  RowProgram program(preset, precision, threads);
  const int vocabulary = std::max<int>(2, static_cast<int>(preset.schema.text.pieces.size()));
  std::vector<std::vector<std::byte>> rows;
  for (int64_t i = 0; i < kPredictBatch; ++i) rows.push_back(program.random_row(vocabulary));
  const auto together = program.run(rows);
  ASSERT_FALSE(same_bits(together[0], together[1])) << "the rows make no difference";
  // A batch of copies of one row, which is the batch that a call with a single row computes.
  for (size_t i = 0; i < rows.size(); i += 7) {
    const auto alone = program.run(std::vector(rows.size(), rows[i]));
    EXPECT_TRUE(same_bits(alone[0], together[i])) << "row " << i;
    EXPECT_TRUE(same_bits(alone.back(), together[i])) << "row " << i << " in the last place";
  }
  // Rotates the rows, so that each is at another place among the same others.
  std::ranges::rotate(rows, rows.begin() + 5);
  const auto rotated = program.run(rows);
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_TRUE(same_bits(rotated[i], together[(i + 5) % rows.size()])) << "row " << i;
  }
}

class PredictRows : public ::testing::TestWithParam<SmallPreset> {};
/// Returns the small presets without those that repeat the layers of a smaller one, and without the
/// vision transformers, which take minutes.
std::vector<SmallPreset> presets() {
  std::vector<SmallPreset> all = small_presets();
  std::erase_if(all, [](const SmallPreset& preset) {
    static const std::set<std::string> larger = {"vgg13",    "vgg16",     "vgg19",
                                                 "resnet34", "resnet101", "resnet152",
                                                 "vit_tiny", "vit_small", "vit_base"};
    return larger.contains(preset.name) || preset.schema.stream();  // a stream has no rows
  });
  return all;
}

INSTANTIATE_TEST_SUITE_P(Presets, PredictRows, ::testing::ValuesIn(presets()),
                         [](const auto& preset) {
                           return preset.param.name + "_" + std::to_string(preset.index);
                         });

TEST_P(PredictRows, DoNotDependOnEachOther) {
  for (const Precision precision : {Precision::kFp32, Precision::kBf16, Precision::kFp16}) {
    for (const int threads : {1, 2}) {
      SCOPED_TRACE(std::string(name_of(precision)) + ", " + std::to_string(threads) + " threads");
      check(GetParam(), precision, threads);
    }
  }
}

}  // namespace
}  // namespace trainyard
