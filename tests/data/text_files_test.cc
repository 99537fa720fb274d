// Tests of folders and archives of texts. They fail if texts are in the wrong row, class or
// partition, files are joined in another order, or bytes that are not valid text are accepted.
#include <gtest/gtest.h>

#include <algorithm>

#include "src/base/sha256.h"
#include "src/data/preprocessing.h"
#include "tests/data/data_samples.h"
#include "tests/data/image_samples.h"
#include "tests/data/unsynced_files.h"

namespace trainyard {
namespace {

using Files = std::vector<ArchiveFile>;

IngestRequest text_files(const TextFilesOptions& options = {}) {
  IngestRequest request;
  request.format = "text_files";
  request.text_files = options;
  request.text_files.max_length = 3;
  return request;
}
IngestedFiles of(const Files& files, const TextFilesOptions& options = {},
                 const std::string& format = "ustar", const std::string& filter = "") {
  return {text_files(options), {{"data", archive_of(files, format, filter)}}};
}
Files reviews() {
  return {{"pos/1.txt", "good film"},
          {"pos/2.txt", "\xef\xbb\xbfgood"},
          {"neg/1.TXT", "bad bad bad film"},
          {"neg/2.txt", ""}};
}
std::vector<int32_t> tokens(const Partition& p) { return {p.tokens.begin(), p.tokens.end()}; }
std::vector<int32_t> targets(const Partition& p) {
  return {p.target_class.begin(), p.target_class.end()};
}

TEST(TextFiles, AFolderAndItsArchivesMakeTheSameRows) {
  Files other_order = reviews();
  std::ranges::reverse(other_order);
  Files below = reviews();
  for (ArchiveFile& file : below) file.path = "reviews/" + file.path;
  for (const Files& files : {reviews(), other_order, below}) {
    for (const auto& [format, filter] : std::vector<std::pair<const char*, const char*>>{
             {"ustar", ""}, {"pax", "gzip"}, {"zip", ""}, {"gnutar", "zstd"}}) {
      const IngestedFiles d = of(files, {}, format, filter);
      ASSERT_TRUE(d.ok()) << d.message();
      const DatasetSchema& s = d->schema();
      EXPECT_EQ(s.target.classes, (std::vector<std::string>{"neg", "pos"}));
      EXPECT_EQ(s.text.pieces, (std::vector<std::string>{"bad", "film", "good"}));
      EXPECT_EQ(tokens(d->train()), (std::vector<int32_t>{2, 2, 2, 0, 0, 0, 4, 3, 0, 4, 0, 0}));
      EXPECT_EQ(targets(d->train()), (std::vector<int32_t>{0, 0, 1, 1}));
      EXPECT_EQ(s.columns[0].missing_count, 1);
      EXPECT_EQ(s.statistics->classes, (std::vector<int64_t>{2, 2}));
    }
  }
  const TemporaryFolder folder;
  write_files(folder / "reviews", reviews());
  IngestRequest request = text_files();
  request.sources.push_back({"data", folder / "reviews"});
  UnsyncedFiles files;
  const auto schema = ingest(request, folder / "dataset", files);
  ASSERT_TRUE(schema.ok()) << schema.error().message;
  EXPECT_EQ(schema_text(*schema), schema_text(of(reviews())->schema()));
}

TEST(TextFiles, PartitionsTestFilesAndShares) {
  Files files;
  for (const ArchiveFile& file : reviews()) files.push_back({"train/" + file.path, file.content});
  files.push_back({"test/neg/9.txt", "film unseen"});
  files.push_back({"test/neg/notes.md", "skipped"});
  const IngestedFiles d = of(files);
  ASSERT_TRUE(d.ok()) << d.message();
  EXPECT_EQ(tokens(d->test()), (std::vector<int32_t>{3, 1, 0}));
  EXPECT_EQ(targets(d->test()), (std::vector<int32_t>{0}));
  EXPECT_EQ(d->schema().skipped_files, 1);
  const auto again = parse_schema(schema_text(d->schema()));
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(again->skipped_files, 1);
  const IngestedFiles by_path(text_files(),
                              {{"data", archive_of(reviews())},
                               {"test", archive_of({{"pos/7.txt", "bad"}, {"pos/8.txt", "x"}})}});
  ASSERT_TRUE(by_path.ok()) << by_path.message();
  EXPECT_EQ(tokens(by_path->test()), (std::vector<int32_t>{2, 0, 0, 1, 0, 0}));
  TextFilesOptions options;
  options.test_share = 0.5;
  const IngestedFiles drawn = of(reviews(), options);
  ASSERT_TRUE(drawn.ok()) << drawn.message();
  EXPECT_EQ(targets(drawn->test()), (std::vector<int32_t>{0, 1}));
  EXPECT_TRUE(
      of(files, options).message().starts_with("text_files.test_share: there already is a test "));
}

TEST(TextFiles, WordsAreThoseOfUnicode) {
  const IngestedFiles d = of({{"a/1.txt", "\u201cGood\u2026 don\u2019t\u201d"},
                              {"b/2.txt", "don't! \u00abgood\u00bb caf\u00c9 cafe\u0301"},
                              {"none/x.md", ""}});
  ASSERT_TRUE(d.ok()) << d.message();
  EXPECT_EQ(d->schema().text.pieces, (std::vector<std::string>{"caf\u00e9", "don't", "good"}));
  std::vector<std::string> keys;
  for (const DataWarning& warning : d->schema().warnings) keys.push_back(warning.key);
  EXPECT_EQ(keys, (std::vector<std::string>{"LEFT_OUT_FILES", "FOLDERS_WITHOUT_ROWS"}));

  const IngestedFiles chinese = of({{"a/1.txt", "\u4f60\u597d world"}, {"b/2.txt", "good"}});
  ASSERT_TRUE(chinese.ok()) << chinese.message();
  EXPECT_EQ(chinese->schema().text.pieces,
            (std::vector<std::string>{"good", "world", "\u4f60", "\u597d"}));
  ASSERT_EQ(chinese->schema().warnings.size(), 1u);
  EXPECT_EQ(chinese->schema().warnings[0].key, "WORDS_WITHOUT_SPACES");
  EXPECT_EQ(chinese->schema().warnings[0].count, 2);
  EXPECT_TRUE(chinese->schema().warnings[0].message.starts_with("50 % of the words"));
}

TEST(TextFiles, InvalidTextIsRefusedWithFileAndByte) {
  const auto with = [](const std::string& path, const std::string& content,
                       const TextFilesOptions& options = {}) {
    Files files = reviews();
    files.push_back({path, content});
    return of(files, options).message();
  };
  EXPECT_EQ(with("pos/3.txt", "ab\xff"),
            "data: 'pos/3.txt': byte 2 ('\\xff') is not UTF-8; store the text as UTF-8, or use "
            "tokenizer: byte");
  TextFilesOptions bytes;
  bytes.tokenizer = "byte";
  EXPECT_EQ(with("pos/3.txt", "ab\xff", bytes), "");
  EXPECT_EQ(with("3.txt", "x"),
            "data: '3.txt': is not in a class's folder; expected a folder for each class, or "
            "`text` in place of `text_files` for one text");
  EXPECT_EQ(of({{"a/1.md", "x"}}).message(), "data: there are no .txt files");
  EXPECT_TRUE(of({{"a/1.txt", "x"}, {"a/2.txt", "y"}})
                  .message()
                  .starts_with("data: every text to train is of the class 'a', expected 2"));
  EXPECT_EQ(of({{"a/1.txt", "!"}, {"b/2.txt", "?"}}).message(),
            "text_files: there is no word at all");
  EXPECT_EQ(of({{"a/1.txt", "x"}, {"b/2.txt", "y"}, {"a/1.txt", "z"}}).error().reason,
            "ARCHIVE_UNSAFE");
  TextFilesOptions wrong;
  wrong.vocabulary_size = 0;
  EXPECT_EQ(with("pos/3.txt", "x", wrong),
            "text_files.vocabulary_size: 0 is out of range, expected 1..1048576");
  const std::string archive = archive_of(reviews());
  for (size_t size = 0; size < archive.size(); size += 100) {
    (void)IngestedFiles(text_files(), {{"data", archive.substr(0, size)}});
  }
}

TEST(TextFiles, RowsToPredictAreTextOrCsv) {
  const IngestedFiles d = of(reviews());
  ASSERT_TRUE(d.ok()) << d.message();
  for (const auto& [format, bytes] : std::vector<std::pair<const char*, const char*>>{
           {"text", "good bad\n"}, {"csv", "text\ngood bad\n"}, {"csv", "good bad\n"}}) {
    const auto rows = parse_raw_rows(d->schema(), format, bytes);
    ASSERT_TRUE(rows.ok()) << rows.error().message;
    EXPECT_EQ(rows->tokens, (std::vector<int32_t>{4, 2, 0}));
  }
}

TEST(TextFolder, FilesAreJoinedInTheOrderOfTheirPaths) {
  const Files files = {{"b.txt", "two\n"}, {"c.md", "no"}, {"a.txt", "one"}, {"d/a.txt", "three"}};
  TextOptions options;
  options.tokenizer = "byte";
  const auto text = [&](const std::string& source) {
    const IngestedText d(source, options);
    EXPECT_TRUE(d.ok()) << d.message();
    std::string bytes;
    if (d.ok()) {
      for (const int32_t t : d->train().tokens) bytes += static_cast<char>(t);
    }
    return bytes;
  };
  for (const auto& [format, filter] : std::vector<std::pair<const char*, const char*>>{
           {"ustar", ""}, {"pax", "gzip"}, {"zip", ""}, {"gnutar", "xz"}, {"ustar", "zstd"}}) {
    EXPECT_EQ(text(archive_of(files, format, filter)), "one\ntwo\nthree");
  }
  EXPECT_EQ(text("PK is no archive"), "PK is no archive");
  const TemporaryFolder folder;
  write_files(folder / "books", files);
  IngestRequest request;
  request.format = "text";
  request.sources.push_back({"data", folder / "books"});
  UnsyncedFiles unsynced;
  const auto schema = ingest(request, folder / "dataset", unsynced);
  ASSERT_TRUE(schema.ok()) << schema.error().message;
  EXPECT_EQ(schema->train_rows, 13);
  EXPECT_EQ(IngestedText(archive_of({{"a.txt", "ab\xff"}})).message(),
            "data: 'a.txt': byte 2 ('\\xff') is not UTF-8; store the text as UTF-8, or use "
            "tokenizer: byte");
  EXPECT_EQ(IngestedText(archive_of({{"a.md", "ab"}})).message(), "data: there are no .txt files");
  options.field = "text";
  EXPECT_EQ(IngestedText(archive_of(files), options).message(),
            "text.field: has no effect on a folder or an archive of .txt files");
}

}  // namespace
}  // namespace trainyard
