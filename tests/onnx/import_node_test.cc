// Runs the node tests of the onnx package, and cases of older opsets
// (tests/golden/make_onnx_node_golden.py): each is imported as a model and run. It is imported
// first with the file's batch dimension, if it has one, and then as one sample, with no dimension
// as the batch; every import that succeeds must give the expected numbers. The tests catch a wrong
// meaning of an attribute, a default or an opset.
//
// onnx_nodes_refused.txt lists exactly the tests that neither import accepts, with the reason.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <set>

#include "src/onnx/import_table.h"
#include "tests/onnx/import_support.h"
#include "tests/support/source_path.h"

namespace trainyard::onnx {
namespace {

const std::string kFolder = testing::source_path("tests/golden/");

struct NodeTest {
  std::span<const std::byte> model;
  const TensorView* input = nullptr;
  std::vector<const TensorView*> outputs;
};

std::map<std::string, NodeTest> node_tests(const SafetensorsFile& file) {
  std::map<std::string, NodeTest> tests;
  for (const TensorView& t : file.tensors()) {
    const size_t slash = t.name.find('/');
    NodeTest& test = tests[t.name.substr(0, slash)];
    const std::string part = t.name.substr(slash + 1);
    if (part == "model") {
      test.model = t.bytes;
    } else if (part == "input") {
      test.input = &t;
    } else {
      const size_t index = std::stoul(part.substr(part.find('/') + 1));
      if (test.outputs.size() <= index) test.outputs.resize(index + 1);
      test.outputs[index] = &t;
    }
  }
  return tests;
}

/// Tests whose expected results the onnx package gives with four decimals only; its own runner
/// accepts a relative error of 1e-3.
const std::set<std::string> kFourDecimals = {"averagepool_2d_ceil_last_window_starts_on_pad"};

/// Expects equal values within a relative error of `relative` plus an absolute error of 1e-5; NaN
/// and infinity must match exactly.
void expect_close(const std::vector<double>& found, const std::vector<double>& expected,
                  double relative, const std::string& where) {
  ASSERT_EQ(found.size(), expected.size()) << where;
  for (size_t i = 0; i < found.size(); ++i) {
    if (std::isnan(expected[i])) {
      ASSERT_TRUE(std::isnan(found[i])) << where << " [" << i << "]";
    } else if (std::isinf(expected[i])) {
      ASSERT_EQ(found[i], expected[i]) << where << " [" << i << "]";
    } else {
      ASSERT_NEAR(found[i], expected[i], 1e-5 + relative * std::fabs(expected[i]))
          << where << " [" << i << "]";
    }
  }
}

/// Imports one output and runs it on both backends. Returns the refusal, or "".
std::string check_output(const NodeTest& test, size_t index, bool batched,
                         const std::string& name) {
  const auto file = OnnxFile::parse(test.model);
  EXPECT_TRUE(file.ok()) << name << ": " << (file.ok() ? "" : file.error().message);
  if (!file.ok()) return "not read";
  const ImportOptions options{
      .sizes = {}, .output = file->graph().outputs.at(index).name, .batched = batched};
  const auto model = import_model(*file, options);
  if (!model.ok()) return model.error().message;
  const std::vector<int64_t>& dims = test.input->type.shape.dims();
  std::vector<double> input = testing::numbers_of(*test.input);
  std::vector<double> expected = testing::numbers_of(*test.outputs[index]);
  int64_t batch = 2;
  if (model->input_batch >= 0) {
    batch = dims.at(static_cast<size_t>(model->input_batch));
    input = testing::axis_to_front(input, dims, model->input_batch);
    const Shape& y = test.outputs[index]->type.shape;
    // If the batch is one factor of a dimension, it is the first factor in input and output.
    if (model->output_batch > 0) {
      expected = testing::axis_to_front(expected, y.dims(), model->output_batch);
    }
  } else {
    input.insert(input.end(), input.begin(), input.end());
    expected.insert(expected.end(), expected.begin(), expected.end());
  }
  const double relative = kFourDecimals.contains(name) ? 1e-3 : 1e-4;
  const auto backends = {make_reference_backend(), make_cpu_backend(2)};
  for (const auto& backend : backends) {
    expect_close(testing::run_imported(*model, batch, input, *backend), expected, relative,
                 name + (batched ? "" : ", as one sample") + ", output " + std::to_string(index));
  }
  return "";
}

std::map<std::string, std::string> refused_tests() {
  std::map<std::string, std::string> refused;
  std::ifstream file(kFolder + "onnx_nodes_refused.txt");
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    const size_t colon = line.find(": ");
    refused[line.substr(0, colon)] = line.substr(colon + 2);
  }
  return refused;
}

TEST(OnnxImportNodes, MatchTheNodeTestsOfOnnx) {
  const auto file = SafetensorsFile::open(kFolder + "onnx_nodes.safetensors");
  ASSERT_TRUE(file.ok()) << file.error().message;
  const std::map<std::string, std::string> known = refused_tests();
  std::map<std::string, std::string> refused;
  int outputs = 0, tests = 0, batched = 0, single = 0;
  for (const auto& [name, test] : node_tests(*file)) {
    ++tests;
    for (size_t i = 0; i < test.outputs.size(); ++i) {
      const std::string as_batch = check_output(test, i, true, name);
      const std::string as_sample = check_output(test, i, false, name);
      ++outputs;
      batched += as_batch.empty();
      single += as_sample.empty();
      if (!as_batch.empty() && !as_sample.empty()) {
        refused[name + (test.outputs.size() > 1 ? "." + std::to_string(i) : "")] = as_batch;
      }
    }
  }
  for (const auto& [name, reason] : refused) {
    const auto it = known.find(name);
    EXPECT_TRUE(it != known.end() && it->second == reason) << name << ": " << reason;
  }
  for (const auto& [name, reason] : known) {
    EXPECT_TRUE(refused.contains(name)) << name << " is taken, but stands in the list";
  }
  std::printf("%d outputs of %d tests: %d right with a batch, %d as one sample, %zu refused\n",
              outputs, tests, batched, single, refused.size());
}

}  // namespace
}  // namespace trainyard::onnx
