// Tests that the reader accepts every example that is printed or shipped, so that an outdated
// example fails.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "client/lib/spec_file.h"
#include "proto/convert/spec.h"
#include "src/models/model_spec.h"
#include "tests/support/source_path.h"

namespace trainyard::client {
namespace {

namespace fs = std::filesystem;

TEST(SpecExamples, EveryFileInExamplesIsAccepted) {
  int count = 0;
  for (const auto& entry : fs::recursive_directory_iterator(testing::source_path("examples"))) {
    const std::string extension = entry.path().extension();
    if (extension != ".yaml" && extension != ".yml" && extension != ".json") continue;
    const auto spec = read_spec_file(entry.path(), {});
    EXPECT_TRUE(spec.ok()) << spec.error().message;
    ++count;
  }
  EXPECT_GE(count, 1);
}

// Blocks fenced as ```yaml or ```json in docs/job_spec.md are complete specs.
TEST(SpecExamples, EveryBlockInTheReferenceIsAccepted) {
  std::ifstream in(testing::source_path("docs/job_spec.md"));
  ASSERT_TRUE(in.is_open());
  std::string line;
  std::string block;
  bool open = false;
  int line_number = 0;
  int count = 0;
  while (std::getline(in, line)) {
    ++line_number;
    if (!open && (line == "```yaml" || line == "```json")) {
      open = true;
      block.clear();
    } else if (open && line == "```") {
      open = false;
      ++count;
      const auto spec = parse_spec_file(
          block, "docs/job_spec.md block that ends in line " + std::to_string(line_number), "", {});
      EXPECT_TRUE(spec.ok()) << spec.error().message;
      for (size_t i = 0; !spec.ok() && i < spec.error().violations.size(); ++i) {
        ADD_FAILURE() << spec.error().violations[i].field << ": "
                      << spec.error().violations[i].description;
      }
    } else if (open) {
      block += line + "\n";
    }
  }
  EXPECT_FALSE(open);
  EXPECT_GE(count, 6);
}

// Returns the text of the block of docs/job_spec.md that contains `mark`.
std::string block_with(const std::string& mark) {
  std::ifstream in(testing::source_path("docs/job_spec.md"));
  std::stringstream all;
  all << in.rdbuf();
  const std::string text = all.str();
  const size_t at = text.find(mark);
  const size_t begin = text.rfind("```yaml\n", at) + 8;
  return text.substr(begin, text.find("```", at) - begin);
}

// The reference promises that its ResNet-18 has the same layers and names as the preset.
TEST(SpecExamples, ResNetByHandIsThePreset) {
  const auto file = parse_spec_file(block_with("name: resnet18-by-hand"), "docs", "", {});
  ASSERT_TRUE(file.ok()) << file.error().message;
  const auto by_hand = to_engine(file->job_spec());
  ASSERT_TRUE(by_hand.ok()) << by_hand.error().message;
  ModelSpec preset;
  preset.preset = "resnet18";
  const ModelInterface cifar{{3, 32, 32}, 0, TargetForm::kClass, 10};
  const auto a = build_model(by_hand->model, cifar, {.batch_size = 2});
  const auto b = build_model(preset, cifar, {.batch_size = 2});
  ASSERT_TRUE(a.ok()) << a.error().message;
  EXPECT_EQ(a->graph.dump(), b->graph.dump());
  ASSERT_EQ(a->graph.tensors().size(), b->graph.tensors().size());
  for (size_t i = 0; i < a->graph.tensors().size(); ++i) {
    const Initializer &x = a->graph.tensors()[i].initializer,
                      &y = b->graph.tensors()[i].initializer;
    EXPECT_TRUE(x.kind == y.kind && x.a == y.a && x.b == y.b) << a->graph.tensors()[i].name;
  }
}

// The engine must also accept these specs: it builds blocks and presets for data of their kind.
TEST(SpecExamples, BlocksAndImagePresetsBuild) {
  const ModelInterface cifar{{3, 32, 32}, 0, TargetForm::kClass, 10};
  for (const char* mark : {"name: cifar10-resnet18", "vgg11: {", "name: residual\n      inputs",
                           "initializer_std: 0.01"}) {
    const auto file = parse_spec_file(block_with(mark), "docs", "", {});
    ASSERT_TRUE(file.ok()) << mark << file.error().message;
    const auto spec = to_engine(file->job_spec());
    ASSERT_TRUE(spec.ok()) << mark << spec.error().message;
    const auto model = build_model(spec->model, cifar, {.batch_size = 2});
    EXPECT_TRUE(model.ok()) << mark << model.error().message;
  }
}

}  // namespace
}  // namespace trainyard::client
