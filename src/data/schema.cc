#include "src/data/schema.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "src/base/base64.h"
#include "src/base/json_fields.h"
#include "src/base/text.h"
#include "src/data/limits.h"
#include "src/data/statistics.h"
#include "src/data/table/date.h"
#include "src/data/tokenizers/stored_files.h"

namespace trainyard {
namespace {

constexpr const char* kSchemaInvalid = "DATASET_INVALID";

std::optional<std::string> first_duplicate(const std::vector<std::string>& names) {
  std::vector<std::string_view> sorted(names.begin(), names.end());
  std::ranges::sort(sorted);
  const auto twice = std::ranges::adjacent_find(sorted);
  if (twice == sorted.end()) return std::nullopt;
  return std::string(*twice);
}

Result<ColumnSchema> column_from_json(const nlohmann::json& json) {
  JsonFields fields(json, "schema: columns", kSchemaInvalid);
  ColumnSchema column;
  column.name = fields.text("name");
  column.missing_count = fields.integer("missing_count", 0, kRowsMax);
  const std::string kind = fields.text("kind");
  if (kind == "categorical") {
    column.kind = ColumnSchema::Kind::kCategorical;
    column.categories = fields.texts("categories");
    if (static_cast<int64_t>(column.categories.size()) > kCategoriesMax ||
        first_duplicate(column.categories)) {
      fields.refuse("categories: expected at most " + std::to_string(kCategoriesMax) +
                    " different names");
    }
  } else if (kind == "text") {
    column.kind = ColumnSchema::Kind::kText;
  } else if (kind != "numeric") {
    fields.refuse("kind: expected numeric, categorical or text");
  }
  if (fields.has("date")) {
    column.date = fields.text("date");
    if (column.kind != ColumnSchema::Kind::kNumeric) fields.refuse("date: expected numbers");
  }
  if (fields.has("date_order")) {
    const std::optional<DateOrder> order = find_date_order(fields.text("date_order"));
    if (!order) fields.refuse("date_order: expected day_first, month_first or time");
    column.date_order = order.value_or(DateOrder::kYearFirst);
  }
  if (fields.has("offset")) column.offset = fields.number("offset");
  if (fields.has("unit")) column.unit = fields.text("unit");
  if (Status s = fields.finish(); !s.ok()) return std::move(s).error();
  return column;
}

Result<TargetSchema> target_from_json(const nlohmann::json& json) {
  JsonFields fields(json, "schema: target", kSchemaInvalid);
  TargetSchema target;
  target.name = fields.text("name");
  const std::string kind = fields.text("kind");
  if (kind == "class") {
    target.classes = fields.texts("classes");
    const auto count = static_cast<int64_t>(target.classes.size());
    if (count < 2 || count > kClassesMax || first_duplicate(target.classes)) {
      fields.refuse("classes: expected 2 to " + std::to_string(kClassesMax) + " different names");
    }
  } else if (kind == "numeric") {
    target.kind = TargetSchema::Kind::kNumeric;
    if (fields.has("offset")) target.offset = fields.number("offset");
    if (fields.has("unit")) target.unit = fields.text("unit");
  } else if (kind == "next_token") {
    target.kind = TargetSchema::Kind::kNextToken;
  } else {
    fields.refuse("kind: expected class, numeric or next_token");
  }
  if (Status s = fields.finish(); !s.ok()) return std::move(s).error();
  return target;
}

Result<DataWarning> warning_from_json(const nlohmann::json& json) {
  JsonFields fields(json, "schema: warnings", kSchemaInvalid);
  DataWarning warning;
  warning.key = fields.text("key");
  warning.columns = fields.texts("columns");
  warning.count = fields.integer("count", 0, std::numeric_limits<int64_t>::max());
  warning.message = fields.text("message");
  if (Status s = fields.finish(); !s.ok()) return std::move(s).error();
  return warning;
}

Result<SplitColumns> split_from_json(const nlohmann::json& json, int64_t rows) {
  JsonFields fields(json, "schema: split", kSchemaInvalid);
  SplitColumns split;
  if (fields.has("group")) {
    split.group = fields.text("group");
    split.group_rows = fields.integers("group_rows");
    if (std::ssize(split.group_rows) > kGroupsMax) {
      fields.refuse("group_rows: expected at most " + std::to_string(kGroupsMax) + " groups");
    }
    if (std::accumulate(split.group_rows.begin(), split.group_rows.end(), int64_t{0}) != rows) {
      fields.refuse("group_rows: expected " + std::to_string(rows) + " rows in all groups");
    }
  }
  if (fields.has("time")) split.time = fields.text("time");
  if (Status s = fields.finish(); !s.ok()) return std::move(s).error();
  return split;
}

/// Reads what is known about the dataset, and not part of a model's schema.
Status read_dataset_facts(JsonFields& fields, DatasetSchema& schema) {
  if (fields.has("split")) {
    ASSIGN_OR_RETURN(schema.split, split_from_json(fields.child("split"), schema.train_rows));
  }
  if (!fields.has("warnings")) return {};
  for (const nlohmann::json& warning : fields.child("warnings")) {
    ASSIGN_OR_RETURN(schema.warnings.emplace_back(), warning_from_json(warning));
  }
  return {};
}

nlohmann::json to_json(const SplitColumns& split) {
  nlohmann::json json = nlohmann::json::object();
  if (!split.group.empty()) {
    json["group"] = split.group;
    json["group_rows"] = split.group_rows;
  }
  if (!split.time.empty()) json["time"] = split.time;
  return json;
}

bool is_piece(TokenizerKind kind, std::string_view piece) {
  if (piece.empty() || !is_utf8(piece)) return false;
  if (kind == TokenizerKind::kWord) return piece.size() <= kWordBytesMax;
  (void)take_code_point(piece);
  return piece.empty();
}

/// Reads what is known about a pretrained tokenizer. Its files are read by those who encode or
/// decode text.
Status read_pretrained(JsonFields& fields, TextSchema& text) {
  text.pretrained_tokens = fields.integer("vocabulary_size", 1, kVocabularyMax);
  const int64_t last = std::max<int64_t>(text.pretrained_tokens, 1) - 1;
  text.end_token = static_cast<int32_t>(fields.integer("end_token", -1, last));
  text.padding_token = static_cast<int32_t>(fields.integer("padding_token", -1, last));
  text.unknown_token = static_cast<int32_t>(fields.integer("unknown_token", -1, last));
  const nlohmann::json& files = fields.child("files");
  if (Status s = fields.finish(); !s.ok()) return s;
  Result<TokenizerFiles> read = read_stored_files(files);
  if (!read.ok()) {
    return make_error(ErrorCode::kInvalidArgument, kSchemaInvalid,
                      "schema: text: " + read.error().message);
  }
  text.files = std::make_shared<const TokenizerFiles>(*std::move(read));
  return {};
}

Result<TextSchema> text_from_json(const nlohmann::json& json) {
  JsonFields fields(json, "schema: text", kSchemaInvalid);
  TextSchema text;
  const std::optional<TokenizerKind> kind = find_tokenizer(fields.text("tokenizer"));
  if (kind) {
    text.tokenizer = *kind;
  } else {
    fields.refuse("tokenizer: expected byte, char, word, bpe, unigram or pretrained");
  }
  text.max_length = fields.integer("max_length", 0, kTextLengthMax);
  if (kind == TokenizerKind::kPretrained) {
    if (Status s = read_pretrained(fields, text); !s.ok()) return std::move(s).error();
    return text;
  }
  std::optional<int64_t> end_token;
  if (fields.has("end_token")) end_token = fields.integer("end_token", 1, 2 * kVocabularyMax);
  const auto add_end_token = [&]() -> Status {
    if (!end_token) return {};
    if (*end_token != text.vocabulary_size()) {
      return make_error(ErrorCode::kInvalidArgument, kSchemaInvalid,
                        "schema: text: end_token: expected the id behind the pieces");
    }
    text.end_token = static_cast<int32_t>(*end_token);
    return {};
  };
  if (kind && is_subword(*kind)) {
    std::optional<std::string> model = base64_decode(fields.text("model"));
    if (Status s = fields.finish(); !s.ok()) return std::move(s).error();
    if (!model)
      return make_error(ErrorCode::kInvalidArgument, kSchemaInvalid,
                        "schema: text: model: expected base64");
    if (Status s = set_subword_model(*std::move(model), text); !s.ok()) {
      return make_error(ErrorCode::kInvalidArgument, kSchemaInvalid,
                        "schema: text: model: " + s.error().message);
    }
    if (Status s = add_end_token(); !s.ok()) return std::move(s).error();
    return text;
  }
  if (!text.unicode_version().empty() && fields.text("unicode") != text.unicode_version()) {
    fields.refuse("unicode: expected " + std::string(text.unicode_version()) +
                  ", since other versions divide text into other words");
  }
  text.pieces = fields.texts("pieces");
  const bool bytes = kind == TokenizerKind::kByte;
  if (std::ssize(text.pieces) > kVocabularyMax || bytes != text.pieces.empty() ||
      first_duplicate(text.pieces) || !std::ranges::all_of(text.pieces, [&](const std::string& p) {
        return is_piece(text.tokenizer, p);
      })) {
    fields.refuse("pieces: expected at most " + std::to_string(kVocabularyMax) +
                  " different pieces of the tokenizer, and none for bytes");
  }
  if (Status s = fields.finish(); !s.ok()) return std::move(s).error();
  if (Status s = add_end_token(); !s.ok()) return std::move(s).error();
  return text;
}

/// Reads the marks between fields and in numbers.
void read_marks(JsonFields& fields, DatasetSchema& schema) {
  const std::string delimiter = fields.text("delimiter");
  if (delimiter.size() == 1 && is_csv_delimiter(delimiter[0])) {
    schema.delimiter = delimiter[0];
  } else {
    fields.refuse("delimiter: expected one ASCII byte");
  }
  if (fields.has("decimal")) {
    if (fields.text("decimal") != ",") fields.refuse("decimal: expected a comma");
    schema.number_style.decimal = ',';
  }
  if (fields.has("thousands")) schema.number_style.thousands = fields.text("thousands");
}

/// Returns how many columns from `first` on are the parts of the date `name`; 0 if the set is
/// incomplete.
size_t count_date_parts(const std::vector<ColumnSchema>& columns, size_t first,
                        const std::string& name) {
  size_t count = 0;
  while (first + count < columns.size() && columns[first + count].date == name) ++count;
  if (count == 0) return 0;
  const DateOrder order = columns[first].date_order;
  return count == date_parts({order, false}) || count == date_parts({order, true}) ? count : 0;
}

/// Returns whether the source's columns contain each feature exactly once and in order, so that raw
/// rows can be read by position.
bool source_matches(const DatasetSchema& schema) {
  if (schema.source_columns.empty()) return schema.ignored_columns.empty();
  const std::set<std::string_view> ignored(schema.ignored_columns.begin(),
                                           schema.ignored_columns.end());
  size_t feature = 0;
  size_t others = 0;
  for (const std::string& name : schema.source_columns) {
    if (name == schema.target.name || ignored.contains(name)) {
      ++others;
    } else if (schema.kind == DatasetSchema::Kind::kImage) {
      ++feature;
    } else if (const size_t parts = count_date_parts(schema.columns, feature, name); parts > 0) {
      feature += parts;
    } else if (feature == schema.columns.size() || schema.columns[feature].name != name ||
               !schema.columns[feature++].date.empty()) {
      return false;
    }
  }
  const size_t features = schema.kind == DatasetSchema::Kind::kImage
                              ? static_cast<size_t>(schema.image.elements())
                              : schema.columns.size();
  return feature == features && others == ignored.size() + 1;
}

/// Reads the fields that only images have.
void read_images(JsonFields& fields, DatasetSchema& schema) {
  schema.kind = DatasetSchema::Kind::kImage;
  schema.image = Shape(fields.integers("image"));
  if (schema.image.rank() != 3 || !schema.image.fits() || schema.image.elements() < 1 ||
      schema.image.elements() > kImageValuesMax) {
    fields.refuse("image: expected [C, H, W]");
  }
  const std::optional<DType> dtype = find_dtype(fields.text("image_dtype"));
  if (dtype == DType::kF32 || dtype == DType::kU8) {
    schema.image_dtype = *dtype;
  } else {
    fields.refuse("image_dtype: expected U8 or F32");
  }
  if (fields.has("image_bits")) {
    schema.image_bits = fields.integer("image_bits", 16, 16);
    if (schema.image_dtype != DType::kF32 || schema.image[0] != 1) {
      fields.refuse("image_bits: expected an image of one channel in F32");
    }
  }
  if (fields.has("resize")) {
    const std::optional<ResizeMode> resize = find_resize(fields.text("resize"));
    if (!resize) fields.refuse("resize: expected none, stretch, crop or pad");
    schema.resize = resize.value_or(ResizeMode::kNone);
  }
}

}  // namespace

bool is_csv_delimiter(char c) { return c == '\t' || (c >= ' ' && c <= '~' && c != '"'); }

int64_t DatasetSchema::numeric_columns() const {
  return std::count_if(columns.begin(), columns.end(), [](const ColumnSchema& c) {
    return c.kind == ColumnSchema::Kind::kNumeric;
  });
}
int64_t DatasetSchema::categorical_columns() const {
  return std::count_if(columns.begin(), columns.end(), [](const ColumnSchema& c) {
    return c.kind == ColumnSchema::Kind::kCategorical;
  });
}

std::vector<double> DatasetSchema::numeric_offsets() const {
  std::vector<double> offsets;
  for (const ColumnSchema& c : columns) {
    if (c.kind == ColumnSchema::Kind::kNumeric) offsets.push_back(c.offset);
  }
  return offsets;
}

ModelInterface DatasetSchema::interface(int64_t context_length) const {
  ModelInterface result;
  if (kind == Kind::kImage) {
    result.input = image;
    result.bytes = image_dtype == DType::kU8;
  } else if (kind == Kind::kText) {
    TRAINYARD_CHECK(!next_token() || context_length > 0, "tokens without a context length");
    result.input = Shape{next_token() ? context_length : text.max_length};
    result.vocabulary = text.vocabulary_size();
    result.documents = documents.has_value();
    result.padding = result.documents ? -1 : text.padding_id();
  } else {
    int64_t features = 0;
    for (const ColumnSchema& c : columns) {
      if (c.kind == ColumnSchema::Kind::kNumeric) {
        ++features;
        continue;
      }
      result.categories.push_back({c.name, std::ssize(c.categories)});
      features += result.categories.back().count;
    }
    result.input = Shape{features};
  }
  switch (target.kind) {
    case TargetSchema::Kind::kClass:
      result.target = TargetForm::kClass;
      result.outputs = std::ssize(target.classes);
      if (statistics) result.class_counts = statistics->classes;
      if (result.outputs <= kNamedClassesMax) result.class_names = target.classes;
      break;
    case TargetSchema::Kind::kNumeric:
      result.target = TargetForm::kNumeric;
      result.outputs = 1;
      break;
    case TargetSchema::Kind::kNextToken:
      result.target = TargetForm::kNextToken;
      result.outputs = result.vocabulary;
      break;
  }
  return result;
}

nlohmann::json DatasetSchema::to_json() const {
  nlohmann::json json;
  json["kind"] = kind == Kind::kImage ? "image" : kind == Kind::kText ? "text" : "tabular";
  json["columns"] = nlohmann::json::array();
  for (const ColumnSchema& c : columns) {
    nlohmann::json column = {{"name", c.name}, {"missing_count", c.missing_count}};
    if (c.kind == ColumnSchema::Kind::kCategorical) {
      column["kind"] = "categorical";
      column["categories"] = c.categories;
    } else {
      column["kind"] = c.kind == ColumnSchema::Kind::kText ? "text" : "numeric";
      if (!c.date.empty()) column["date"] = c.date;
      if (c.date_order != DateOrder::kYearFirst) column["date_order"] = name_of(c.date_order);
      if (c.offset != 0) column["offset"] = c.offset;
      if (c.unit) column["unit"] = *c.unit;
    }
    json["columns"].push_back(std::move(column));
  }
  if (kind == Kind::kImage) {
    json["image"] = image.dims();
    json["image_dtype"] = name_of(image_dtype);
    if (image_bits != 8) json["image_bits"] = image_bits;
    if (resize != ResizeMode::kNone) json["resize"] = name_of(resize);
  }
  if (skipped_files > 0) json["skipped_files"] = skipped_files;
  if (skipped_rows > 0) json["skipped_rows"] = skipped_rows;
  if (kind == Kind::kText) {
    json["text"] = {{"tokenizer", name_of(text.tokenizer)}, {"max_length", text.max_length}};
    if (is_subword(text.tokenizer)) {
      json["text"]["model"] = base64_encode(text.model);
    } else if (text.tokenizer == TokenizerKind::kPretrained) {
      TRAINYARD_CHECK(text.files != nullptr, "a schema without the files of its tokenizer");
      json["text"]["vocabulary_size"] = text.pretrained_tokens;
      json["text"]["end_token"] = text.end_token;
      json["text"]["padding_token"] = text.padding_token;
      json["text"]["unknown_token"] = text.unknown_token;
      json["text"]["files"] = stored_files(*text.files);
    } else {
      json["text"]["pieces"] = text.pieces;
    }
    if (!text.unicode_version().empty()) json["text"]["unicode"] = text.unicode_version();
    if (text.end_token >= 0) json["text"]["end_token"] = text.end_token;
  }
  if (documents) json["documents"] = documents_to_json(*documents);
  json["target"] = {{"name", target.name}};
  if (target.kind == TargetSchema::Kind::kClass) {
    json["target"]["kind"] = "class";
    json["target"]["classes"] = target.classes;
  } else {
    json["target"]["kind"] = target.kind == TargetSchema::Kind::kNumeric ? "numeric" : "next_token";
    if (target.offset != 0) json["target"]["offset"] = target.offset;
    if (target.unit) json["target"]["unit"] = *target.unit;
  }
  json["train_rows"] = train_rows;
  json["test_rows"] = test_rows;
  json["source_columns"] = source_columns;
  json["ignored_columns"] = ignored_columns;
  json["delimiter"] = std::string(1, delimiter);
  if (number_style.decimal != '.') json["decimal"] = std::string(1, number_style.decimal);
  if (!number_style.thousands.empty()) json["thousands"] = number_style.thousands;
  json["missing_values"] = missing_values;
  if (statistics) json["statistics"] = statistics_to_json(*statistics);
  if (split != SplitColumns()) json["split"] = trainyard::to_json(split);
  for (const DataWarning& w : warnings) {
    json["warnings"].push_back(
        {{"key", w.key}, {"columns", w.columns}, {"count", w.count}, {"message", w.message}});
  }
  return json;
}

Result<DatasetSchema> DatasetSchema::from_json(const nlohmann::json& json) {
  JsonFields fields(json, "schema", kSchemaInvalid);
  DatasetSchema schema;
  const std::string kind = fields.text("kind");
  if (kind == "image") {
    read_images(fields, schema);
  } else if (kind == "text") {
    schema.kind = Kind::kText;
    ASSIGN_OR_RETURN(schema.text, text_from_json(fields.child("text")));
    if (fields.has("documents")) {
      ASSIGN_OR_RETURN(schema.documents, documents_from_json(fields.child("documents")));
    }
  } else if (kind != "tabular") {
    fields.refuse("kind: expected tabular, image or text");
  }
  if (fields.has("skipped_files")) {
    schema.skipped_files = fields.integer("skipped_files", 0, kTreeFilesMax);
  }
  if (fields.has("skipped_rows")) {
    schema.skipped_rows = fields.integer("skipped_rows", 0, 2 * kRowsMax);
  }
  for (const nlohmann::json& column : fields.child("columns")) {
    ASSIGN_OR_RETURN(schema.columns.emplace_back(), column_from_json(column));
  }
  ASSIGN_OR_RETURN(schema.target, target_from_json(fields.child("target")));
  schema.train_rows = fields.integer("train_rows", 0, kRowsMax);
  schema.test_rows = fields.integer("test_rows", 0, kRowsMax);
  if (Status s = read_dataset_facts(fields, schema); !s.ok()) return std::move(s).error();
  schema.source_columns = fields.texts("source_columns");
  schema.ignored_columns = fields.texts("ignored_columns");
  schema.missing_values = fields.texts("missing_values");
  read_marks(fields, schema);
  if (json.contains("statistics")) {
    ASSIGN_OR_RETURN(schema.statistics, statistics_from_json(fields.child("statistics"), schema));
  }
  if (Status s = fields.finish(); !s.ok()) return std::move(s).error();

  const auto refuse = [](const std::string& message) {
    return make_error(ErrorCode::kInvalidArgument, kSchemaInvalid, "schema: " + message);
  };
  if (schema.kind == Kind::kImage && !schema.columns.empty()) {
    return refuse("an image has no columns");
  }
  const auto texts =
      std::ranges::count(schema.columns, ColumnSchema::Kind::kText, &ColumnSchema::kind);
  if (texts != (schema.kind == Kind::kText ? std::ssize(schema.columns) : 0) ||
      (schema.stream() || schema.documents) != schema.next_token() ||
      (schema.kind == Kind::kText && schema.next_token() != schema.columns.empty())) {
    return refuse("columns and target do not fit the kind");
  }
  if (schema.documents &&
      (!schema.text.stream() || schema.documents->train.documents() != schema.train_rows ||
       schema.documents->test.documents() != schema.test_rows)) {
    return refuse("the lengths are those of other documents");
  }
  int64_t features = 0;
  for (const ColumnSchema& c : schema.columns) {
    features += c.kind == ColumnSchema::Kind::kNumeric ? 1 : std::ssize(c.categories);
  }
  if (schema.kind == Kind::kTabular && (features < 1 || features > kInputSizeMax)) {
    return refuse("the columns make " + std::to_string(features) + " inputs, expected 1 to " +
                  std::to_string(kInputSizeMax));
  }
  if (std::optional<std::string> name = first_duplicate(schema.source_columns)) {
    return refuse("column " + quoted_value(*name) + " appears twice");
  }
  if (!source_matches(schema)) return refuse("source_columns do not match the columns");
  return schema;
}

}  // namespace trainyard
