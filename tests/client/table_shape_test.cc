// Tests of what `init` takes a file for: the shape of tables, and files that hold a table in
// another form. They fail if a row becomes a header or a header a row, or if a file that must be
// converted gets a command that does not convert it.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "client/init/job_draft.h"
#include "client/init/json_shape.h"
#include "client/init/sniff.h"
#include "client/init/table_shape.h"

namespace trainyard::init {
namespace {

namespace fs = std::filesystem;

bool has_header(std::string_view text) { return find_table_shape(text).header; }

TEST(TableShape, AHeaderMayConsistOfNumbers) {
  const std::string counts = "C0,8,0,8\nC1,6,8,9\nC2,1,7,1\nC3,2,1,8\nC4,7,6,6\n";
  EXPECT_TRUE(has_header("Country,1970,1971,1972\n" + counts)) << "years";
  EXPECT_TRUE(has_header("Country,1970,1980,2005\n" + counts)) << "years in other steps";
  EXPECT_TRUE(has_header("Country,1972\nC0,8\nC1,6\nC2,1\nC3,2\n")) << "a single year";
  EXPECT_TRUE(has_header(",1970,1971,1972\n" + counts)) << "an index without a name";
  EXPECT_TRUE(has_header("0,1,2,3\n5.5,1,7,2\n4,4,1,9\n1,0,0,3\n2,2,8,1\n"))
      << "DataFrame.to_csv() of an array";
  EXPECT_TRUE(has_header("id,10,20,30\n" + counts)) << "equal steps";

  EXPECT_FALSE(
      has_header("C9,1970,1971,1972\nC0,1975,1976,1977\nC1,1981,1980,1983\n"
                 "C2,1990,1991,1995\nC3,2001,2002,2003\n"))
      << "years below";
  EXPECT_FALSE(has_header("1,2,3\n2,3,4\n3,4,5\n4,5,6\n5,6,7\n")) << "steps below";
  EXPECT_FALSE(has_header("Country,8,3,1\n" + counts)) << "numbers that are no series";
  EXPECT_FALSE(has_header("1.5,2.5,3.5\n1,0,2\n4,1,1\n2,9,0\n1,1,5\n")) << "not whole";
  EXPECT_FALSE(has_header("0,1,2\n5,1,7\n")) << "too few rows to tell";
}

TEST(TableShape, TextsThatOccurBelowAreNoHeader) {
  EXPECT_FALSE(has_header("red,big,yes\nblue,big,no\nred,small,yes\n"));
  EXPECT_TRUE(has_header("colour,size,y\nred,small,y\nblue,big,n\n")) << "a class of that name";
}

TEST(TableShape, ExcelsFirstLineNamesTheSeparator) {
  const TableShape shape = find_table_shape("sep=;\r\na;b,c;y\r\n1;2;u\r\n3;4;v\r\n");
  EXPECT_EQ(shape.delimiter, ';');
  EXPECT_EQ(shape.fields, 3u);
  EXPECT_TRUE(shape.header);
  EXPECT_EQ(find_table_shape("sep=^\na^b\n1^2\n3^4\n").delimiter, '^');
}

TEST(TableShape, LinesAboveATableAreFound) {
  EXPECT_EQ(find_table_shape("Report of 2024\n\na,b,c\n1,2,3\n4,5,6\n").table_line, 3);
  EXPECT_EQ(find_table_shape("a,b,c\n1,2,3\n4,5,6\n").table_line, 0);
  EXPECT_EQ(find_table_shape("a,b\n1,2,3\n4,5,6\n").table_line, 0) << "rows with names, as of R";
}

TEST(JsonShape, RecognizesTheDocumentsOfPandas) {
  const auto layout = [](std::string_view text) { return find_json_shape(text).layout; };
  EXPECT_EQ(layout("{\"a\":1,\"b\":\"x\"}\n{\"a\":2,\"b\":\"y\"}\n"), JsonLayout::kLines);
  EXPECT_EQ(layout("{\"a\":1}"), JsonLayout::kLines);
  EXPECT_EQ(layout("{\"a\":{\"b\":1}}\n{\"a\":{\"b\":2}}\n"), JsonLayout::kNestedLines);
  EXPECT_EQ(layout("{\"a\":{\"0\":1,\"1\":2},\"b\":{\"0\":3,\"1\":4}}"), JsonLayout::kColumns);
  EXPECT_EQ(layout("{\"a\": [1, 2],\n \"b\": [3, 4]}"), JsonLayout::kColumns);
  EXPECT_EQ(layout("{\"0\":{\"a\":1,\"b\":3},\"1\":{\"a\":2,\"b\":4}}"), JsonLayout::kIndex);
  EXPECT_EQ(layout("{\"columns\":[\"a\"],\"index\":[0],\"data\":[[1]]}"), JsonLayout::kSplit);
  EXPECT_EQ(layout("{\"schema\":{\"fields\":[]},\"data\":[{\"a\":1}]}"), JsonLayout::kTable);
  EXPECT_EQ(layout("[{\"a\":1},{\"a\":2}]"), JsonLayout::kRows);
  EXPECT_EQ(layout("[[1,2],[3,4]]"), JsonLayout::kRows);
  EXPECT_EQ(layout("[{\"a\":{\"b\":1}},{\"a\":{\"b\":2}}]"), JsonLayout::kNestedRows);
  EXPECT_EQ(layout("[1, 2]"), JsonLayout::kNoTable);
  EXPECT_EQ(layout("{\"a\": {\"b\": 1}, \"c\": 2}"), JsonLayout::kNoTable);
  const JsonShape member = find_json_shape("{\"count\": 2, \"data\": [{\"a\": 1}, {\"a\": 2}]}");
  EXPECT_EQ(member.layout, JsonLayout::kMember);
  EXPECT_EQ(member.member, "data");
  // Only the beginning of a large document is read.
  EXPECT_EQ(layout("{\"a\":{\"0\":1,\"1\":2},\"b\":{\"0\":3,\"1"), JsonLayout::kColumns);
  EXPECT_EQ(layout("[{\"a\":1},{\"a\":"), JsonLayout::kRows);
}

class FileKinds : public ::testing::Test {
 protected:
  FileKinds() {
    folder_ = fs::path(::testing::TempDir()) / "init-file-kinds";
    fs::remove_all(folder_);
    fs::create_directories(folder_ / "scratch");
  }
  ~FileKinds() override { fs::remove_all(folder_); }

