#include "src/onnx/interface.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <numeric>

#include "src/base/base64.h"
#include "src/base/text.h"

namespace trainyard::onnx {
namespace {

using Json = nlohmann::ordered_json;

// The model's input. No layer can have this name; intermediate values have a colon in theirs.
constexpr const char* kInput = "input";

constexpr const char* kLoadRemedy =
    "; export it without raw rows: trainyard.load in Python then reads the rows";

// Version of the metadata `rows`. Readers refuse versions that they do not know.
constexpr int kRowsVersion = 2;

std::string cast(GraphWriter& onnx, const std::string& x, DType dtype, const std::string& name) {
  return onnx.add_node("Cast", {x}, name, {{"to", data_type_of(dtype)}});
}

/// Adds nodes for (x scale - mean) / std, in double. `shape` is the shape of mean and std.
std::string standardize(GraphWriter& onnx, const std::string& x, double scale, const Shape& shape,
                        const std::vector<double>& mean, const std::vector<double>& std) {
  const std::string name = x + ":";
  onnx.add_doubles(name + "mean", shape, mean);
  onnx.add_doubles(name + "std", shape, std);
  std::string value = cast(onnx, x, DType::kF64, name + "double");
  if (scale != 1) {
    onnx.add_doubles(name + "scale", Shape{}, {scale});
    value = onnx.add_node("Mul", {value, name + "scale"}, name + "scaled");
  }
  value = onnx.add_node("Sub", {value, name + "mean"}, name + "centred");
  return onnx.add_node("Div", {value, name + "std"}, name + "standardised");
}

InputNames write_image(GraphWriter& onnx, const DatasetSchema& schema, const Preprocessing& p) {
  const Shape& x = schema.image;
  onnx.add_input("image", schema.image_dtype, {kBatch, x[0], x[1], x[2]},
                 schema.image_dtype == DType::kU8 ? "pixels, 0 to 255: [N, channels, rows, columns]"
                                                  : "pixels: [N, channels, rows, columns]");
  const std::string value =
      standardize(onnx, "image", p.image_scale, Shape{x[0], 1, 1}, p.image_mean, p.image_std);
  return {"image", cast(onnx, value, DType::kF32, kInput)};
}

/// A table's columns as values of the graph; a name is empty if there are no columns of its kind.
struct TableValues {
  std::string numeric;      // F32 [N, columns], NaN where missing
  std::string categorical;  // one-hot F32 [N, categories], or codes I64 [N, columns]
};

/// Combines the columns into the model's input, and returns its name.
std::string write_features(GraphWriter& onnx, const Preprocessing& p, const TableValues& table) {
  std::vector<std::string> parts;
  if (!table.numeric.empty()) {
    const std::string& x = table.numeric;
    const Shape columns{std::ssize(p.numeric_mean)};
    const std::string value =
        cast(onnx, standardize(onnx, x, 1, columns, p.numeric_mean, p.numeric_std), DType::kF32,
             x + ":single");
    const std::string missing = onnx.add_node("IsNaN", {x}, x + ":missing");
    parts.push_back(onnx.add_node("Where", {missing, onnx.constant(0.0f), value}, x + ":complete"));
  }
  if (!table.categorical.empty()) {
    parts.push_back(p.category_codes
                        ? cast(onnx, table.categorical, DType::kF32, table.categorical + ":single")
                        : table.categorical);
  }
  return onnx.add_node("Concat", parts, kInput, {{"axis", int64_t{1}}});
}

InputNames write_table(GraphWriter& onnx, const DatasetSchema& schema, const Preprocessing& p) {
  const int64_t numbers = schema.numeric_columns();
  const int64_t columns = schema.categorical_columns();
  const int64_t categories = schema.interface().input[0] - numbers;
  TableValues table;
  if (numbers > 0) {
    table.numeric = "numeric";
    onnx.add_input(
        "numeric", DType::kF32, {kBatch, numbers},
        "the numeric columns in the order of 'columns', in their own units, minus a column's "
        "'offset' if it has one; NaN where a value is missing");
  }
  if (p.category_codes) {
    table.categorical = "categorical";
    onnx.add_input(
        "categorical", DType::kI64, {kBatch, columns},
        "for each categorical column in the order of 'columns' the row's category: 1 for the first "
        "of its categories, 2 for the second; 0 where it is missing or unknown");
  } else if (categories > 0) {
    table.categorical = "categorical";
    onnx.add_input("categorical", DType::kF32, {kBatch, categories},
                   "for each categorical column in the order of 'columns' one number for each of "
                   "its categories: 1 for the row's, else 0; all 0 where it is missing");
  }
  std::string source = numbers > 0 ? "numeric" : "categorical";
  return {std::move(source), write_features(onnx, p, table)};
}

/// Writes the one-hot encoding F32 [N, categories] of codes I64 [N, 1].
std::string write_one_hot(GraphWriter& onnx, const std::string& codes, size_t categories) {
  std::vector<int64_t> all(categories);
  std::iota(all.begin(), all.end(), int64_t{1});
  const std::string equal = onnx.add_node("Equal", {codes, onnx.constant(all)}, codes + ":equal");
  return cast(onnx, equal, DType::kF32, codes + ":one_hot");
}

/// Adds the input of a numeric column, which is a double if the column has an offset, and returns
/// the stored number F32 [N, 1].
std::string write_raw_number(GraphWriter& onnx, const ColumnSchema& column) {
  const char* about = "in its own unit; NaN where it is missing";
  onnx.add_input(column.name, column.offset == 0 ? DType::kF32 : DType::kF64, {kBatch, 1}, about);
  if (column.offset == 0) return column.name;
  const std::string name = column.name + ":";
  onnx.add_doubles(name + "offset", Shape{}, {column.offset});
  const std::string near = onnx.add_node("Sub", {column.name, name + "offset"}, name + "near");
  return cast(onnx, near, DType::kF32, name + "stored");
}

InputNames write_tokens(GraphWriter& onnx, const DatasetSchema& schema, const Preprocessing& p) {
  const int64_t length = schema.interface(p.context_length).input[0];
  onnx.add_input("tokens", DType::kI64, {kBatch, length},
                 schema.next_token() ? "ids of successive tokens, see 'text'"
                                     : "ids of the tokens of a row, cut and padded, see 'text'");
  return {"tokens", "tokens"};
}

Json text_metadata(const DatasetSchema& schema, const Preprocessing& p) {
  const TextSchema& text = schema.text;
  Json json = {{"tokenizer", name_of(text.tokenizer)},
               {"length", schema.next_token() ? p.context_length : text.max_length},
               {"vocabulary_size", text.vocabulary_size()},
               {"first_piece_id", text.first_piece_id()},
               {"pieces", text.pieces}};
  if (!text.model.empty()) json["sentencepiece_model"] = base64_encode(text.model);
  if (!text.unicode_version().empty()) json["unicode"] = text.unicode_version();
  if (text.padding_id() >= 0) json["padding_id"] = text.padding_id();
  if (text.unknown_id() >= 0) json["unknown_id"] = text.unknown_id();
  return json;
}

/// Describes how image files become the input `image`, and what the graph does with it first.
Json image_metadata(const DatasetSchema& schema, const Preprocessing& p) {
  return {{"channels", schema.image[0]},
          {"height", schema.image[1]},
          {"width", schema.image[2]},
          {"bits", schema.image_bits},
          {"resize", name_of(schema.resize)},
          {"filter", "bilinear, antialiased"},
          {"scale", p.image_scale},
          {"mean", p.image_mean},
          {"std", p.image_std}};
}

/// Describes how rows of text become the inputs, in addition to `columns` and `text`, for programs
/// that read the same rows as `predict`.
Json rows_metadata(const DatasetSchema& schema) {
  return {{"version", kRowsVersion},
          {"source_columns", schema.source_columns},
          {"ignored_columns", schema.ignored_columns},
          {"missing_values", schema.missing_values},
          {"delimiter", std::string(1, schema.delimiter)},
          {"decimal", std::string(1, schema.number_style.decimal)},
          {"thousands", schema.number_style.thousands}};
}

std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

bool is_interface_name(std::string_view name) {
  static constexpr std::array kNames = {"image",  "numeric",       "categorical", "tokens",
                                        "logits", "probabilities", "prediction",  "reconstruction"};
  return std::ranges::find(kNames, name) != kNames.end();
}

InputNames write_inputs(GraphWriter& onnx, const DatasetSchema& schema, const Preprocessing& p) {
  switch (schema.kind) {
    case DatasetSchema::Kind::kImage:
      return write_image(onnx, schema, p);
    case DatasetSchema::Kind::kText:
      return write_tokens(onnx, schema, p);
    case DatasetSchema::Kind::kTabular:
      break;
  }
  return write_table(onnx, schema, p);
}

Result<InputNames> write_raw_inputs(GraphWriter& onnx, const DatasetSchema& schema,
                                    const Preprocessing& p) {
  const auto unsupported = [](const std::string& what) {
    return make_error(ErrorCode::kFailedPrecondition, "ONNX_UNSUPPORTED", "raw rows: " + what);
  };
  if (schema.kind == DatasetSchema::Kind::kImage) {
    return unsupported("the model takes images, whose pixels are raw in every ONNX file");
  }
  if (schema.kind == DatasetSchema::Kind::kText) {
    return unsupported("the model takes text, which ONNX cannot cut into tokens" +
                       std::string(kLoadRemedy));
  }
  std::vector<std::string> numbers, categories;
  for (const ColumnSchema& c : schema.columns) {
    if (!c.date.empty()) {
      return unsupported("column " + quoted_value(c.date) + " is a date, which ONNX cannot read" +
                         kLoadRemedy);
    }
    if (c.kind == ColumnSchema::Kind::kNumeric) {
      numbers.push_back(write_raw_number(onnx, c));
      continue;
    }
    onnx.add_text_input(c.name, {kBatch, 1}, "a category's name; any other text counts as missing");
    const std::string codes = "column:" + std::to_string(categories.size());
    onnx.add_codes(c.name, c.categories, codes);
    categories.push_back(p.category_codes ? codes
                                          : write_one_hot(onnx, codes, c.categories.size()));
  }
  const auto join = [&](const std::vector<std::string>& parts, const std::string& name) {
    return parts.empty() ? std::string()
                         : onnx.add_node("Concat", parts, name, {{"axis", int64_t{1}}});
  };
  const TableValues table = {join(numbers, "columns:numeric"),
                             join(categories, "columns:categorical")};
  return InputNames{schema.columns.front().name, write_features(onnx, p, table)};
}

namespace {

/// Writes logits and probabilities. If there is only the score of the second of two classes, the
/// score of the first is 0.
void write_classes(GraphWriter& onnx, int64_t outputs, const std::string& output) {
  std::string scores = output;
  if (outputs == 1) {
    const std::string zero = onnx.add_node("Sub", {output, output}, "logits:zero");
    scores = onnx.add_node("Concat", {zero, output}, "logits:both", {{"axis", int64_t{1}}});
    outputs = 2;
  }
  onnx.add_node("Identity", {scores}, "logits");
  onnx.add_node("Softmax", {"logits"}, "probabilities", {{"axis", int64_t{-1}}});
  onnx.add_output("logits", DType::kF32, {kBatch, outputs}, "one score for each of 'classes'");
  onnx.add_output("probabilities", DType::kF32, {kBatch, outputs},
                  "softmax of logits: the probability of each of 'classes'");
}

/// Writes (value * std + mean) / scale, the inverse of standardize(), and returns its name. The
/// result is F64.
std::string write_restored(GraphWriter& onnx, const std::string& output, const std::string& name,
                           const Shape& shape, const std::vector<double>& mean,
                           const std::vector<double>& std, double scale) {
  onnx.add_doubles(name + ":mean", shape, mean);
  onnx.add_doubles(name + ":std", shape, std);
  const std::string wide = cast(onnx, output, DType::kF64, name + ":double");
  const std::string scaled = onnx.add_node("Mul", {wide, name + ":std"}, name + ":scaled");
  std::string value = onnx.add_node("Add", {scaled, name + ":mean"}, name + ":sum");
  if (scale != 1) {
    onnx.add_doubles(name + ":scale", Shape{}, {scale});
    value = onnx.add_node("Div", {value, name + ":scale"}, name + ":restored");
  }
  return value;
}

/// Writes the reconstruction in the units of the input. Codes of categories are not converted.
void write_reconstruction(GraphWriter& onnx, const Objective& objective,
                          const DatasetSchema& schema, const Preprocessing& p, std::string output) {
  const std::string name = "reconstruction";
  if (objective.unit_input()) output = onnx.add_node("Sigmoid", {output}, name + ":share");
  std::vector<int64_t> dims = {kBatch};
  const Shape& input = objective.interface.input;
  dims.insert(dims.end(), input.dims().begin(), input.dims().end());
  output = onnx.add_node("Reshape", {output, onnx.constant(dims)}, name + ":input");
  if (schema.kind == DatasetSchema::Kind::kImage) {
    output = write_restored(onnx, output, name, Shape{input[0], 1, 1}, p.image_mean, p.image_std,
                            p.image_scale);
  } else {
    std::vector<double> mean = p.numeric_mean, std = p.numeric_std;
    mean.resize(static_cast<size_t>(input[0]), 0);
    std.resize(static_cast<size_t>(input[0]), 1);
    output = write_restored(onnx, output, name, Shape{input[0]}, mean, std, 1);
  }
  cast(onnx, output, DType::kF32, name);
  onnx.add_output(name, DType::kF32, dims,
                  "the input as the model reproduces it, in the input's units");
}

}  // namespace

void write_outputs(GraphWriter& onnx, const Objective& objective, const DatasetSchema& schema,
                   const Preprocessing& p, const std::string& output) {
  const ModelInterface& interface = objective.interface;
  switch (interface.target) {
    case TargetForm::kClass:
      return write_classes(onnx, interface.outputs, output);
    case TargetForm::kInput:
      return write_reconstruction(onnx, objective, schema, p, output);
    case TargetForm::kNextToken:
      onnx.add_node("Identity", {output}, "logits");
      onnx.add_output("logits", DType::kF32, {kBatch, interface.input[0], interface.outputs},
                      "for each position, one score per token that may follow");
      return;
    case TargetForm::kNumeric:
      break;
  }
  // A target with an offset is far from 0, so that 32 bits would lose the prediction's digits.
  const DType dtype = schema.target.offset == 0 ? DType::kF32 : DType::kF64;
  const std::string value =
      write_restored(onnx, output, "prediction", Shape{}, {p.target_mean + schema.target.offset},
                     {p.target_std}, 1);
  cast(onnx, value, dtype, "prediction");
  onnx.add_output("prediction", dtype, {kBatch, interface.outputs}, "the target, in its own unit");
}

std::map<std::string, std::string> interface_metadata(const Objective& objective,
                                                      const DatasetSchema& schema,
                                                      const Preprocessing& p, bool raw_rows) {
  std::map<std::string, std::string> metadata;
  switch (objective.interface.target) {
    case TargetForm::kClass:
      metadata["task"] = "classification";
      metadata["classes"] = dump(schema.target.classes);
      break;
    case TargetForm::kNumeric:
      metadata["task"] = "regression";
      break;
    case TargetForm::kNextToken:
      metadata["task"] = "next_token";
      break;
    case TargetForm::kInput:
      metadata["task"] = "reconstruction";
      break;
  }
  if (objective.interface.target != TargetForm::kInput && !schema.target.name.empty()) {
    metadata["target"] = schema.target.name;
  }
  if (!schema.next_token() && !raw_rows) metadata["rows"] = dump(rows_metadata(schema));
  switch (schema.kind) {
    case DatasetSchema::Kind::kText:
      metadata["text"] = dump(text_metadata(schema, p));
      break;
    case DatasetSchema::Kind::kImage:
      metadata["image"] = dump(image_metadata(schema, p));
      break;
    case DatasetSchema::Kind::kTabular:
      Json columns = Json::array();
      for (const ColumnSchema& c : schema.columns) {
        Json column = {{"name", c.name}, {"kind", "numeric"}};
        if (c.kind == ColumnSchema::Kind::kCategorical) {
          column["kind"] = "categorical";
          column["categories"] = c.categories;
        }
        if (!c.date.empty()) column["date"] = c.date;
        if (c.date_order != DateOrder::kYearFirst) column["date_order"] = name_of(c.date_order);
        if (c.offset != 0) column["offset"] = c.offset;
        if (c.unit) column["unit"] = *c.unit;
        columns.push_back(std::move(column));
      }
      metadata["columns"] = dump(columns);
      break;
  }
  return metadata;
}

}  // namespace trainyard::onnx
