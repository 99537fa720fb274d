// src/data/dataset.h: a dataset in its typed form: a folder with
//   schema.json           the schema, the ingest options, the sources' digests
//   data.safetensors      arrays, memory-mapped when used:
//     train.numeric  F32 [rows, numeric columns]   missing values are NaN
//     train.category I32 [rows, categorical columns]  missing values are -1
//     train.image    U8 or F32 [rows, C, H, W]
//     train.image_sums I64 [rows, C, 2], for U8 images: sum and sum of squares of each channel's
//                      pixels, so that fitting a job's preprocessing need not read every pixel
//     train.tokens   I32 [rows, max_length], or [tokens] of a stream
//     train.counted  U8 [tokens] of documents, 1: the token is predicted and counts in the loss
//     train.starts   I64 [documents + 1], the token at which each document begins, and the end
//     train.target   I32 [rows] or F32 [rows]; none for a stream and documents
//     train.group    I32 [rows], if the ingest options name a column of groups
//     train.time     I32 [rows], the rank of each row's time; if they name a column of times
//     test.*         the same without group and time, if there is a test set
//   digest                SHA-256 of the two files above, in the form of sha256sum; written last,
//                         so that its presence means that the dataset is complete
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "src/base/fields.h"
#include "src/base/files.h"
#include "src/base/result.h"
#include "src/checkpoint/safetensors.h"
#include "src/data/schema.h"

namespace trainyard {

struct PackedRows;

/// The rows of one partition: spans into the memory map, empty if the schema has no such columns. A
/// stream has a row for each token: the window that begins at this token. Documents have a row for
/// each document, until Dataset::pack() puts them into the rows of a job.
struct Partition {
  int64_t rows = 0;
  std::span<const float> numeric;
  std::span<const int32_t> category;
  std::span<const uint8_t> image_u8;
  std::span<const float> image_f32;
  std::span<const int32_t> tokens;
  std::span<const uint8_t> counted;     // of documents: whether each token counts
  std::span<const int64_t> starts;      // of documents, [documents + 1]
  const PackedRows* packed = nullptr;   // of documents: the rows of a job
  std::span<const int64_t> image_sums;  // [rows, C, 2]; only with image_u8, and not for raw rows
  std::span<const int32_t> target_class;
  std::span<const float> target_numeric;
  // Columns by which jobs may split the rows (DatasetSchema::split); only of the training rows.
  std::span<const int32_t> group;  // index into group_rows
  std::span<const int32_t> time;   // later times have higher numbers, equal times the same
};

/// Reads only the schema of a dataset folder, for planning, without mapping the arrays.
Result<DatasetSchema> read_schema(const std::filesystem::path& folder);

class Dataset {
 public:
  /// Maps the folder's arrays and checks their types and sizes, and that labels and categories are
  /// in range. With `verify_digest` it reads and hashes both files completely. Errors:
  /// NOT_FOUND/DATASET_NOT_FOUND if the folder has no complete dataset, DATA_LOSS/DATASET_DAMAGED
  /// if it does not match its digest or is inconsistent, and file_error() for a file that is
  /// missing or cannot be read, which may be temporary.
  static Result<Dataset> open(const std::filesystem::path& folder, bool verify_digest);
  const DatasetSchema& schema() const { return schema_; }
  const Partition& train() const { return train_; }
  const Partition& test() const { return test_; }
  /// Sets the rows into which a job puts the documents (src/data/load/packing.h).
  void pack(std::shared_ptr<const PackedRows> train, std::shared_ptr<const PackedRows> test);