  fs::path write(const std::string& name, std::string_view text) {
    const fs::path path = folder_ / name;
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  Result<JobDraft> draft(const std::string& name, std::string_view text,
                         const std::string& target = "") {
    return draft_job(write(name, text), {.target = target, .scratch = folder_ / "scratch"});
  }
  /// Returns the message of the refusal, in which FILE stands for the file's path.
  std::string refusal(const std::string& name, std::string_view text) {
    const Result<JobDraft> made = draft(name, text);
    EXPECT_FALSE(made.ok()) << name;
    std::string message = made.ok() ? "" : made.error().message;
    const std::string path = (folder_ / name).string();
    for (size_t at; (at = message.find(path)) != message.npos;) {
      message.replace(at, path.size(), "FILE");
    }
    return message;
  }

  fs::path folder_;
};

std::string by_pandas_to_csv(const std::string& read) {
  return "Convert it to CSV: python3 -c \"import pandas; pandas." + read +
         ".to_csv('t.csv', index=False)\", or upload it from Python: trainyard.upload('FILE', "
         "target='COLUMN')";
}

TEST_F(FileKinds, JsonDocumentsAreNamedWithTheCommandThatReadsThem) {
  EXPECT_EQ(refusal("t.json",
                    "{\"a\": {\"0\": 0.77, \"1\": 0.55}, \"y\": {\"0\": \"u\", \"1\": "
                    "\"v\"}}"),
            "FILE is one JSON document with a member for each column, which Trainyard does not "
            "read. " +
                by_pandas_to_csv("read_json('FILE')"));
  EXPECT_EQ(refusal("t.json", "[{\"a\": 1},\n {\"a\": 2}]\n"),
            "FILE is one JSON document with a list of rows, which Trainyard does not read. " +
                by_pandas_to_csv("read_json('FILE')"));
  EXPECT_EQ(
      refusal("t.json", "{\"n\": 1, \"data\": [{\"a\": 1}]}"),
      "FILE is one JSON document, whose member 'data' is a list of rows, which Trainyard does "
      "not read. Flatten it into columns: python3 -c \"import json, pandas; "
      "pandas.json_normalize(json.load(open('FILE'))['data']).to_csv('t.csv', index=False)\"");
  EXPECT_NE(refusal("t.json", "{\n  \"a\": 1\n}\n").find("is JSON, but not a table"),
            std::string::npos);
}

TEST_F(FileKinds, APageIsNeitherATextNorATable) {
  const std::string table =
      "<table border=\"1\"><tr><th>a</th><th>y</th></tr>\n<tr><td>1</td><td>u</td></tr></table>\n";
  for (const char* name : {"t.html", "t.xls", "t.txt", "t"}) {
    EXPECT_EQ(refusal(name, table),
              "FILE is an HTML page with a table, which Trainyard does not read. " +
                  by_pandas_to_csv("read_html('FILE')[0]"));
  }
  EXPECT_NE(refusal("t.html", "Not found\n").find("is a page in HTML"), std::string::npos);
  EXPECT_NE(refusal("t.csv", "<?xml version=\"1.0\"?>\n<a/>\n").find("pandas.read_xml"),
            std::string::npos);
}

TEST_F(FileKinds, FilesOfOtherProgramsAreNamedWithTheirCommand) {
  const std::string sas = std::string(12, '\0') + "\xc2\xea\x81\x60\xb3\x14\x11\xcf";
  const std::pair<std::string, const char*> kinds[] = {
      {"PAR1\x15\x04\x15\xff", "a Parquet file"},
      {sas, "pandas.read_sas('FILE', format='sas7bdat')"},
      {std::string("<stata_dta><header>\0\1", 21), "pandas.read_stata('FILE')"},
      {std::string("\x72\2\1\0\3\0", 6), "pandas.read_stata('FILE')"},
      {std::string("$FL2@(#) SPSS\0", 14), "pandas.read_spss('FILE')"},
      {std::string("X\n\0\0\0\3", 6), "Rscript -e \"write.csv(readRDS('FILE')"},
      {std::string("RDX3\nX\n\0", 8), "Rscript -e \"e <- new.env(); n <- load('FILE', e)"},
      {std::string("SQLite format 3\0", 16), "sqlite3 'FILE' .tables"},
      {std::string("\0\1\0\0Standard ACE DB\0", 20), "mdb-tables 'FILE'"},
      {std::string("%PDF-1.7\n\0\xff", 11), "pdftotext -layout 'FILE'"},
      {std::string("BZh91AY\0", 8), "bunzip2 -k 'FILE'"},
  };
  for (const auto& [bytes, words] : kinds) {
    const std::string message = refusal("t.bin", bytes);
    EXPECT_NE(message.find(words), std::string::npos) << message;
  }
}

TEST_F(FileKinds, ScriptsWithTablesAreNamedWithTheirCommand) {
  EXPECT_NE(refusal("t.arff", "% a comment\n@RELATION t\n@ATTRIBUTE a NUMERIC\n@DATA\n1\n")
                .find("arff.loadarff('FILE')"),
            std::string::npos);
  EXPECT_NE(refusal("t.sql", "CREATE TABLE t (a);\nINSERT INTO t VALUES (1);\n")
                .find("sqlite3 't.db' < 'FILE'"),
            std::string::npos);
}

TEST_F(FileKinds, LinesThatArePartsOfNoTableAreNamed) {
  EXPECT_NE(
      refusal("t.csv", "Report\nof 2024\na,b,y\n1,2,u\n3,4,v\n")
          .find("whose 3 columns begin in line 3. Remove the lines above it: tail -n +3 'FILE'"),
      std::string::npos);
  EXPECT_NE(refusal("t.csv", "\"a,\"\"b\"\"\"\n\"1,u\"\n\"2,v\"\n").find("in quotes as a whole"),
            std::string::npos);
}

/// Returns rows "0.25,u" with a class for each half of the numbers.
std::string rows(const char* separator, const char* end) {
  std::string text;
  for (int i = 0; i < 40; ++i) {
    text += std::to_string(i * 37 % 40) + ".5" + separator + std::to_string(i * i % 7) + separator +
            (i * 37 % 40 < 20 ? "u" : "v") + end;
  }
  return text;
}

TEST_F(FileKinds, TablesOfExcelAndOfOldMacsAreRead) {
  for (const std::string& text :
       {"sep=;\na;b;y\n" + rows(";", "\n"), "a,b,y\r" + rows(",", "\r"),
        "a,b,y,\n" + rows(",", ",\n"), "a,b,y\r\r\n" + rows(",", "\r\r\n")}) {
    const Result<JobDraft> made = draft("t.csv", text);
    ASSERT_TRUE(made.ok()) << made.error().message;
    EXPECT_EQ(made->target, "y");
    EXPECT_EQ(made->facts.rows, 40);
  }
}

bool says_no_header(const JobDraft& draft) {
  return std::ranges::any_of(
      draft.notes, [](const std::string& note) { return note.starts_with("no header was found"); });
}

TEST_F(FileKinds, ATableWithoutAHeaderSaysSo) {
  const Result<JobDraft> made = draft("t.csv", rows(",", "\n"));
  ASSERT_TRUE(made.ok()) << made.error().message;
  EXPECT_EQ(made->target, "c2");
  EXPECT_TRUE(says_no_header(*made));
  const Result<JobDraft> named = draft("t.csv", "a,b,y\n" + rows(",", "\n"));
  ASSERT_TRUE(named.ok()) << named.error().message;
  EXPECT_FALSE(says_no_header(*named));
}

}  // namespace
}  // namespace trainyard::init
