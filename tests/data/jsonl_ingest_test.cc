// Tests of JSON lines, dates and tabs. They fail if a member is stored in another column, a value
// has another meaning than in CSV, the parts of a date are not those of its instant, or a
// prediction reads JSON lines or dates differently.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "src/data/preprocessing.h"
#include "src/data/table/date.h"
#include "tests/data/data_samples.h"
#include "tests/support/source_path.h"

namespace trainyard {
namespace {

IngestRequest jsonl(CsvOptions options = csv_options("y")) {
  IngestRequest request;
  request.format = "jsonl";
  request.csv = std::move(options);
  return request;
}
IngestedFiles ingested(const std::string& train, const CsvOptions& options = csv_options("y"),
                       const std::string& test = "") {
  std::vector<std::pair<std::string, std::string>> sources = {{"data", train}};
  if (!test.empty()) sources.emplace_back("test", test);
  return {jsonl(options), sources};
}
std::string message(const std::string& train, const CsvOptions& options = csv_options("y")) {
  return ingested(train, options).message();
}

TEST(JsonLines, RowsAreThoseOfTheSameCsv) {
  const std::string lines =
      "{\"size\": 1.5, \"colour\": \"red\", \"y\": \"a\", \"on\": true}\n"
      "\n"
      "{\"y\": \"b\", \"colour\": \"bl, \\\"ue\\\"\", \"size\": -2e1}\r\n"
      "{\"y\": \"a\", \"colour\": null, \"size\": \"3\", \"on\": false, \"extra\": 7}";
  const IngestedCsv csv(csv_options("y"),
                        "size,colour,y,on,extra\n1.5,red,a,true,\n-2e1,\"bl, \"\"ue\"\"\",b,,\n"
                        "3,,a,false,7\n");
  ASSERT_TRUE(csv.ok()) << csv.message();
  for (const std::string& text : {lines, gzip(lines), "\xef\xbb\xbf" + lines}) {
    const IngestedFiles d = ingested(text);
    ASSERT_TRUE(d.ok()) << d.message();
    DatasetSchema lines_schema = d->schema(), csv_schema = csv->schema();
    lines_schema.warnings.clear();  // warnings name the options of the format
    csv_schema.warnings.clear();
    EXPECT_EQ(schema_text(lines_schema), schema_text(csv_schema));
    EXPECT_EQ(d->train().numeric[0], 1.5f);
    EXPECT_EQ(copy(d->train().category), copy(csv->train().category));
    EXPECT_EQ(copy(d->train().target_class), (std::vector<int32_t>{0, 1, 0}));
  }
  EXPECT_EQ(csv->schema().columns[3].missing_count, 2);  // the column "extra"
}

TEST(JsonLines, MembersAreOneWhicheverFormTheyHave) {
  const IngestedFiles d = ingested(
      "{\"caf\u00e9\": 1, \"y\": \"a\"}\n{\"cafe\u0301\": 2, \"y\": \"b\"}\n"
      "{\"caf\\u00e9\": 3, \"y\": \"b\"}\n");
  ASSERT_TRUE(d.ok()) << d.message();
  EXPECT_EQ(copy(d->train().numeric), (std::vector<float>{1, 2, 3}));
}

TEST(JsonLines, MembersThatAppearLateOrNeverAreMissing) {
  CsvOptions options = csv_options("y");
  const IngestedFiles d =
      ingested("{\"y\":1}\n{\"y\":0}\n{\"a\":5,\"y\":1}\n", options, "{\"y\":1}\n");
  ASSERT_TRUE(d.ok()) << d.message();
  EXPECT_EQ(d->schema().columns[0].missing_count, 2);
  EXPECT_TRUE(std::isnan(d->train().numeric[0]));
  EXPECT_EQ(d->train().numeric[2], 5);
  EXPECT_TRUE(std::isnan(d->test().numeric[0]));
}

TEST(JsonLines, MembersOfATestSetAreMatchedInAnyCaseAndOthersReported) {
  CsvOptions options = csv_options("y");
  options.json_lines = true;
  const IngestedFiles d =
      ingested("{\"Age\":1,\"y\":\"p\"}\n{\"Age\":2,\"y\":\"q\"}\n", options,
               "{\"AGE\":7,\"note\":\"n\",\"Y\":\"q\"}\n{\"Age\":8,\"y\":\"p\"}\n");
  ASSERT_TRUE(d.ok()) << d.message();
  EXPECT_EQ(copy(d->test().numeric), (std::vector<float>{7, 8}));
  EXPECT_EQ(copy(d->test().target_class), (std::vector<int32_t>{1, 0}));
  ASSERT_FALSE(d->schema().warnings.empty());
  EXPECT_EQ(d->schema().warnings[0].columns, std::vector<std::string>{"note"});
}

TEST(JsonLines, BadLinesAreRefusedWithLineAndMember) {
  const std::string good = "{\"a\": 1, \"y\": \"p\"}\n";
  const std::string place = "data: line 2";
  for (const auto& [line, expected] : std::vector<std::pair<std::string, std::string>>{
           {"{\"a\": [1], \"y\": \"q\"}", place + ", member 'a': an object or a list"},
           {"{\"a\": {\"b\": 1}, \"y\": \"q\"}", place + ", member 'a': an object or a list"},
           {"{\"a\": 1, \"a\": 2, \"y\": \"q\"}", place + ", member 'a': appears twice"},
           {"[1, 2]", place + ": a value that is not in an object, expected an object"},
           {"3", place + ": a value that is not in an object, expected an object"},
           {"{\"a\": 1, \"y\": \"q\"", place + ": not JSON at byte"},
           {"{\"a\": 1} {\"a\": 2}", place + ": not JSON at byte"},
           {"{\"a\": 1,, \"y\": 2}", place + ": not JSON at byte"},
           {"{\"a\": NaN}", place + ": not JSON at byte"},
           {"{\"a\": \"\xff\"}", place + ": not UTF-8 at byte"},
           {"{\"a\": \"x\\u0000\", \"y\": \"q\"}", place + ", member 'a': text with a zero byte"},
           {"{\"\": 1}", place + ": a member's name of 0 bytes"},
           {"{\"" + std::string(300, 'n') + "\": 1}", place + ": a member's name of 300 bytes"},
           {"{\"a\": \"x\", \"y\": \"q\"}",
            "data: row 2 (line 2), column 'a': 'x' is not a number"},
           {"{\"a\": 1e99, \"y\": \"q\"}",
            "data: row 2 (line 2), column 'a': '1e99' is not a finite number"},
           {"{\"a\": 1}", "data: row 2 (line 2), column 'y': the target is missing"},
       }) {
    const std::string text = message(good + line + "\n" + good + "{\"a\":2,\"y\":\"r\"}\n");
    EXPECT_TRUE(text.starts_with(expected)) << text;
  }
  EXPECT_EQ(message(""), "data: the file has no rows");
  EXPECT_EQ(message("\n\n"), "data: the file has no rows");
  EXPECT_TRUE(message(good, csv_options("z")).starts_with("jsonl.target: 'z' is not a column"));
  const std::string whole = good + "{\"a\": 2, \"y\": \"q\"}\n";
  for (size_t size = 0; size < whole.size(); ++size) (void)message(whole.substr(0, size));
  std::string deep;
  for (int i = 0; i < 200000; ++i) deep += "[";
  EXPECT_TRUE(message(good + "{\"a\": " + deep + "\n").starts_with(place + ", member 'a': an obj"));
}

TEST(JsonLines, TextColumnsAreReadLikeThoseOfCsv) {
  CsvOptions options = csv_options("y");
  options.text = {"t"};
  options.max_length = 3;
  const IngestedFiles d =
      ingested("{\"t\":\"a b\",\"y\":\"p\"}\n{\"y\":\"q\",\"t\":\"b\\nc\"}\n", options);
  ASSERT_TRUE(d.ok()) << d.message();
  EXPECT_EQ(d->schema().text.pieces, (std::vector<std::string>{"b", "a", "c"}));
  EXPECT_EQ(copy(d->train().tokens), (std::vector<int32_t>{3, 2, 0, 2, 4, 0}));
}

TEST(JsonLines, TextMayBeAMemberOfEachLine) {
  TextOptions options;
  options.tokenizer = "byte";
  options.field = "text";
  const auto tokens = [&](const std::string& text) {
    const IngestedText d(text, options);
    EXPECT_TRUE(d.ok()) << d.message();
    std::string bytes;
    if (d.ok()) {
      for (const int32_t t : d->train().tokens) bytes += static_cast<char>(t);
    }
    return bytes;
  };
  EXPECT_EQ(tokens("{\"text\": \"ab\", \"meta\": {\"text\": \"no\"}}\n{\"meta\": [1]}\n"
                   "{\"text\": null}\n{\"text\": \"c\\u00e9\"}\n"),
            "ab\nc\xc3\xa9");
  EXPECT_EQ(IngestedText("{\"txet\": \"a\"}\n", options).message(),
            "text.field: no line of data has the member 'text'; did you mean 'txet'?");
  EXPECT_EQ(IngestedText("{\"text\": 1}\n", options).message(),
            "data: line 1, member 'text': not text, expected \"...\"");
  EXPECT_TRUE(IngestedText("{\"text\": \"ab\"\n", options).message().starts_with("data: line 1: "));
}

TEST(Dates, PartsAreThoseThatPythonFinds) {
  std::ifstream in(testing::source_path("tests/golden/dates.json"));
  const auto golden = nlohmann::json::parse(in);
  ASSERT_GT(golden.size(), 50u);
  for (const auto& row : golden) {
    const std::string text = row["text"];
    SCOPED_TRACE(text);
    const std::optional<Date> date = parse_date(text, DateOrder::kYearFirst);
    ASSERT_TRUE(date.has_value());
    EXPECT_EQ(date->has_time, row["time"].get<bool>());
    std::vector<float> parts(7);
    write_date(*date, DateOrder::kYearFirst, 0, parts);
    const double days = row["parts"][0];
    EXPECT_NEAR(parts[0], days, 1e-9 + 1e-7 * std::abs(days));
    for (size_t i = 1; i < parts.size(); ++i) {
      EXPECT_NEAR(parts[i], row["parts"][i].get<double>(), 1e-6) << i;
    }
  }
}

TEST(Dates, OtherTextsAreNotDates) {
  for (const char* text : {"",
                           "2026",
                           "2026-1-1",
                           "2026-13-01",
                           "2026-02-29",
                           "2026-00-10",
                           "2026-01-00",
                           "0000-01-01",
                           "20260131",
                           "31.01.2026",
                           "2026-01-31T",
                           "2026-01-31T24:00",
                           "2026-01-31T12",
                           "2026-01-31T12:60",
                           "2026-01-31T12:30:60",
                           "2026-01-31T12:30:05.",
                           "2026-01-31T12:30:05Zx",
                           "2026-01-31T12:30+1",
                           "2026-01-31Z",
                           "2026-01-31 ",
                           "+2026-01-31",
                           "2026-01-31T12:30+24:00",
                           "2026-W05-6",
                           "2026-01-31X12:30",
                           "12026-01-31"}) {
    EXPECT_FALSE(parse_date(text, DateOrder::kYearFirst).has_value()) << text;
  }
}

CsvOptions with_date(const char* name) {
  CsvOptions options = csv_options("y");
  options.date = {name};
  return options;
}

TEST(Dates, ColumnsOfDatesBecomeNumbersInTrainingAndInPredict) {
  const std::string rows =
      "a,when,y\n1,2026-01-05,p\n2,,q\n3,1970-01-01,p\n";  // a Monday, a missing date, a Thursday
  const IngestedCsv d(with_date("when"), rows, "y,when,a\np,1970-01-02T12:00,1\n");
  ASSERT_TRUE(d.ok()) << d.message();
  const DatasetSchema& s = d->schema();
  std::vector<std::string> names;
  for (const ColumnSchema& c : s.columns) names.push_back(c.name);
  EXPECT_EQ(names, (std::vector<std::string>{"a", "when.days", "when.year_sin", "when.year_cos",
                                             "when.week_sin", "when.week_cos"}));
  EXPECT_EQ(s.columns[1].date, "when");
  EXPECT_EQ(s.columns[0].missing_count, 0);
  EXPECT_EQ(s.columns[5].missing_count, 1);
  EXPECT_EQ(s.source_columns, (std::vector<std::string>{"a", "when", "y"}));
  EXPECT_EQ(d->train().numeric[1], 20458);
  EXPECT_EQ(d->train().numeric[5], 1);
  EXPECT_TRUE(std::isnan(d->train().numeric[6 + 1]));
  EXPECT_EQ(d->train().numeric[12 + 1], 0);
  EXPECT_EQ(d->test().numeric[1], 1.5f);  // includes a time, although the training rows have none
  EXPECT_EQ(s.interface().input, Shape({6}));
  EXPECT_EQ(s.statistics->numeric[1]->max, 20458);
  const std::string json = schema_text(s);
  const auto again = parse_schema(json);
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(schema_text(*again), json);
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {"\"date\":\"when\"", "\"date\":\"then\""},
           {"\"kind\":\"numeric\"", "\"kind\":\"text\""}}) {
    std::string damaged = json;
    const size_t at = damaged.find(from);
    ASSERT_NE(at, std::string::npos);
    damaged.replace(at, from.size(), to);
    EXPECT_FALSE(parse_schema(damaged).ok()) << to;
  }
  for (const char* text : {"when,a\n2026-01-05,1\n", "1,2026-01-05\n", "1,2026-01-05,?\n"}) {
    const auto parsed = parse_raw_rows(s, "csv", text);
    ASSERT_TRUE(parsed.ok()) << parsed.error().message;
    EXPECT_EQ(parsed->numeric, copy(d->train().numeric.first(6)));
  }
  EXPECT_EQ(parse_raw_rows(s, "csv", "1,5.1.2026\n").error().message,
            "rows: row 1 (line 1), column 'when': '5.1.2026' is not a date, expected the year "
            "first, such as 2026-01-31, 2026-01-31T12:30:05 or 2026-01-31T12:30:05+01:00");
}

