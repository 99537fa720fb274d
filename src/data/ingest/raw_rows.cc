// Parses rows for predict with the code that reads training data, but with a given schema.
#include <algorithm>
#include <optional>

#include "src/base/text.h"
#include "src/data/arrays/idx.h"
#include "src/data/files/byte_source.h"
#include "src/data/ingest/raw_columns.h"
#include "src/data/limits.h"
#include "src/data/preprocessing.h"
#include "src/data/table/csv_columns.h"
#include "src/data/table/csv_reader.h"
#include "src/data/table/csv_schema.h"

namespace trainyard {
namespace {

constexpr const char* kRowsName = "rows";

/// Refuses more than kRawBytesMax decompressed bytes as soon as they have been read.
class BoundedSource final : public ByteSource {
 public:
  explicit BoundedSource(ByteSource& inner) : inner_(inner) {}
  Result<size_t> read(std::span<char> out) override {
    ASSIGN_OR_RETURN(const size_t n, inner_.read(out));
    total_ += n;
    if (total_ > kRawBytesMax) {
      return dataset_error(
          kRowsName, "more than " + human_bytes(int64_t{kRawBytesMax}) + " after decompression");
    }
    return n;
  }
  int64_t bytes_max() const override { return inner_.bytes_max(); }
  bool compressed() const override { return inner_.compressed(); }

