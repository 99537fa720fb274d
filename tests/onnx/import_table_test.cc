// The table of imports is printed in docs/onnx.md, and each of its layers exists. The tests catch a
// row that the documentation lacks.
#include "src/onnx/import_table.h"
#include "tests/support/source_path.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

namespace trainyard::onnx {
namespace {

TEST(OnnxImportTable, IsInTheDocumentation) {
  std::ifstream file(testing::source_path("docs/onnx.md"));
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  EXPECT_NE(text.find("\n" + import_table_markdown()), std::string::npos)
      << "docs/onnx.md lacks this table:\n"
      << import_table_markdown();
}

TEST(OnnxImportTable, HasEachOperationOnceWithAnImporter) {
  for (size_t i = 0; i < import_rows().size(); ++i) {
    const ImportRow& row = import_rows()[i];
    EXPECT_EQ(find_import_row(row.op), &row) << row.op << " appears twice";
    EXPECT_TRUE(row.import != nullptr || row.fold != nullptr) << row.op;
    EXPECT_LE(row.since, kOpsetMax) << row.op;
  }
}

}  // namespace
}  // namespace trainyard::onnx
