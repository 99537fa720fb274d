// The tests fail if a value is in another column than its index says, a zero is treated as missing,
// or an invalid file is accepted.
#include <gtest/gtest.h>

#include "tests/data/data_samples.h"

namespace trainyard {
namespace {

IngestedFiles ingested_libsvm(const std::string& train, const std::string& test = "") {
  IngestRequest request;
  request.format = "libsvm";
  std::vector<std::pair<std::string, std::string>> sources = {{"data", train}};
  if (!test.empty()) sources.emplace_back("test", test);
  return {request, sources};
}

TEST(Libsvm, OmittedValuesAreZero) {
  const std::string rows = "+1 1:0.5 3:-2 # a comment\n\n-1 2:1e1\r\n+1\n";
  for (const std::string& text : {rows, gzip(rows)}) {
    const IngestedFiles d = ingested_libsvm(text, "-1 3:7\n");
    ASSERT_TRUE(d.ok()) << d.message();
    EXPECT_EQ(copy(d->train().numeric), (std::vector<float>{0.5, 0, -2, 0, 10, 0, 0, 0, 0}));
    EXPECT_EQ(d->schema().target.classes, (std::vector<std::string>{"-1", "1"}));
    EXPECT_EQ(copy(d->train().target_class), (std::vector<int32_t>{1, 0, 1}));
    EXPECT_EQ(copy(d->test().numeric), (std::vector<float>{0, 0, 7}));
    EXPECT_EQ(copy(d->test().target_class), (std::vector<int32_t>{0}));
    EXPECT_EQ(d->schema().source_columns, (std::vector<std::string>{"c0", "c1", "c2", "label"}));
    EXPECT_EQ(d->schema().columns[0].missing_count, 0);
  }
}

TEST(Libsvm, LabelsWithAPointAreNumbers) {
  const IngestedFiles d = ingested_libsvm("1.5 1:1\n-2 1:2\n");
  ASSERT_TRUE(d.ok()) << d.message();
  EXPECT_EQ(copy(d->train().target_numeric), (std::vector<float>{1.5, -2}));
}

TEST(Libsvm, RefusesOtherTextWithTheLine) {
  const auto message = [](const std::string& train, const std::string& test = "") {
    return ingested_libsvm(train, test).message();
  };
  EXPECT_EQ(message("1 1:1\nx 1:1\n"), "data: line 2: the label 'x' is not a finite number");
  EXPECT_EQ(message("1 a:1\n"), "data: line 1: 'a:1', expected index:value such as 3:0.5");
  EXPECT_EQ(message("1 3\n"), "data: line 1: '3', expected index:value such as 3:0.5");
  EXPECT_EQ(message("1 0:1\n"),
            "data: line 1: index 0 after 0, expected ascending indices from 1 to 262144");
  EXPECT_EQ(message("1 2:1 2:1\n"),
            "data: line 1: index 2 after 2, expected ascending indices from 1 to 262144");
  EXPECT_EQ(message("1 262145:1\n"),
            "data: line 1: index 262145 after 0, expected ascending indices from 1 to 262144");
  EXPECT_EQ(message("1 1:nan\n"),
            "data: line 1: the value in '1:nan' is not a finite number of 32 bits");
  EXPECT_EQ(message("1 1:1\n1 1:2\n"),
            "data: every label is 1, expected at least 2 different ones");
  EXPECT_EQ(message("1.5 1:1\n1.5 1:2\n"),
            "data: every target is 1.5, expected different numbers to predict");
  EXPECT_EQ(message("1\n2\n"), "data: no row has a value");
  EXPECT_EQ(message("# nothing\n"), "data: there are no rows");
  const std::string rows = "1 1:1\n2 2:1\n";
  EXPECT_EQ(message(rows, "1 3:1\n"), "test: index 3, expected at most 2 as in the training data");
  EXPECT_EQ(message(rows, "3 1:1\n"), "test: row 1: its label is not one of the training rows");
}

}  // namespace
}  // namespace trainyard