 private:
  DatasetSchema schema_;
  SafetensorsFile data_;
  std::shared_ptr<const PackedRows> packed_train_, packed_test_;
  Partition train_;
  Partition test_;
};

/// The user's options for the ingest of a table, CSV or JSON lines (docs/datasets.md).
struct CsvOptions {
  bool json_lines = false;  // each line is an object; `header` and `delimiter` are not used
  bool header = true;       // false: columns are named c0, c1, ...
  char delimiter = ',';
  std::string target;       // column name; required
  std::string target_kind;  // "class", "numeric" or "": classes if the target is text, or at most
                            // 20 different whole numbers; else numeric
  std::vector<int64_t> image;            // [C, H, W]: all feature columns are pixels of one image
  std::vector<std::string> categorical;  // columns of numbers that are read as categories
  std::vector<std::string> ignore;       // columns to leave out
  // Texts that mean a missing value in every column, besides the empty one. If there are none, the
  // defaults of CellReader apply.
  std::vector<std::string> missing;
  std::string decimal;               // the decimal mark: "," or ".", and "" for the latter
  std::string thousands;             // the mark between groups of three digits; "": there is none
  std::vector<std::string> numbers;  // columns of numbers with units (number_spelling.h)
  std::vector<std::string> date;     // columns of dates or times (src/data/table/date.h)
  std::string date_order;      // "day_first", "month_first": of dates for which both are possible
  std::string missing_target;  // "skip": rows without a target are left out; "": refused
  // Columns whose values are kept beside the features, whether or not they are features too: a job
  // may split the rows by `group`, or by `time`, a column of dates or numbers. Empty: none.
  std::string group, time;
  // Columns to read as text, joined by blanks in file order. If there are any, all other columns
  // except the target are left out.
  std::vector<std::string> text;
  // "word", "char", "byte", "bpe", "unigram", or "pretrained": that of a pretrained model, whose
  // files are among the sources.
  std::string tokenizer = "word";
  int64_t vocabulary_size = 10000;  // word, bpe, unigram: the largest number of pieces
  int64_t max_length = 128;  // tokens per row: longer rows are truncated, shorter ones padded

