// The tests fail if the kind of a column is misdetected, a value is stored wrongly, or bad input is
// accepted or refused without its place (B39).
#include <gtest/gtest.h>

#include <cmath>

#include "src/base/sha256.h"
#include "tests/data/data_samples.h"
#include "tests/data/faulty_files.h"
#include "tests/support/no_descriptors.h"

namespace trainyard {
namespace {

using Names = std::vector<std::string>;

TEST(CsvIngest, ColumnsGetKindsAndValuesPositions) {
  const IngestedCsv d(csv_options("label"),
                      "size,colour,label,weight\n"
                      "1.5,red,yes,-2e3\n"
                      "+2,\"blue\",no,NA\n"
                      ",red,yes,.5\n"
                      "4,,no,7\n");
  ASSERT_TRUE(d.ok()) << d.message();
  const DatasetSchema& s = d->schema();
  ASSERT_EQ(s.columns.size(), 3u);
  EXPECT_EQ(s.columns[0].name, "size");
  EXPECT_EQ(s.columns[0].missing_count, 1);
  EXPECT_EQ(s.columns[1].kind, ColumnSchema::Kind::kCategorical);
  EXPECT_EQ(s.columns[1].categories, (Names{"blue", "red"}));
  EXPECT_EQ(s.columns[1].missing_count, 1);
  EXPECT_EQ(s.columns[2].missing_count, 1);
  EXPECT_EQ(s.target.classes, (Names{"no", "yes"}));
  EXPECT_EQ(s.interface().input, Shape({4}));
  EXPECT_EQ(s.interface().outputs, 2);
  EXPECT_EQ(s.train_rows, 4);
  const Partition& p = d->train();
  EXPECT_EQ(copy(p.target_class), (std::vector<int32_t>{1, 0, 1, 0}));
  EXPECT_EQ(copy(p.category), (std::vector<int32_t>{1, 0, 1, -1}));
  ASSERT_EQ(p.numeric.size(), 8u);
  EXPECT_EQ(p.numeric[0], 1.5f);
  EXPECT_EQ(p.numeric[1], -2000.0f);
  EXPECT_EQ(p.numeric[2], 2.0f);
  EXPECT_TRUE(std::isnan(p.numeric[3]));
  EXPECT_TRUE(std::isnan(p.numeric[4]));
  EXPECT_EQ(p.numeric[5], 0.5f);
}

TEST(CsvIngest, RefusalsBeginWithTheNameOfTheFile) {
  const TemporaryFolder folder;
  const auto refused = [&](std::string train_name, std::string test_name, std::string_view test) {
    const IngestRequest request{"csv",
                                {{"data", folder.write("1", "a,y\n1,x\n2,z\n"), "", train_name},
                                 {"test", folder.write("2", test), "", test_name}},
                                csv_options("y")};
    return ingest(request, folder / "typed", local_files()).error();
  };
  const Error named = refused("cats.csv", "dogs.csv", "a,y\n1\n");
  EXPECT_EQ(named.message, "dogs.csv: row 1 (line 2): 1 field, expected 2 as in the header");
  EXPECT_TRUE(named.violations[0].field.starts_with("dogs.csv: row 1"))
      << named.violations[0].field;
  EXPECT_TRUE(refused("cats.csv", "cats.csv", "a,y\n1\n").message.starts_with("cats.csv (test): "));
  EXPECT_TRUE(refused("cats.csv", "", "a,y\n1\n").message.starts_with("test: row 1"));
  const std::string_view parquet("PAR1\x15\0", 6);
  EXPECT_NE(refused("cats.csv", "t.parquet", parquet)
                .message.find("pandas.read_parquet('t.parquet').to_csv('t.csv', index=False)"),
            std::string::npos);
  EXPECT_NE(refused("cats.csv", "it's.parquet", parquet).message.find("read_parquet('FILE')"),
            std::string::npos)
      << "no command with a quote that ends too early";
  EXPECT_NE(refused("cats.csv", "dogs.csv", "a,y\nFILE,x\n").message.find("'FILE' is not a number"),
            std::string::npos);
}

TEST(CsvIngest, TargetKindFollowsItsValues) {
  const auto kind = [](const std::string& column, const char* target_kind = "") {
    CsvOptions options = csv_options("y");
    options.target_kind = target_kind;
    std::string text = "x,y\n";
    for (size_t start = 0; start < column.size();) {
      const size_t end = column.find(' ', start);
      text += "1," + column.substr(start, end - start) + "\n";
      start = end == column.npos ? column.size() : end + 1;
    }
    const IngestedCsv d(options, text);
    if (!d.ok()) return d.message();
    std::string result = d->schema().interface().classification() ? "class" : "numeric";
    for (const std::string& name : d->schema().target.classes) result += " " + name;
    return result;
  };
  std::string many;
  for (int i = 0; i < 21; ++i) many += (i > 0 ? " " : "") + std::to_string(i);
  EXPECT_EQ(kind("0 1 1 0"), "class 0 1");
  EXPECT_EQ(kind("10 9 1.0 1 -3"), "class -3 1 9 10");  // in numeric order, and 1.0 equals 1
  EXPECT_EQ(kind("0.5 1 2"), "numeric");
  EXPECT_EQ(kind(many), "numeric");
  EXPECT_EQ(kind(many.substr(2)), "class 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20");
  EXPECT_EQ(kind("a b a"), "class a b");
  EXPECT_EQ(kind("a 1 a 2"), "class 1 2 a");
  EXPECT_EQ(kind("0 1 1", "numeric"), "numeric");
  EXPECT_EQ(kind("0.5 1.5 0.5", "class"), "class 0.5 1.5");
  EXPECT_EQ(kind("7 7 7"), "csv.target: column 'y' has a single class '7', expected at least 2");
  EXPECT_EQ(kind("7 7 7", "numeric"),
            "csv.target: column 'y' has the value 7 in all rows, expected different numbers to "
            "predict");
  EXPECT_EQ(kind("7", "numeric"), "numeric") << "nothing is known of one row";
  EXPECT_EQ(kind("0 1", "classes"), "csv.target_kind: 'classes', expected class or numeric");
  const std::string missing =
      "data: row 2 (line 3), column 'y': the target is missing, but every row needs one; "
      "`missing_target: skip` leaves such rows out";
  EXPECT_EQ(kind("1 NA 2"), missing);
  EXPECT_EQ(kind("1.5 NA 2"), missing);
  EXPECT_EQ(kind(many + " oops"), "data: row 22 (line 23), column 'y': 'oops' is not a number");
  EXPECT_EQ(kind("1.5 inf"),
            "data: row 2 (line 3), column 'y': 'inf' is not a finite number of 32 bits");
}

TEST(CsvIngest, OptionsChooseColumns) {
  CsvOptions options = csv_options("y");
  options.ignore = {"id"};
  options.categorical = {"zip"};
  const IngestedCsv d(options, "id,zip,x,y\nk1,01,1,a\nk2,1,2,b\nk3,01,3,a\n");
  ASSERT_TRUE(d.ok()) << d.message();
  ASSERT_EQ(d->schema().columns.size(), 2u);
  // as text, since "01" and "1" differ
  EXPECT_EQ(d->schema().columns[0].categories, (Names{"01", "1"}));
  EXPECT_EQ(d->schema().ignored_columns, Names{"id"});
}

TEST(CsvIngest, WithoutAHeaderColumnsAreNumbered) {
  CsvOptions options = csv_options("c2");
  options.header = false;
  options.delimiter = ';';
  const IngestedCsv d(options, "1;2;a\n3;4;b\n");
  ASSERT_TRUE(d.ok()) << d.message();
  EXPECT_EQ(d->schema().columns[1].name, "c1");
  EXPECT_EQ(d->schema().train_rows, 2);
}

TEST(CsvIngest, ImagesAreBytesOnlyIfEveryPixelIs) {
  CsvOptions options = csv_options("y");
  options.image = {1, 1, 2};
  const IngestedCsv bytes(options, "a,b,y\n0,255,0\n3,7.0,1\n", "a,b,y\n1,2,0\n");
  ASSERT_TRUE(bytes.ok()) << bytes.message();
  EXPECT_EQ(bytes->schema().image, Shape({1, 1, 2}));
  EXPECT_EQ(bytes->schema().image_dtype, DType::kU8);
  EXPECT_EQ(bytes->train().image_u8[1], 255);
  EXPECT_EQ(bytes->train().image_u8[3], 7);
  EXPECT_EQ(
      std::vector<int64_t>(bytes->train().image_sums.begin(), bytes->train().image_sums.end()),
      (std::vector<int64_t>{255, 65025, 10, 58}));
  EXPECT_EQ(bytes->test().image_u8.size(), 2u);
  for (const char* odd : {"0.5", "-1", "256"}) {
    const std::string row = "a,b,y\n1," + std::string(odd) + ",0\n";
    const IngestedCsv in_test(options, "a,b,y\n0,255,0\n3,7,1\n", row);
    ASSERT_TRUE(in_test.ok()) << in_test.message();
    EXPECT_EQ(in_test->schema().image_dtype, DType::kF32);
    EXPECT_EQ(in_test->train().image_f32[1], 255.0f);
  }
  EXPECT_EQ(
      IngestedCsv(options, "a,b,y\n0,,0\n3,7,1\n").message(),
      "data: row 1 (line 2), column 'b': the value is missing, but an image needs all pixels");
  EXPECT_EQ(IngestedCsv(options, "a,b,y\n0,x,0\n3,7,1\n").message(),
            "data: row 1 (line 2), column 'b': 'x' is not a number");
  options.image = {1, 8, 8};
  EXPECT_EQ(IngestedCsv(options, "a,b,y\n0,1,0\n3,7,1\n").message(),
            "csv.image: [1, 8, 8] has 64 values, but there are 2 feature columns");
  options.image = {8, 8};
  EXPECT_EQ(IngestedCsv(options, "a,b,y\n0,1,0\n3,7,1\n").message(),
            "csv.image: [8, 8], expected [C, H, W]");
  options.image = {int64_t{1} << 40, int64_t{1} << 40, 1};
  EXPECT_FALSE(IngestedCsv(options, "a,b,y\n0,1,0\n3,7,1\n").ok());
}

TEST(CsvIngest, TestSetUsesTheTrainingSchema) {
  const char* train = "colour,x,y\nred,1,a\nblue,2,b\n";
  const IngestedCsv d(csv_options("y"), train, "y,colour,x\nb,green,NA\na,red,9\n");
  ASSERT_TRUE(d.ok()) << d.message();
  EXPECT_EQ(d->test().rows, 2);
  EXPECT_EQ(copy(d->test().target_class), (std::vector<int32_t>{1, 0}));
  // green does not occur in the training rows
  EXPECT_EQ(copy(d->test().category), (std::vector<int32_t>{-1, 1}));
  EXPECT_TRUE(std::isnan(d->test().numeric[0]));
  EXPECT_EQ(d->schema().columns[0].categories, (Names{"blue", "red"}));
  EXPECT_EQ(d->schema().columns[1].missing_count, 0);  // counts training rows only

  const auto message = [&](const char* test) {
    return IngestedCsv(csv_options("y"), train, test).message();
  };
  EXPECT_EQ(message("colour,x,y\nred,1,c\n"),
            "test: row 1 (line 2), column 'y': 'c' is not a class of the training rows");
  EXPECT_EQ(message("colour,x\nred,1\n"),
            "test: the column 'y', which the training data has, is missing");
  EXPECT_EQ(message("colour,x,y\nred,one,a\n"),
            "test: row 1 (line 2), column 'x': 'one' is not a number");
  EXPECT_EQ(message("colour,x,y\n"), "test: the file has a header, but no rows");
}

// B39: each is refused with row and column, and leaves nothing behind (data_samples.cc checks
// that).
TEST(CsvIngestB39, BadInputIsRefusedWithItsPlace) {
  struct Case {
    std::string text;
    std::string message;
  };
  const std::vector<Case> cases = {
      {"", "data: the file is empty"},
      {"\n\n", "data: the file is empty"},
      {"x,y\n", "data: the file has a header, but no rows"},
      {"x,y\n1,a\n2\n", "data: row 2 (line 3): 1 field, expected 2 as in the header"},
      {"x,y\n1,a\n2,b,3\n", "data: row 2 (line 3): 3 fields, expected 2 as in the header"},
      {"x,y\n1,a\n2,b\nfoo,a\n3,b\n",
       "data: row 3 (line 4), column 'x': 'foo' is not a number, as most of the column is; if it "
       "holds names, list it in `categorical`; if this text means a missing value, list the text "
       "in "
       "`missing`"},
      {"x,y\n1,a\ninf,b\n",
       "data: row 2 (line 3), column 'x': 'inf' is not a finite number of 32 bits"},
      {"x,y\n1,a\n1e39,b\n",
       "data: row 2 (line 3), column 'x': '1e39' is not a finite number of 32 bits"},
      {"x,y\n1,a\n1e400,b\n",
       "data: row 2 (line 3), column 'x': '1e400' is not a finite number of 32 bits"},
      {"x,y\n1,a\n\"1\n", "data: line 3: a quote is opened and never closed"},
      {"7,7\n1,2\n",
       "data: header, column 2: the number '7' appears twice, which names do not; if the file has "
       "no header, set header: false"},
      {"x,\xff\n1,2\n", "data: header, column 2: '\\xff' is not a name (UTF-8, at most 256 bytes)"},
      {"x,y\nab\xff,a\ncd,b\n", "data: row 1 (line 2), column 'x': 'ab\\xff' is not UTF-8 text"},
      {"y\na\nb\n", "data: there is no column besides the target, expected at least one"},
      {"x,label\n1,a\n2,b\n", "csv.target: 'y' is not a column; the columns are 'x', 'label'"},
      {"x,y\n" + std::string(300, 'k') + ",a\nl,b\n",
       "data: row 1 (line 2), column 'x': a text of 300 bytes is too long for a category (at most "
       "256 bytes); leave the column out with `ignore`"},
  };
  for (const Case& c : cases) {
    const IngestedCsv d(csv_options("y"), c.text);
    ASSERT_FALSE(d.ok()) << c.text;
    EXPECT_EQ(d.message(), c.message) << c.text;
    EXPECT_EQ(d.result().error().reason, "DATASET_INVALID");
    EXPECT_FALSE(d.result().error().violations.empty());
  }
}

TEST(CsvIngestB39, AColumnThatIsNotThereNamesTheNearest) {
  const char* text = "size,colour,label\n1,red,a\n2,blue,b\n";
  EXPECT_EQ(IngestedCsv(csv_options("labl"), text).message(),
            "csv.target: 'labl' is not a column; did you mean 'label'?");
  EXPECT_EQ(IngestedCsv(csv_options(""), text).message(),
            "csv.target: required: the column to predict");
  CsvOptions options = csv_options("label");
  options.ignore = {"color"};
  EXPECT_EQ(IngestedCsv(options, text).message(),
            "csv.ignore: 'color' is not a column; did you mean 'colour'?");
  options.ignore = {"label"};
  EXPECT_EQ(IngestedCsv(options, text).message(), "csv.ignore: 'label' is the target");
  options.ignore = {"size"};
  options.categorical = {"size"};
  EXPECT_EQ(IngestedCsv(options, text).message(), "csv.categorical: 'size' is in csv.ignore too");
}

TEST(CsvIngestB39, AHeaderWithAnotherOrNoSeparatorIsExplained) {
  EXPECT_EQ(IngestedCsv(csv_options("y"), "x;y\n1;a\n2;b\n").message(),
            "csv.delimiter: the header is separated by semicolons, expected delimiter: ';'");
  EXPECT_EQ(IngestedCsv(csv_options("y"), "x\ty\n1\ta\n2\tb\n").message(),
            "csv.delimiter: the header is separated by tabs, expected delimiter: \"\\t\"");
  EXPECT_EQ(IngestedCsv(csv_options("y"), "1,a\n2,b\n").message(),
            "csv.target: 'y' is not a column; the columns are '1', 'a'; if the file has no header, "
            "set header: false and name its columns c0, c1 and so on");
}

TEST(CsvIngestB39, TheFirst16ProblemsAreNamed) {
  std::string text = "x,z,y\n";
  for (int i = 1; i <= 40; ++i) text += "1,1," + std::string(i % 2 == 0 ? "a" : "b") + "\n";
  for (int i = 1; i <= 20; ++i) text += "bad,worse,a\n";
  const IngestedCsv d(csv_options("y"), text);
  ASSERT_FALSE(d.ok());
  const auto& violations = d.result().error().violations;
  ASSERT_EQ(violations.size(), 16u);
  EXPECT_EQ(violations[0].field, "data: row 41 (line 42), column 'x'");
  EXPECT_EQ(violations[1].field, "data: row 41 (line 42), column 'z'");
  EXPECT_EQ(violations[15].field, "data: row 48 (line 49), column 'z'");
  EXPECT_NE(d.message().find("(the first of 16 or more problems)"), std::string::npos);
}

TEST(CsvIngestB39, TooManyCategoriesAreRefusedOnce) {
  std::string text = "x,name,y\n";
  for (int i = 0; i < 10005; ++i) {
    text += "1,n" + std::to_string(i) + "," + std::string(i % 2 == 0 ? "a" : "b") + "\n";
  }
  const IngestedCsv d(csv_options("y"), text);
  EXPECT_EQ(d.message(),
            "data: row 10001 (line 10002), column 'name': more than 10000 different values; leave "
            "the column out with `ignore`");
}

TEST(CsvIngestB39, NoCutOrChangedByteCrashes) {
  const std::string text = "a,\"b\",y\r\n1,red,\"p\"\"q\"\r\n2.5,blue,r\r\n";
  for (size_t size = 0; size < text.size(); ++size) {
    (void)IngestedCsv(csv_options("y"), text.substr(0, size));
  }
  for (size_t i = 0; i < text.size(); ++i) {
    std::string changed = text;
    changed[i] = static_cast<char>(changed[i] ^ 0x04);
    (void)IngestedCsv(csv_options("y"), changed);
  }
}

TEST(Dataset, DamageIsFoundByVerifyingTheDigest) {
  const char* text = "x,c,y\n1,u,a\n2,v,b\n3,u,a\n";
  const IngestedCsv d(csv_options("y"), text);
  ASSERT_TRUE(d.ok()) << d.message();
  const auto folder = d.folder() / "typed";
  const std::string digest = read_file(folder / "digest", 1000).value();
  EXPECT_EQ(digest, sha256_file(folder / "schema.json").value() + "  schema.json\n" +
                        sha256_file(folder / "data.safetensors").value() + "  data.safetensors\n");
  for (const char* name : {"schema.json", "data.safetensors", "digest"}) {
    const std::string whole = read_file(folder / name, 1 << 20).value();
    for (size_t i = 0; i < whole.size(); i += 3) {
      std::string flipped = whole;
      flipped[i] = static_cast<char>(flipped[i] ^ (1 << i % 8));
      std::ofstream(folder / name, std::ios::binary) << flipped;
      EXPECT_FALSE(Dataset::open(folder, true).ok()) << name << " at " << i;
      (void)Dataset::open(folder, false);  // may return any result, but must not crash
      std::ofstream(folder / name, std::ios::binary) << whole.substr(0, i);
      const auto cut = Dataset::open(folder, true);
      ASSERT_FALSE(cut.ok());
      EXPECT_EQ(cut.error().reason, "DATASET_DAMAGED");
    }
    std::ofstream(folder / name, std::ios::binary) << whole;
  }
  EXPECT_TRUE(Dataset::open(folder, true).ok());
  std::filesystem::remove(folder / "digest");
  EXPECT_EQ(Dataset::open(folder, true).error().reason, "DATASET_NOT_FOUND");
}

// A temporary lack of resources is no damage: a job waits for the resource, but fails if the
// dataset is damaged.
TEST(Dataset, AnUnreadableFileIsNotReportedAsDamaged) {
  const IngestedCsv d(csv_options("y"), "x,c,y\n1,u,a\n2,v,b\n3,u,a\n");
  ASSERT_TRUE(d.ok()) << d.message();
  const auto folder = d.folder() / "typed";
  {
    const testing::NoDescriptors none;
    EXPECT_EQ(Dataset::open(folder, false).error().reason, "STORAGE_ERROR");
  }
  for (const char* name : {"digest", "schema.json", "data.safetensors"}) {
    const auto away = d.folder() / "away";
    std::filesystem::rename(folder / name, away);
    const std::string missing = Dataset::open(folder, false).error().reason;
    EXPECT_EQ(missing, name == std::string("digest") ? "DATASET_NOT_FOUND" : "FILE_NOT_FOUND");
    std::filesystem::create_symlink(folder / name,
                                    folder / name);  // opening it fails, even for root
    EXPECT_EQ(Dataset::open(folder, false).error().reason, "STORAGE_ERROR") << name;
    std::filesystem::rename(away, folder / name);
  }
  EXPECT_TRUE(Dataset::open(folder, true).ok());
}

// F18, I6: an ingest is complete or leaves nothing.
TEST(Dataset, F18IngestIsCompleteOrLeavesNothing) {
  const TemporaryFolder folder;
  const IngestRequest request{
      "csv", {{"data", folder.write("a.csv", "x,y\n1,a\n2,b\n")}}, csv_options("y")};
  int fail_at = 0;
  for (;; ++fail_at) {
    FaultyFiles files(fail_at);
    const auto schema = ingest(request, folder / "typed", files);
    if (files.operations() <= fail_at) {
      ASSERT_TRUE(schema.ok());
      break;
    }
    ASSERT_FALSE(schema.ok());
    EXPECT_EQ(schema.error().reason, "STORAGE_FULL");
    EXPECT_FALSE(std::filesystem::exists(folder / "typed"));
  }
  EXPECT_GE(fail_at, 6);
  EXPECT_TRUE(Dataset::open(folder / "typed", true).ok());
  // The process ends at any operation, or gets an error after the operation took effect. A dataset
  // under the final name is complete then, and the next ingest succeeds once the daemon has removed
  // it.
  for (const auto mode : {FaultyFiles::Mode::kAfter, FaultyFiles::Mode::kCrash}) {
    for (int at = 0; at < fail_at; ++at) {
      const auto target = folder / ("typed" + std::to_string(at));
      FaultyFiles files(at, mode);
      (void)ingest(request, target, files);
      if (std::filesystem::exists(target)) {
        EXPECT_TRUE(Dataset::open(target, true).ok()) << "operation " << at;
      }
      std::filesystem::remove_all(target);
      EXPECT_TRUE(ingest(request, target, local_files()).ok()) << "operation " << at;
      EXPECT_TRUE(Dataset::open(target, true).ok()) << "operation " << at;
      std::filesystem::remove_all(target);
    }
  }
  EXPECT_EQ(ingest(request, folder / "typed", local_files()).error().reason, "DATASET_EXISTS");
}

TEST(Dataset, SameContentAndOptionsGiveTheSameBytes) {
  const char* text = "x,c,y\n1,u,a\n2,v,b\n3,u,a\n";
  const IngestedCsv a(csv_options("y"), text), b(csv_options("y"), text);
  EXPECT_EQ(read_file(a.folder() / "typed/digest", 1000).value(),
            read_file(b.folder() / "typed/digest", 1000).value());
}

TEST(DatasetSchema, RoundTripsThroughJsonAndRefusesInvalidOnes) {
  const IngestedCsv d(csv_options("y"), "x,c,y\n1,u,a\n2,v,b\n3,u,a\n");
  const std::string json = schema_text(d->schema());
  const auto again = parse_schema(json);
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(schema_text(*again), json);
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {"\"tabular\"", "\"table\""},
           {"\"kind\":\"categorical\"", "\"kind\":\"text\""},
           {"[\"a\",\"b\"]", "[\"a\",\"a\"]"},
           {"[\"a\",\"b\"]", "[\"a\"]"},
           {"[\"u\",\"v\"]", "[\"u\",1]"},
           {"\"train_rows\":3", "\"train_rows\":-3"},
           {"\"train_rows\":3", "\"train_rows\":3.5"},
           {"\"train_rows\":3", "\"rows\":3"},
           {"\"source_columns\":[\"x\"", "\"source_columns\":[\"z\""},
           {"\"delimiter\":\",\"", "\"delimiter\":\"\\n\""},
       }) {
    std::string changed = json;
    ASSERT_NE(changed.find(from), std::string::npos) << from;
    changed.replace(changed.find(from), from.size(), to);
    EXPECT_FALSE(parse_schema(changed).ok()) << to;
  }
  EXPECT_FALSE(parse_schema("").ok());
  EXPECT_FALSE(parse_schema("[]").ok());
  EXPECT_FALSE(parse_schema(std::string(100000, '[')).ok());
}

}  // namespace
}  // namespace trainyard
