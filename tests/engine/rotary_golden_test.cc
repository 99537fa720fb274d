// Compares tables of cosines and sines with those of transformers, for scalings of real models
// (tests/golden/make_decoder_golden.py).
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "kernels/cpu/team.h"
#include "kernels/rotary.h"
#include "src/checkpoint/safetensors.h"
#include "src/models/rotary.h"
#include "tests/support/source_path.h"

namespace trainyard {
namespace {

constexpr double kTableBound = 1e-6;

template <typename T>
std::vector<T> table_values(const std::string& name) {
  static const SafetensorsFile file =
      SafetensorsFile::open(testing::source_path("tests/golden/decoders.safetensors")).value();
  const TensorView* tensor = file.find("tables/" + name);
  if (tensor == nullptr) throw std::runtime_error("no tensor " + name);
  std::vector<T> values(tensor->bytes.size() / sizeof(T));
  std::memcpy(values.data(), tensor->bytes.data(), tensor->bytes.size());
  return values;
}

struct ScaledTable {
  const char* name;
  int64_t dim;
  double theta;
  RotaryScaling scaling;
};

const std::vector<ScaledTable>& scaled_tables() {
  static const std::vector<ScaledTable> tables = {
      {"plain", 64, 100000, {}},
      {"linear", 80, 10000, {.kind = "linear", .factor = 4}},
      {"llama3",
       128,
       500000,
       {.kind = "llama3",
        .factor = 8,
        .low_freq_factor = 1,
        .high_freq_factor = 4,
        .original_positions = 8192}},
      {"yarn", 128, 5000000, {.kind = "yarn", .factor = 4, .original_positions = 32768}},
      {"yarn_all",
       96,
       10000,
       {.kind = "yarn",
        .factor = 32,
        .beta_fast = 16,
        .beta_slow = 2,
        .truncate = false,
        .attention_factor = 1.5,
        .original_positions = 4096}}};
  return tables;
}

/// Compares a table of the golden positions. PyTorch's powers are sometimes the neighbours of the
/// nearest numbers, and so are the angles then.
void expect_table(const std::vector<float>& values, const std::string& name,
                  const std::string& part, const RotaryFrequencies& f) {
  const std::vector<float> golden = table_values<float>(name + "/" + part);
  const std::vector<int32_t> positions = table_values<int32_t>("positions");
  const size_t pairs = f.values.size();
  ASSERT_EQ(values.size(), golden.size());
  ASSERT_EQ(golden.size(), pairs * positions.size());
  for (size_t i = 0; i < golden.size(); ++i) {
    const double angle = positions[i / pairs] * f.values[i % pairs];
    EXPECT_NEAR(values[i], golden[i], kTableBound + f.factor * angle * 0x1p-23)
        << name << "/" << part << ", position " << positions[i / pairs] << ", pair " << i % pairs;
  }
}

TEST(RotaryGolden, FrequenciesAreThoseOfTransformers) {
  for (const ScaledTable& t : scaled_tables()) {
    SCOPED_TRACE(t.name);
    const std::vector<double> values = rotary_frequencies(t.dim, t.theta, t.scaling).values;
    const auto golden = table_values<float>(std::string(t.name) + "/frequencies");
    ASSERT_EQ(values.size(), golden.size());
    for (size_t j = 0; j < golden.size(); ++j) {
      EXPECT_NEAR(values[j], golden[j], 1.5e-7 * golden[j]) << "pair " << j;
    }
  }
}

TEST(RotaryGolden, TablesAreThoseOfTransformers) {
  const std::vector<int32_t> positions = table_values<int32_t>("positions");
  kernels::cpu::Team team(2);
  for (const ScaledTable& t : scaled_tables()) {
    SCOPED_TRACE(t.name);
    const RotaryFrequencies f = rotary_frequencies(t.dim, t.theta, t.scaling);
    const kernels::RotaryTableParams p{std::ssize(positions), f.values, f.factor};
    std::vector<float> cos(positions.size() * f.values.size()), sin(cos.size());
    const auto expect_tables = [&] {
      expect_table(cos, t.name, "cos", f);
      expect_table(sin, t.name, "sin", f);
    };
    kernels::reference::rotary_tables(p, positions.data(), cos.data(), sin.data());
    expect_tables();
    kernels::cpu::rotary_tables(p, positions.data(), cos.data(), sin.data(), {team});
    expect_tables();
  }
}

}  // namespace
}  // namespace trainyard