TEST(Dates, ATimeOfDayInTheTrainingRowsAddsItsColumns) {
  const std::string csv = "when,y\n2026-01-05T06:00:00+00:00,p\n2026-01-05,q\n";
  const IngestedCsv d(with_date("when"), csv);
  ASSERT_TRUE(d.ok()) << d.message();
  ASSERT_EQ(d->schema().columns.size(), 7u);
  EXPECT_EQ(d->schema().columns[5].name, "when.day_sin");
  EXPECT_EQ(d->train().numeric[5], 1);
  EXPECT_EQ(d->train().numeric[13], 1);  // midnight, the cosine of 0
  const IngestedFiles lines = ingested(
      "{\"when\":\"2026-01-05T07:00+01:00\",\"y\":\"p\"}\n{\"y\":\"q\",\"when\":"
      "\"2026-01-05\"}\n",
      with_date("when"));
  ASSERT_TRUE(lines.ok()) << lines.message();
  EXPECT_EQ(copy(lines->train().numeric), copy(d->train().numeric));
}

TEST(Dates, OptionsMustMatch) {
  const std::string rows = "a,when,when.days,y\n1,2026-01-05,1,p\n2,2026-13-05,2,q\n";
  const auto refused = [&](auto change) {
    CsvOptions options = with_date("when");
    change(options);
    return IngestedCsv(options, rows).message();
  };
  EXPECT_EQ(refused([](CsvOptions&) {}),
            "csv.date: 'when' makes a column 'when.days', which already exists");
  EXPECT_TRUE(refused([](CsvOptions& o) {
                o.date = {"then"};
              }).starts_with("csv.date: 'then' is not a column; did you mean 'when'?"));
  EXPECT_EQ(refused([](CsvOptions& o) { o.date = {"y"}; }), "csv.date: 'y' is the target");
  EXPECT_EQ(refused([](CsvOptions& o) { o.ignore = {"when"}; }),
            "csv.date: 'when' is in csv.ignore too");
  EXPECT_EQ(refused([](CsvOptions& o) { o.categorical = {"when"}; }),
            "csv.date: 'when' is in csv.categorical too");
  CsvOptions text = with_date("when");
  text.text = {"a"};
  EXPECT_TRUE(IngestedCsv(text, "a,when,y\n1,2026-01-05,p\n2,2026-01-06,q\n")
                  .message()
                  .starts_with("csv.date: has no effect with csv.text"));
  EXPECT_EQ(IngestedCsv(with_date("when"), "when,y\n2026-01-05,p\n2026-13-05,q\n").message(),
            "data: row 2 (line 3), column 'when': '2026-13-05' is not a date, expected the year "
            "first, such as 2026-01-31, 2026-01-31T12:30:05 or 2026-01-31T12:30:05+01:00");
}

TEST(Tabs, SeparateFieldsThatMayBeEmptyOrContainBlanks) {
  CsvOptions options = csv_options("y");
  options.delimiter = '\t';
  const IngestedCsv d(options, "a\tb\ty\n1\tx y\tp\n\t\tq\n3\t\"x\ty\"\tp\n");
  ASSERT_TRUE(d.ok()) << d.message();
  EXPECT_EQ(d->schema().columns[0].missing_count, 1);
  EXPECT_EQ(d->schema().columns[1].categories, (std::vector<std::string>{"x\ty", "x y"}));
  // Rows to predict may be separated by commas if a header shows that.
  for (const char* text : {"1\tx y\n", "b\ta\nx y\t1\n", "a,b\n1,x y\n", "b,a\nx y,1\n"}) {
    const auto rows = parse_raw_rows(d->schema(), "csv", text);
    ASSERT_TRUE(rows.ok()) << rows.error().message;
    EXPECT_EQ(rows->numeric[0], 1);
    EXPECT_EQ(rows->category[0], 1);
  }
  EXPECT_FALSE(parse_raw_rows(d->schema(), "csv", "1,x y\n").ok());
}

}  // namespace
}  // namespace trainyard