 private:
  ByteSource& inner_;
  size_t total_ = 0;
};

/// Limits the tokens with padding: short rows are padded, so a small request could give very many.
Status check_tokens(const RawRows& rows) {
  if (std::ssize(rows.tokens) <= kRawTokensMax) return {};
  return dataset_error(kRowsName, "more than " + std::to_string(kRawTokensMax) +
                                      " tokens with padding; send fewer rows");
}

/// Returns the training file's delimiter, or a comma if only then the first record is a header. So
/// programs that do not know the training file can send rows with commas.
char find_delimiter(const DatasetSchema& schema, std::string_view bytes) {
  for (const char delimiter : {schema.delimiter, ','}) {
    const std::unique_ptr<ByteSource> source = open_memory_source(bytes, kRowsName);
    BoundedSource bounded(*source);
    CsvReader reader(bounded, delimiter, kRowsName);
    std::vector<std::string_view> fields;
    const Result<bool> more = reader.next(fields);
    if (more.ok() && *more && is_header(schema, fields)) return delimiter;
  }
  return schema.delimiter;
}

Result<RawRows> parse_csv(const DatasetSchema& schema, std::string_view bytes) {
  const DatasetSchema named = with_columns(schema);
  const char delimiter = schema.delimiter == ',' ? ',' : find_delimiter(named, bytes);
  const std::unique_ptr<ByteSource> source = open_memory_source(bytes, kRowsName);
  BoundedSource bounded(*source);
  CsvReader reader(bounded, delimiter, kRowsName);
  std::vector<std::string_view> fields;
  ASSIGN_OR_RETURN(bool more, reader.next(fields));
  if (!more) return dataset_error(kRowsName, "there are no rows");
  std::vector<std::string> names;
  if (is_header(named, fields)) {
    std::vector<std::string> header(fields.begin(), fields.end());
    ASSIGN_OR_RETURN(more, reader.next(fields));
    if (!more) return dataset_error(kRowsName, "there is a header, but no rows");
    // A row with one more value is a mistake, unless this is empty or the training rows had names.
    if (fields.back().empty() || is_generated_name(named.source_columns.front())) {
      fit_header(fields, header);
    }
    const std::vector<std::string_view> views(header.begin(), header.end());
    ASSIGN_OR_RETURN(names, header_names(views, kRowsName));
  } else {
    ASSIGN_OR_RETURN(names, names_by_position(named, fields, kRowsName));
  }
  ASSIGN_OR_RETURN(const RowFiller::Layout layout,
                   build_layout(named, names, kRowsName, TargetUse::kIgnored));
  CellReader cells(schema.missing_values, schema.number_style);
  // Programs write commas and decimal points, whatever the training file has.
  cells.accept_plain_numbers(/*before_style=*/delimiter != schema.delimiter);
  Codebook codebook;
  codebook.notes_unseen = true;
  for (const ColumnSchema& c : schema.columns) {
    if (c.kind == ColumnSchema::Kind::kCategorical) codebook.categories.emplace_back(c.categories);
  }
  TypedRows rows;
  Problems problems;
  RowFiller filler(kRowsName, layout, cells, codebook, rows, problems);
  while (more && !problems.full()) {
    if (fields.size() != names.size()) {
      problems.add(place_of(kRowsName, rows.rows + 1, reader.line()),
                   field_count(fields.size()) + ", expected " + std::to_string(names.size()));
      ++rows.rows;  // so that messages number the following rows correctly
    } else {
      filler.add(fields, reader.line());
    }
    if (Status s = check_tokens(rows); !s.ok()) return std::move(s).error();
    ASSIGN_OR_RETURN(more, reader.next(fields));
  }
  if (!problems.empty()) return problems.error();
  rows.ignored_columns = layout.unknown;
  return static_cast<RawRows&&>(std::move(rows));
}

/// Parses a row from each line. Lines end with LF or CRLF.
Result<RawRows> parse_lines(const DatasetSchema& schema, ByteSource& source) {
  if (schema.kind != DatasetSchema::Kind::kText) {
    return dataset_error(kRowsName, "text, but the model was trained on " +
                                        std::string(schema.kind == DatasetSchema::Kind::kImage
                                                        ? "images, expected CSV or IDX"
                                                        : "columns, expected CSV"));
  }
  std::string text;
  std::vector<char> buffer(size_t{64} << 10);
  for (;;) {
    ASSIGN_OR_RETURN(const size_t n, source.read(buffer));
    if (n == 0) break;
    text.append(buffer.data(), n);
  }
  if (text.empty()) return dataset_error(kRowsName, "there are no rows");
  const std::unique_ptr<const Tokenizer> tokenizer = make_tokenizer(schema.text);
  const bool bytes = schema.text.tokenizer == TokenizerKind::kByte;
  RawRows rows;
  Problems problems;
  for (std::string_view rest = text; !rest.empty() && !problems.full();) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    ++rows.rows;
    const std::optional<size_t> bad = bytes ? std::nullopt : find_invalid_utf8(line);
    if (bad) {
      problems.add(std::string(kRowsName) + ": line " + std::to_string(rows.rows),
                   "byte " + std::to_string(*bad) + " (" + quoted_value(line.substr(*bad, 1)) +
                       ") is not UTF-8");
      continue;
    }
    const auto length = static_cast<size_t>(schema.text.max_length);
    tokenizer->encode(line, schema.text.max_length, rows.tokens);
    rows.tokens.resize(static_cast<size_t>(rows.rows) * length,
                       static_cast<int32_t>(schema.text.padding_id()));
    if (Status s = check_tokens(rows); !s.ok()) return std::move(s).error();
  }
  if (!problems.empty()) return problems.error();
  return rows;
}

Result<RawRows> parse_idx(const DatasetSchema& schema, ByteSource& source) {
  if (schema.kind != DatasetSchema::Kind::kImage) {
    return dataset_error(kRowsName, std::string("IDX images, but the model was trained on ") +
                                        (schema.kind == DatasetSchema::Kind::kText
                                             ? "text, expected CSV or lines of text"
                                             : "columns, expected CSV"));
  }
  ASSIGN_OR_RETURN(IdxImages images,
                   read_idx_images(source, kRowsName, static_cast<int64_t>(kRawBytesMax)));
  if (images.image != schema.image || images.dtype != schema.image_dtype) {
    return dataset_error(kRowsName, std::string(name_of(images.dtype)) + " images of " +
                                        images.image.to_string() + ", expected " +
                                        std::string(name_of(schema.image_dtype)) + " of " +
                                        schema.image.to_string() + " as the model was trained on");
  }
  RawRows rows;
  rows.rows = images.rows;
  rows.image_u8 = std::move(images.u8);
  rows.image_f32 = std::move(images.f32);
  return rows;
}

}  // namespace

Result<RawRows> parse_raw_rows(const DatasetSchema& schema, std::string_view format,
                               std::string_view bytes) {
  if (schema.stream())
    return dataset_error(kRowsName, "the model continues text and does not predict rows");
  if (format == "csv") return parse_csv(schema, bytes);
  const std::unique_ptr<ByteSource> source = open_memory_source(bytes, kRowsName);
  BoundedSource bounded(*source);
  if (format == "idx") return parse_idx(schema, bounded);
  if (format == "text") return parse_lines(schema, bounded);
  return dataset_error("format", quoted_value(format) + ", expected csv, idx or text");
}

}  // namespace trainyard
