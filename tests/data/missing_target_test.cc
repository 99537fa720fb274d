// The tests fail if rows without a target are trained on, if they stop an ingest that should leave
// them out, or if the row numbers of later mistakes do not count them.
#include <gtest/gtest.h>

#include "src/data/statistics.h"
#include "tests/data/data_samples.h"

namespace trainyard {
namespace {

CsvOptions skipping(std::string target) {
  CsvOptions options = csv_options(std::move(target));
  options.missing_target = "skip";
  return options;
}

TEST(MissingTarget, IsRefusedWithARemedy) {
  const IngestedCsv d(csv_options("y"), "x,y\n1,a\n2,\n3,b\n");
  EXPECT_EQ(d.message(),
            "data: row 2 (line 3), column 'y': the target is missing, but every row needs one; "
            "`missing_target: skip` leaves such rows out");
}

TEST(MissingTarget, SkippedRowsAreCountedNowhere) {
  CsvOptions options = skipping("y");
  options.missing = {"NA"};
  const IngestedCsv d(options, "x,c,y\n1,red,a\n9,blue,\n,red,b\n3,green,NA\n",
                      "x,c,y\n5,red,\n6,red,b\n");
  ASSERT_TRUE(d.ok()) << d.message();
  const DatasetSchema& s = d->schema();
  EXPECT_EQ(s.skipped_rows, 3);
  EXPECT_EQ(s.train_rows, 2);
  EXPECT_EQ(s.test_rows, 1);
  EXPECT_EQ(d->test().numeric[0], 6);
  EXPECT_EQ(s.columns[0].missing_count, 1);
  EXPECT_EQ(s.statistics->numeric[0]->max, 1) << "9 and 3 are of rows that were left out";
  EXPECT_EQ(s.columns[1].categories, std::vector<std::string>{"red"});
  EXPECT_EQ(s.target.classes, (std::vector<std::string>{"a", "b"}));
}

TEST(MissingTarget, IsTheSameWithAndWithoutThreads) {
  std::string text = "x,y\n";
  for (int i = 0; i < 500; ++i) {
    text += std::to_string(i) + "," + (i % 7 == 3 ? "?" : std::to_string(i % 2)) + "\n";
  }
  TemporaryFolder folder;
  std::vector<std::string> digests;
  for (const TableThreads threads : {TableThreads{1, 0}, TableThreads{3, 64}}) {
    IngestRequest request{"csv", {{"data", folder.write("t.csv", text)}}, skipping("y")};
    request.threads = threads;
    const auto out = folder / ("typed" + std::to_string(digests.size()));
    const auto schema = ingest(request, out, local_files());
    ASSERT_TRUE(schema.ok()) << schema.error().message;
    EXPECT_EQ(schema->skipped_rows, 71);
    EXPECT_EQ(schema->train_rows, 429);
    digests.push_back(read_file(out / "digest", 4096).value());
  }
  EXPECT_EQ(digests[0], digests[1]);
}

TEST(MissingTarget, LaterMistakesKeepTheirRowNumbers) {
  EXPECT_EQ(
      IngestedCsv(skipping("y"), "x,y\n1,a\n2,\n4,a\n5,b\nx,b\n").message(),
      "data: row 5 (line 6), column 'x': 'x' is not a number, as most of the column is; if "
      "it holds names, list it in `categorical`; if this text means a missing value, list the "
      "text in `missing`");
  EXPECT_EQ(IngestedCsv(skipping("y"), "x,y\n1,a\n2,\n4\n5,b\n").message(),
            "data: row 3 (line 4): 1 field, expected 2 as in the header");
}

TEST(MissingTarget, AFileWithoutAnyTargetIsRefused) {
  EXPECT_EQ(
      IngestedCsv(skipping("y"), "x,y\n1,\n2,?\n").message(),
      "data: none of the 2 rows has a target; is csv.target ('y') the column that was meant?");
  EXPECT_EQ(IngestedCsv(skipping("labl"), "x,label\n1,a\n2,b\n").message(),
            "csv.target: 'labl' is not a column; did you mean 'label'?");
}

TEST(MissingTarget, TextsOfSkippedRowsAddNoWords) {
  CsvOptions options = skipping("y");
  options.text = {"t"};
  const IngestedCsv d(options, "t,y\nthe cat,a\nunheard of,\nthe dog,b\n");
  ASSERT_TRUE(d.ok()) << d.message();
  EXPECT_EQ(d->schema().text.pieces, (std::vector<std::string>{"the", "cat", "dog"}));
}

TEST(MissingTarget, JsonLinesWithoutTheMember) {
  for (const size_t block : {size_t{0}, size_t{16}}) {
    TemporaryFolder folder;
    CsvOptions options = skipping("y");
    options.json_lines = true;
    IngestRequest request{
        "jsonl",
        {{"data", folder.write("t.jsonl",
                               "{\"x\": 1}\n{\"x\": 2, \"y\": \"a\"}\n{\"x\": 3, \"y\": null}\n"
                               "{\"x\": 4, \"y\": \"b\"}\n")}},
        options};
    request.threads = {2, block};
    const auto schema = ingest(request, folder / "typed", local_files());
    ASSERT_TRUE(schema.ok()) << schema.error().message;
    EXPECT_EQ(schema->train_rows, 2);
    EXPECT_EQ(schema->skipped_rows, 2);
    EXPECT_EQ(schema->statistics->numeric[0]->min, 2);
  }
}

}  // namespace
}  // namespace trainyard