  bool skips_rows() const { return missing_target == "skip"; }
  NumberStyle number_style() const { return {decimal == "," ? ',' : '.', thousands}; }
  /// Returns an option's name in messages: "csv.target".
  std::string field(const char* name) const {
    return std::string(json_lines ? "jsonl." : "csv.") + name;
  }
};
/// Visits the options that influence the result of the ingest, as schema.json stores them.
template <FieldsOf<CsvOptions> Spec>
void visit_fields(Spec& spec, auto&& visit) {
  auto& [json_lines, header, delimiter, target, target_kind, image, categorical, ignore, missing,
         decimal, thousands, numbers, date, date_order, missing_target, group, time, text,
         tokenizer, vocabulary_size, max_length] = spec;
  if (!json_lines) {
    visit("header", header);
    visit("delimiter", delimiter);
  }
  visit("target", target);
  visit("target_kind", target_kind);
  visit("image", image);
  visit("categorical", categorical);
  visit("ignore", ignore);
  visit("missing", missing, Written::kUnlessEmpty);
  visit("decimal", decimal, Written::kUnlessEmpty);
  visit("thousands", thousands, Written::kUnlessEmpty);
  visit("numbers", numbers, Written::kUnlessEmpty);
  visit("date", date, Written::kUnlessEmpty);
  visit("date_order", date_order, Written::kUnlessEmpty);
  visit("missing_target", missing_target, Written::kUnlessEmpty);
  visit("group", group, Written::kUnlessEmpty);
  visit("time", time, Written::kUnlessEmpty);
  if (text.empty()) return;
  visit("text", text);
  visit("tokenizer", tokenizer);
  visit("vocabulary_size", vocabulary_size);
  visit("max_length", max_length);
}

/// The options for one text that is read as a stream of tokens.
struct TextOptions {
  std::string tokenizer = "char";   // "char", "byte", "bpe", "unigram"
  int64_t vocabulary_size = 10000;  // bpe, unigram: the largest number of pieces
  double test_share = 0;            // [0, 0.9]: the last part of the text is the test set
  std::string field;                // JSON lines: the member with the text; empty: plain text
  bool end_token = false;           // each text ends with a token of its own
};
template <FieldsOf<TextOptions> Spec>
void visit_fields(Spec& spec, auto&& visit) {
  auto& [tokenizer, vocabulary_size, test_share, field, end_token] = spec;
  visit("tokenizer", tokenizer);
  if (is_subword(*find_tokenizer(tokenizer))) visit("vocabulary_size", vocabulary_size);
  visit("test_share", test_share);
  visit("field", field, Written::kUnlessEmpty);
  if (end_token) visit("end_token", end_token);
}

/// The options for documents, which the tokenizer of a pretrained model reads.
struct DocumentsOptions {
  std::string chat_template;     // the name of a family; empty: that of the tokenizer
  std::string loss = "answers";  // or "all": what counts
  bool end_token = true;         // prompts with completions and texts end with the end token
  double test_share = 0;         // [0, 0.9]: the share of the documents for the test set
  uint64_t seed = 0;             // for the random choice of the test set
};
template <FieldsOf<DocumentsOptions> Spec>
void visit_fields(Spec& spec, auto&& visit) {
  auto& [chat_template, loss, end_token, test_share, seed] = spec;
  visit("template", chat_template, Written::kUnlessEmpty);
  visit("loss", loss);
  visit("end_token", end_token);
  visit("test_share", test_share);
  visit("seed", seed);
}

/// The options for a folder or an archive of JPEG and PNG files.
struct ImagesOptions {
  std::vector<int64_t> size;       // [H, W]; empty: all images must have the same size
  std::string resize = "stretch";  // with size: "stretch", "crop", "pad"
  int64_t channels = 0;            // 1, 3, or 0: 3 if any image has color
  // The path, in the folder or archive, of a CSV of files with their class or number; empty: the
  // folders are the classes.
  std::string labels;
  double test_share = 0;  // [0, 0.9]: the share of each class that becomes the test set
  uint64_t seed = 0;      // for the random choice of the test set
  std::string damaged;    // "skip": damaged images are left out; "": refused
};
template <FieldsOf<ImagesOptions> Spec>
void visit_fields(Spec& spec, auto&& visit) {
  auto& [size, resize, channels, labels, test_share, seed, damaged] = spec;
  visit("size", size);
  visit("resize", resize);
  visit("channels", channels);
  visit("labels", labels);
  visit("test_share", test_share);
  visit("seed", seed);
  visit("damaged", damaged, Written::kUnlessEmpty);
}

/// The options for a folder or an archive of .txt files, each a row, with a folder for each class.
struct TextFilesOptions {
  std::string tokenizer = "word";  // as in CsvOptions
  int64_t vocabulary_size = 10000;
  int64_t max_length = 128;
  double test_share = 0;  // [0, 0.9]: the share of each class that becomes the test set
  uint64_t seed = 0;      // for the random choice of the test set
};
template <FieldsOf<TextFilesOptions> Spec>
void visit_fields(Spec& spec, auto&& visit) {
  auto& [tokenizer, vocabulary_size, max_length, test_share, seed] = spec;
  visit("tokenizer", tokenizer);
  visit("vocabulary_size", vocabulary_size);
  visit("max_length", max_length);
  visit("test_share", test_share);
  visit("seed", seed);
}

/// The options for arrays of a NPZ or a safetensors file, or of NPY files.
struct ArraysOptions {
  std::string inputs = "inputs";  // the arrays' names in NPZ and safetensors files
  std::string targets = "targets";
  std::string target_kind;  // as in CsvOptions
  double test_share = 0;    // [0, 0.9]: share of each class, or of all rows, for the test set
  uint64_t seed = 0;        // for the random choice of the test set
};
template <FieldsOf<ArraysOptions> Spec>
void visit_fields(Spec& spec, auto&& visit) {
  auto& [inputs, targets, target_kind, test_share, seed] = spec;
  visit("inputs", inputs);
  visit("targets", targets);
  visit("target_kind", target_kind);
  visit("test_share", test_share);
  visit("seed", seed);
}

struct IngestSource {
  std::string role;  // "data", "test", "train_images", ...: src/data/ingest/formats.cc
  std::filesystem::path path;
  std::string sha256 = {};  // of the file; if empty, ingest() computes it
  std::string name = {};    // the file's name in error messages; empty: they contain the role
};

/// How tables are parsed: in blocks of about `block_bytes`, by `count` threads. The dataset and the
/// errors do not depend on it.
struct TableThreads {
  int count = 0;                         // 0: one for each core that the process may use
  size_t block_bytes = size_t{1} << 20;  // 0: a single thread parses one row after another
};

struct IngestRequest {
  // The name of a format in src/data/ingest/formats.cc, such as "csv". Gzip is detected by the
  // file's first bytes.
  std::string format;
  std::vector<IngestSource> sources;
  CsvOptions csv;  // options of the formats CSV and JSON lines
  TextOptions text = {};
  ImagesOptions images = {};
  ArraysOptions arrays = {};
  TextFilesOptions text_files = {};
  DocumentsOptions documents = {};
  TableThreads threads = {};  // used for CSV and JSON lines
};

/// Parses untrusted bytes into the new `folder`, which must not exist. Memory use is bounded by the
/// size of the typed data, for folders of images by that of a few batches. The folder appears
/// complete or not at all. Refusals: DATASET_INVALID with row and column of the first 16 problems;
/// STORAGE_FULL.
Result<DatasetSchema> ingest(const IngestRequest& request, const std::filesystem::path& folder,
                             Files& files);

}  // namespace trainyard
