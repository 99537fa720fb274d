// Reads a dataset of text files with a folder for each class; each file is a row. The first pass
// over the files lists them, the second learns the vocabulary, the third fills the rows, which are
// in the order of the paths.
#include <algorithm>
#include <functional>

#include "src/base/text.h"
#include "src/data/files/class_folders.h"
#include "src/data/files/left_out_files.h"
#include "src/data/files/text_files.h"
#include "src/data/limits.h"
#include "src/data/problems.h"
#include "src/data/table/csv_schema.h"
#include "src/data/test_share.h"
#include "src/data/text/tokenizer.h"
#include "src/data/typed_dataset.h"

namespace trainyard {
namespace {

using Part = ListedFile::Part;

/// The files of a source, in the order of `tree`.
struct TextListing {
  std::string what;  // "data", "test"
  std::unique_ptr<FileTree> tree;
  std::vector<ListedFile> files;
  bool has_test = false;
  LeftOutFiles left_out;

  ListedFiles all() {
    ListedFiles pointers;
    for (ListedFile& file : files) pointers.push_back(&file);
    return pointers;
  }
};

Result<TextListing> list_texts(const std::filesystem::path& path, const std::string& what,
                               bool partitioned) {
  TextListing listing;
  listing.what = what;
  ASSIGN_OR_RETURN(listing.tree, open_file_tree(path, what));
  for (;;) {
    ASSIGN_OR_RETURN(const bool more, listing.tree->next());
    if (!more) break;
    if (is_text_path(listing.tree->path())) {
      listing.files.emplace_back().path = listing.tree->path();
    } else {
      listing.left_out.add("not a .txt file", listing.tree->path());
    }
  }
  listing.left_out.add_empty_folders(listing.tree->empty_folders());
  if (listing.files.empty()) return dataset_error(what, "there are no .txt files");
  const ListedFiles files = listing.all();
  if (Status s = check_paths(files, what); !s.ok()) return std::move(s).error();
  const size_t root = root_of(files, partitioned, /*in_folders=*/true);
  listing.left_out.set_root(files.front()->path.substr(0, root));
  ShortPaths paths;
  for (const ListedFile* file : files) paths.push_back(std::string_view(file->path).substr(root));
  if (partitioned) {
    ASSIGN_OR_RETURN(const Parts parts, split_parts(files, paths, what));
    listing.has_test = parts.has_test;
    add_left_out_part(files, listing.left_out);
  }
  Status labelled = label_by_folder(files, paths, what,
                                    "expected a folder for each class, or `text` in place of "
                                    "`text_files` for one text");
  if (!labelled.ok()) return std::move(labelled).error();
  return listing;
}

/// Reads the files of `part` in the tree's order and passes them to `visit`. One error lists the
/// first 16 files that cannot be read.
Status visit_texts(
    TextListing& listing, Part part, bool bytes,
    const std::function<Status(const ListedFile& file, std::string_view text)>& visit) {
  if (Status s = listing.tree->rewind(); !s.ok()) return s;
  const auto changed = [&] {
    return dataset_error(listing.what, "the files changed while they were read");
  };
  Problems problems;
  size_t i = 0;
  while (!problems.full()) {
    ASSIGN_OR_RETURN(const bool more, listing.tree->next());
    if (!more) break;
    if (!is_text_path(listing.tree->path())) continue;
    if (i == listing.files.size() || listing.files[i].path != listing.tree->path()) {
      return changed();
    }
    const ListedFile& file = listing.files[i++];
    if (file.part != part) continue;
    const Result<std::string> text =
        read_text_file(*listing.tree, listing.what, kTextFileBytesMax, bytes);
    if (!text.ok() && text.error().reason != "DATASET_INVALID") return text.error();
    if (!text.ok()) {
      problems.add(text.error());
    } else if (Status s = visit(file, *text); !s.ok()) {
      return s;
    }
  }
  if (!problems.empty()) return problems.error();
  return i == listing.files.size() ? Status() : Status(changed());
}

/// Fills `rows` with the tokens and targets of the files of `part`, in the order of their paths.
Status fill_rows(std::vector<TextListing>& listings, Part part, const DatasetSchema& schema,
                 const Tokenizer& tokenizer, int64_t& missing, TypedRows& rows) {
  ListedFiles files;
  for (TextListing& listing : listings) {
    for (ListedFile* file : files_of(listing.all(), part)) files.push_back(file);
  }
  std::ranges::sort(files, {}, &ListedFile::path);
  const int64_t length = schema.text.max_length;
  if (Status s = check_memory(std::ssize(files) * (length + 1) * 4, "data"); !s.ok()) return s;
  for (ListedFile* file : files) {
    file->row = rows.rows++;
    rows.target_class.push_back(file->code);
  }
  rows.tokens.resize(static_cast<size_t>(rows.rows * length), 0);
  std::vector<int32_t> tokens;
  const auto take = [&](const ListedFile& file, std::string_view text) -> Status {
    if (text.empty()) ++missing;
    tokens.clear();
    tokenizer.encode(text, length, tokens);
    std::ranges::copy(tokens, rows.tokens.begin() + file.row * length);
    return {};
  };
  const bool bytes = schema.text.tokenizer == TokenizerKind::kByte;
  for (TextListing& listing : listings) {
    if (Status s = visit_texts(listing, part, bytes, take); !s.ok()) return s;
  }
  return {};
}

Status learn_vocabulary(const TextFilesOptions& options, TextListing& train, TextSchema& text) {
  if (text.tokenizer == TokenizerKind::kByte) return {};
  VocabularyCounter counter(text.tokenizer);
  const auto take = [&](const ListedFile& file, std::string_view content) {
    return counter.add(content, place_in_tree(train.what, file.path));
  };
  if (Status s = visit_texts(train, Part::kTrain, false, take); !s.ok()) return s;
  return counter.learn(options.vocabulary_size, "text_files", text);
}

}  // namespace

Result<TypedDataset> read_text_files_dataset(const TextFilesOptions& options,
                                             const std::filesystem::path& data,
                                             const std::filesystem::path& test) {
  if (Status s = check_row_text("text_files", options.tokenizer, options.vocabulary_size,
                                options.max_length);
      !s.ok()) {
    return std::move(s).error();
  }
  std::vector<TextListing> listings;
  ASSIGN_OR_RETURN(listings.emplace_back(), list_texts(data, "data", true));
  const bool has_test = listings[0].has_test || !test.empty();
  if (Status s = check_test_share(options.test_share, has_test, "text_files.test_share"); !s.ok()) {
    return std::move(s).error();
  }
  if (!test.empty()) {
    if (listings[0].has_test) {
      return dataset_error(
          "test_path",
          "data already has a test set, in its folder test/, val/ or valid/; remove one");
    }
    ASSIGN_OR_RETURN(listings.emplace_back(), list_texts(test, "test", false));
    for (ListedFile& file : listings[1].files) file.part = Part::kTest;
  }
  ListedFiles in_order = listings[0].all();
  std::ranges::sort(in_order, {}, &ListedFile::path);
  if (options.test_share > 0) draw_test_files(in_order, options.test_share, options.seed);

  TypedDataset result;
  DatasetSchema& schema = result.schema;
  schema.kind = DatasetSchema::Kind::kText;
  schema.target.name = "class";
  ASSIGN_OR_RETURN(schema.target.classes, find_classes(files_of(in_order, Part::kTrain), "text"));
  Problems problems;
  for (TextListing& listing : listings) {
    set_codes(listing.all(), schema.target.classes, listing.what, "text", problems);
    schema.skipped_files += listing.left_out.count();
    listing.left_out.add_warnings(listing.all(), "text", schema.warnings);
  }
  add_alike_classes(schema.target.classes, schema.warnings);
  if (!problems.empty()) return problems.error();
  schema.text.tokenizer = *find_tokenizer(options.tokenizer);
  schema.text.max_length = options.max_length;
  schema.columns.push_back({ColumnSchema::Kind::kText, "text", {}, 0});
  schema.source_columns = {"text", schema.target.name};
  if (Status s = learn_vocabulary(options, listings[0], schema.text); !s.ok()) {
    return std::move(s).error();
  }
  const std::unique_ptr<const Tokenizer> tokenizer = make_tokenizer(schema.text);
  int64_t in_test = 0;
  if (Status s = fill_rows(listings, Part::kTrain, schema, *tokenizer,
                           schema.columns[0].missing_count, result.train);
      !s.ok()) {
    return std::move(s).error();
  }
  if (Status s = fill_rows(listings, Part::kTest, schema, *tokenizer, in_test, result.test);
      !s.ok()) {
    return std::move(s).error();
  }
  schema.train_rows = result.train.rows;
  schema.test_rows = result.test.rows;
  return result;
}

}  // namespace trainyard
