#include "src/data/schema.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "src/base/json_fields.h"
#include "src/base/text.h"
#include "src/data/limits.h"

namespace trainyard {
namespace {

constexpr const char* kReason = "DATASET_INVALID";

std::optional<std::string> first_duplicate(const std::vector<std::string>& names) {
  std::set<std::string_view> seen;
  for (const std::string& name : names) {
    if (!seen.insert(name).second) return name;
  }
  return std::nullopt;
}

Result<ColumnSchema> column_from_json(const nlohmann::json& json) {
  JsonFields fields(json, "schema: columns", kReason);
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
  } else if (kind != "numeric") {
    fields.refuse("kind: expected numeric or categorical");
  }
  if (Status s = fields.finish(); !s.ok()) return std::move(s).error();
  return column;
}

Result<TargetSchema> target_from_json(const nlohmann::json& json) {
  JsonFields fields(json, "schema: target", kReason);
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
  } else {
    fields.refuse("kind: expected class or numeric");
  }
  if (Status s = fields.finish(); !s.ok()) return std::move(s).error();
  return target;
}

/// The source's columns must hold each feature once, so that raw rows can be read by position.
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
    } else if (feature == schema.columns.size() || schema.columns[feature++].name != name) {
      return false;
    }
  }
  const size_t features = schema.kind == DatasetSchema::Kind::kImage
                              ? static_cast<size_t>(schema.image.elements())
                              : schema.columns.size();
  return feature == features && others == ignored.size() + 1;
}

}  // namespace

bool is_csv_delimiter(char c) { return c == '\t' || (c >= ' ' && c <= '~' && c != '"'); }

int64_t DatasetSchema::numeric_columns() const {
  return std::count_if(columns.begin(), columns.end(), [](const ColumnSchema& c) {
    return c.kind == ColumnSchema::Kind::kNumeric;
  });
}
int64_t DatasetSchema::categorical_columns() const {
  return static_cast<int64_t>(columns.size()) - numeric_columns();
}

ModelInterface DatasetSchema::interface() const {
  ModelInterface result;
  if (kind == Kind::kImage) {
    result.input = image;
  } else {
    int64_t features = 0;
    for (const ColumnSchema& c : columns) {
      features +=
          c.kind == ColumnSchema::Kind::kNumeric ? 1 : static_cast<int64_t>(c.categories.size());
    }
    result.input = Shape{features};
  }
  result.target =
      target.kind == TargetSchema::Kind::kClass ? TargetForm::kClass : TargetForm::kNumeric;
  result.outputs = result.classification() ? static_cast<int64_t>(target.classes.size()) : 1;
  return result;
}

std::string DatasetSchema::to_json() const {
  nlohmann::json json;
  json["kind"] = kind == Kind::kImage ? "image" : "tabular";
  json["columns"] = nlohmann::json::array();
  for (const ColumnSchema& c : columns) {
    nlohmann::json column = {{"name", c.name}, {"missing_count", c.missing_count}};
    if (c.kind == ColumnSchema::Kind::kCategorical) {
      column["kind"] = "categorical";
      column["categories"] = c.categories;
    } else {
      column["kind"] = "numeric";
    }
    json["columns"].push_back(std::move(column));
  }
  if (kind == Kind::kImage) {
    json["image"] = image.dims();
    json["image_dtype"] = name_of(image_dtype);
  }
  json["target"] = {{"name", target.name}};
  if (target.kind == TargetSchema::Kind::kClass) {
    json["target"]["kind"] = "class";
    json["target"]["classes"] = target.classes;
  } else {
    json["target"]["kind"] = "numeric";
  }
  json["train_rows"] = train_rows;
  json["test_rows"] = test_rows;
  json["source_columns"] = source_columns;
  json["ignored_columns"] = ignored_columns;
  json["delimiter"] = std::string(1, delimiter);
  json["missing_values"] = missing_values;
  return json.dump();
}

Result<DatasetSchema> DatasetSchema::from_json(std::string_view text) {
  ASSIGN_OR_RETURN(const nlohmann::json json, parse_json(text, "schema", kReason));
  JsonFields fields(json, "schema", kReason);
  DatasetSchema schema;
  const std::string kind = fields.text("kind");
  if (kind == "image") {
    schema.kind = Kind::kImage;
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
  } else if (kind != "tabular") {
    fields.refuse("kind: expected tabular or image");
  }
  for (const nlohmann::json& column : fields.child("columns")) {
    ASSIGN_OR_RETURN(schema.columns.emplace_back(), column_from_json(column));
  }
  ASSIGN_OR_RETURN(schema.target, target_from_json(fields.child("target")));
  schema.train_rows = fields.integer("train_rows", 0, kRowsMax);
  schema.test_rows = fields.integer("test_rows", 0, kRowsMax);
  schema.source_columns = fields.texts("source_columns");
  schema.ignored_columns = fields.texts("ignored_columns");
  schema.missing_values = fields.texts("missing_values");
  const std::string delimiter = fields.text("delimiter");
  if (delimiter.size() == 1 && is_csv_delimiter(delimiter[0])) {
    schema.delimiter = delimiter[0];
  } else {
    fields.refuse("delimiter: expected one ASCII byte");
  }
  if (Status s = fields.finish(); !s.ok()) return std::move(s).error();

  const auto refuse = [](const std::string& message) {
    return make_error(ErrorCode::kInvalidArgument, kReason, "schema: " + message);
  };
  if (schema.kind == Kind::kImage && !schema.columns.empty()) {
    return refuse("an image has no columns");
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
