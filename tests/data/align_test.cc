// Tests that a dataset is aligned with a model that was trained on another dataset: by names,
// whatever the codes are.
#include "src/data/align.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/data/data_samples.h"

namespace trainyard {
namespace {

std::vector<float> floats(std::span<const float> values) { return {values.begin(), values.end()}; }
const char* kLearned =
    "age,town,size,kind\n"
    "30,rome,1.5,cat\n41,oslo,2.5,dog\n52,lima,3.5,dog\n63,rome,4.5,emu\n";

TEST(AlignedRows, TheSameDatasetIsNotCopied) {
  const IngestedCsv data(csv_options("kind"), kLearned);
  ASSERT_TRUE(data.ok()) << data.message();
  const auto rows = AlignedRows::align(data->schema(), data->schema(), data->train());
  ASSERT_TRUE(rows.ok()) << rows.error().message;
  EXPECT_EQ(rows->view().numeric.data(), data->train().numeric.data());
  EXPECT_EQ(rows->view().category.data(), data->train().category.data());
  EXPECT_EQ(rows->view().target_class.data(), data->train().target_class.data());
}

TEST(AlignedRows, ColumnsInAnyCaseCategoriesAndClassesAreMatchedByName) {
  const IngestedCsv model(csv_options("kind"), kLearned);
  // The columns are in another order, one is new, one town is unknown to the model, and one class
  // is missing.
  const IngestedCsv other(csv_options("kind"),
                          "town,kind,colour,size,AGE\n"
                          "lima,emu,red,7.5,20\nbern,dog,blue,,21\nrome,emu,red,9.5,22\n");
  ASSERT_TRUE(model.ok() && other.ok()) << model.message() << other.message();
  const auto rows = AlignedRows::align(model->schema(), other->schema(), other->train());
  ASSERT_TRUE(rows.ok()) << rows.error().message;
  const std::vector<float> numeric = floats(rows->view().numeric);
  ASSERT_EQ(numeric.size(), 6u);
  EXPECT_EQ(numeric[0], 20);
  EXPECT_EQ(numeric[1], 7.5f);
  EXPECT_TRUE(std::isnan(numeric[3]));
  EXPECT_EQ(copy(rows->view().category), (std::vector<int32_t>{0, -1, 2}));  // lima, oslo, rome
  EXPECT_EQ(copy(rows->view().target_class), (std::vector<int32_t>{2, 1, 2}));
  EXPECT_EQ(rows->view().rows, 3);
  EXPECT_EQ(rows->ignored_columns(), std::vector<std::string>{"colour"});
}

TEST(AlignedRows, AllMissingColumnsAreReported) {
  const IngestedCsv model(csv_options("kind"), kLearned);
  const IngestedCsv other(csv_options("kind"), "age,town,kind\nold,rome,cat\nnew,oslo,owl\n");
  ASSERT_TRUE(model.ok() && other.ok()) << model.message() << other.message();
  const auto rows = AlignedRows::align(model->schema(), other->schema(), other->train());
  ASSERT_FALSE(rows.ok());
  EXPECT_EQ(rows.error().reason, "EVALUATE_MISMATCH");
  ASSERT_EQ(rows.error().violations.size(), 3u) << rows.error().message;
  EXPECT_NE(rows.error().violations[0].description.find("'age' is not numeric"), std::string::npos);
  EXPECT_NE(rows.error().violations[1].description.find("lacks the column 'size'"),
            std::string::npos);
  EXPECT_NE(rows.error().violations[2].description.find("the class 'owl'"), std::string::npos);
}

TEST(AlignedRows, AClassWithoutRowsIsAccepted) {
  const IngestedCsv model(csv_options("kind"), "a,kind\n1,cat\n2,dog\n");
  const IngestedCsv other(csv_options("kind"), "a,kind\n1,cat\n2,owl\n", "a,kind\n3,cat\n");
  ASSERT_TRUE(model.ok() && other.ok()) << model.message() << other.message();
  EXPECT_FALSE(AlignedRows::align(model->schema(), other->schema(), other->train()).ok());
  const auto rows = AlignedRows::align(model->schema(), other->schema(), other->test());
  ASSERT_TRUE(rows.ok()) << rows.error().message;
  EXPECT_EQ(copy(rows->view().target_class), std::vector<int32_t>{0});
}

TEST(AlignedRows, AnotherTargetOrKindIsRefused) {
  CsvOptions numeric = csv_options("size");
  numeric.target_kind = "numeric";
  const IngestedCsv classes(csv_options("kind"), "size,kind\n1,cat\n2,dog\n");
  const IngestedCsv number(numeric, "kind,size\ncat,1\ndog,2\n");
  const IngestedText text("abcabc");
  ASSERT_TRUE(classes.ok() && number.ok() && text.ok());
  EXPECT_FALSE(AlignedRows::align(classes->schema(), number->schema(), number->train()).ok());
  const auto kind = AlignedRows::align(classes->schema(), text->schema(), text->train());
  ASSERT_FALSE(kind.ok());
  EXPECT_NE(kind.error().message.find("contains one text; the model expects a table"),
            std::string::npos)
      << kind.error().message;
}

TEST(AlignedRows, NumbersInAnotherUnitAreRefused) {
  CsvOptions options = csv_options("price");
  options.target_kind = "numeric";
  options.numbers = {"weight", "price"};
  const IngestedCsv model(options, "weight,price\n3 kg,$5\n4 kg,$6\n");
  const IngestedCsv plain(options, "weight,price\n3,5\n4,6\n");
  const IngestedCsv other(options, "weight,price\n3 lb,EUR 5\n4 lb,EUR 6\n");
  ASSERT_TRUE(model.ok() && plain.ok() && other.ok()) << other.message();
  EXPECT_TRUE(AlignedRows::align(model->schema(), plain->schema(), plain->train()).ok());
  const auto rows = AlignedRows::align(model->schema(), other->schema(), other->train());
  ASSERT_FALSE(rows.ok());
  ASSERT_EQ(rows.error().violations.size(), 2u) << rows.error().message;
  EXPECT_EQ(rows.error().violations[0].description,
            "its column 'weight' is in 'lb'; the model's is in 'kg', expected the same unit");
  EXPECT_EQ(rows.error().violations[1].description,
            "its target is in 'EUR'; the model's is in '$', expected the same unit");
}

TEST(AlignedRows, TokensAreMatchedByTheirText) {
  const IngestedText model("abcdabcd"), other("dxca");
  ASSERT_TRUE(model.ok() && other.ok());
  const auto rows = AlignedRows::align(model->schema(), other->schema(), other->train());
  ASSERT_TRUE(rows.ok()) << rows.error().message;
  // 0 is the unknown token
  EXPECT_EQ(copy(rows->view().tokens), (std::vector<int32_t>{4, 0, 3, 1}));
  TextOptions bytes;
  bytes.tokenizer = "byte";
  const IngestedText raw("dxca", bytes);
  EXPECT_FALSE(AlignedRows::align(model->schema(), raw->schema(), raw->train()).ok());
}

TEST(AlignedRows, ImagesHaveOneShape) {
  const std::string label = idx_file(0x08, {2}, std::string("\0\1", 2));
  const IngestedIdx small(idx_file(0x08, {2, 1, 2}, "abcd"), label);
  const IngestedIdx large(idx_file(0x08, {2, 2, 2}, "abcdefgh"), label);
  ASSERT_TRUE(small.ok() && large.ok()) << small.message() << large.message();
  const auto rows = AlignedRows::align(small->schema(), large->schema(), large->train());
  ASSERT_FALSE(rows.ok());
  EXPECT_NE(rows.error().message.find("[1, 2, 2]"), std::string::npos) << rows.error().message;
}

}  // namespace
}  // namespace trainyard
