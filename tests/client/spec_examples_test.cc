// Every example that we print or ship is read by the reader that users meet. An example that went
// stale fails here.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "client/lib/spec_file.h"

namespace trainyard::client {
namespace {

namespace fs = std::filesystem;

TEST(SpecExamples, EveryFileInExamplesIsAccepted) {
  int count = 0;
  for (const auto& entry :
       fs::recursive_directory_iterator(fs::path(TRAINYARD_SOURCE_DIR) / "examples")) {
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
  std::ifstream in(fs::path(TRAINYARD_SOURCE_DIR) / "docs/job_spec.md");
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

}  // namespace
}  // namespace trainyard::client
