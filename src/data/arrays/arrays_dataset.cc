// Reads a dataset of arrays in files of NumPy or safetensors: inputs and targets, and optionally
// those of a test set.
#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "src/base/text.h"
#include "src/data/arrays/array_file.h"
#include "src/data/limits.h"
#include "src/data/problems.h"
#include "src/data/table/category_codes.h"
#include "src/data/table/csv_schema.h"
#include "src/data/test_share.h"
#include "src/data/typed_dataset.h"

namespace trainyard {
namespace {

/// An array, and its name in messages.
struct NamedArray {
  std::string what;
  Array array;
};
/// The arrays of a partition.
struct Arrays {
  NamedArray inputs, targets;
};
struct Partitions {
  Arrays train;
  std::optional<Arrays> test;
};

// --- from files to arrays ----------------------------------------------------------------------

Result<NamedArray> read_file(const std::filesystem::path& path, const std::string& what) {
  ASSIGN_OR_RETURN(const std::unique_ptr<ByteSource> source, open_file_source(path, what));
  ASSIGN_OR_RETURN(Array array, read_npy(*source, what));
  return NamedArray{what, std::move(array)};
}

Result<NamedArray> take(ArrayFile& file, const std::string& what, const std::string& name) {
  ASSIGN_OR_RETURN(Array array, file.take(name));
  return NamedArray{what + ": array " + quoted_value(name), std::move(array)};
}

Result<Arrays> take_both(ArrayFile& file, const std::string& what, const std::string& inputs,
                         const std::string& targets) {
  Arrays arrays;
  ASSIGN_OR_RETURN(arrays.inputs, take(file, what, inputs));
  ASSIGN_OR_RETURN(arrays.targets, take(file, what, targets));
  return arrays;
}

Result<Partitions> read_partitions(const ArraysOptions& options, const ArrayPaths& paths) {
  Partitions parts;
  if (paths.data.empty()) {
    ASSIGN_OR_RETURN(parts.train.inputs, read_file(paths.inputs, "inputs"));
    ASSIGN_OR_RETURN(parts.train.targets, read_file(paths.targets, "targets"));
    if (paths.test_inputs.empty()) return parts;
    Arrays& test = parts.test.emplace();
    ASSIGN_OR_RETURN(test.inputs, read_file(paths.test_inputs, "test_inputs"));
    ASSIGN_OR_RETURN(test.targets, read_file(paths.test_targets, "test_targets"));
    return parts;
  }
  const std::vector<std::string> own = {options.inputs, options.targets};
  std::vector<std::string> names = own;
  names.insert(names.end(), {kTestInputs, kTestTargets});
  ASSIGN_OR_RETURN(ArrayFile file, ArrayFile::read(paths.data, "data", names));
  ASSIGN_OR_RETURN(parts.train, take_both(file, "data", options.inputs, options.targets));
  const auto is_own = [&](const char* name) { return std::ranges::find(own, name) != own.end(); };
  if (!is_own(kTestInputs) && !is_own(kTestTargets) &&
      (file.has(kTestInputs) || file.has(kTestTargets))) {
    ASSIGN_OR_RETURN(parts.test.emplace(), take_both(file, "data", kTestInputs, kTestTargets));
  }
  if (paths.test.empty()) return parts;
  if (parts.test) {
    return dataset_error(
        "test", "data already has a test set, its arrays test_inputs and test_targets; remove one");
  }
  ASSIGN_OR_RETURN(ArrayFile test, ArrayFile::read(paths.test, "test", own));
  ASSIGN_OR_RETURN(parts.test.emplace(), take_both(test, "test", options.inputs, options.targets));
  return parts;
}

// --- checks of types and shapes ----------------------------------------------------------------

Status check_inputs(const NamedArray& inputs) {
  const Shape& shape = inputs.array.shape();
  if (inputs.array.type().text()) {
    return dataset_error(inputs.what, "text, expected numbers; rows with text are read as CSV");
  }
  if (shape.rank() < 1 || shape.rank() > 4) {
    return dataset_error(inputs.what, "shape " + shape.to_string() +
                                          ", expected [N, F] columns of numbers, [N], or images "
                                          "of [N, H, W] or [N, C, H, W]");
  }
  if (shape.elements() == 0) {
    return dataset_error(inputs.what, "shape " + shape.to_string() + " has no elements");
  }
  if (shape[0] > kRowsMax) {
    return dataset_error(inputs.what, "more than " + std::to_string(kRowsMax) + " rows");
  }
  const int64_t per_row = shape.elements() / shape[0];
  const int64_t max = shape.rank() < 3 ? kColumnsMax : kImageValuesMax;
  if (per_row <= max) return {};
  return dataset_error(inputs.what, std::to_string(per_row) + " numbers in a row, expected 1 to " +
                                        std::to_string(max));
}

Status check_targets(const Arrays& arrays) {
  const Shape& shape = arrays.targets.array.shape();
  const bool column = shape.rank() == 2 && shape[1] == 1;
  if (shape.rank() != 1 && !column) {
    return dataset_error(arrays.targets.what,
                         "shape " + shape.to_string() + ", expected [N] or [N, 1]");
  }
  if (shape[0] != arrays.inputs.array.rows()) {
    return dataset_error(arrays.targets.what, std::to_string(shape[0]) + " targets, expected " +
                                                  std::to_string(arrays.inputs.array.rows()) +
                                                  " as for the inputs");
  }
  return {};
}

/// Returns the dimensions after the first one.
Shape row_shape(const Shape& shape) {
  return Shape(std::vector<int64_t>(shape.dims().begin() + 1, shape.dims().end()));
}

// --- inputs ------------------------------------------------------------------------------------

/// Refuses infinite numbers, and NaN unless `may_be_missing`.
Status check_numbers(const std::vector<float>& values, bool may_be_missing, const Shape& shape,
                     const std::string& what) {
  Problems problems;
  for (size_t i = 0; i < values.size() && !problems.full(); ++i) {
    if (std::isfinite(values[i]) || (may_be_missing && std::isnan(values[i]))) continue;
    problems.add(what + ": " + index_text(shape, static_cast<int64_t>(i)),
                 std::isnan(values[i]) ? "NaN; missing values are not supported here"
                                       : "not a finite number of 32 bits");
  }
  return problems.empty() ? Status() : Status(problems.error());
}

Status fill_inputs(NamedArray inputs, const DatasetSchema& schema, TypedRows& rows) {
  rows.rows = inputs.array.rows();
  if (schema.kind == DatasetSchema::Kind::kImage && schema.image_dtype == DType::kU8) {
    rows.image_u8 = std::move(inputs.array).take_bytes();
    return {};
  }
  const bool table = schema.kind == DatasetSchema::Kind::kTabular;
  std::vector<float>& values = table ? rows.numeric : rows.image_f32;
  values = inputs.array.to_floats();
  return check_numbers(values, table, inputs.array.shape(), inputs.what);
}

// --- targets -----------------------------------------------------------------------------------

/// Returns the cell that CSV would read from `text`, except that an element of a text array is
/// never a number.
Cell cell_of(const Array& targets, std::string_view text) {
  static const CellReader reader;  // no text stands for a missing value
  return targets.type().text() ? Cell{Cell::Kind::kText, 0} : reader.read(text);
}

Result<TargetSchema::Kind> target_kind(const ArraysOptions& options, const NamedArray& targets) {
  ColumnCounts counts;
  std::set<std::string> values;
  for (int64_t row = 0; row < targets.array.rows(); ++row) {
    ASSIGN_OR_RETURN(const std::string text, targets.array.cell(row, targets.what));
    const Cell cell = cell_of(targets.array, text);
    count_cell(cell, counts);
    note_target_value(cell, text, values);
  }
  return infer_target(options.target_kind, counts, values.size());
}

/// Returns the name of a class. Whole numbers are written without a decimal point.
std::string class_name(const Cell& cell, std::string text) {
  return cell.is_whole() ? whole_number_name(cell, text) : std::move(text);
}

Status fill_classes(const NamedArray& targets, bool learning, CategoryCodes& codes,
                    std::vector<int32_t>& out) {
  const Array& array = targets.array;
  out.reserve(static_cast<size_t>(array.rows()));
  Problems problems;
  for (int64_t row = 0; row < array.rows() && !problems.full(); ++row) {
    ASSIGN_OR_RETURN(std::string text, array.cell(row, targets.what));
    const Cell cell = cell_of(array, text);
    const std::string name = class_name(cell, std::move(text));
    const auto refuse = [&](std::string why) {
      problems.add(targets.what + ": " + index_text(array.shape(), row), std::move(why));
    };
    if (cell.kind == Cell::Kind::kNotFinite) {
      refuse(quoted_value(name) + " is not a finite number");
    } else if (name.empty() || name.size() > kNameBytesMax) {
      refuse("a class's name of " + std::to_string(name.size()) + " bytes, expected 1 to " +
             std::to_string(kNameBytesMax));
    } else if (learning && codes.find(name) < 0 && codes.count() == kClassesMax) {
      return dataset_error(
          targets.what, "more than " + std::to_string(kClassesMax) +
                            " different values as classes; is the target numeric (target_kind)?");
    } else if (!learning && codes.find(name) < 0) {
      refuse(quoted_value(name) + " is not a class of the training rows");
    }
    out.push_back(problems.empty() ? codes.add(name) : -1);
  }
  return problems.empty() ? Status() : Status(problems.error());
}

Status fill_numbers(const NamedArray& targets, std::vector<float>& out) {
  const Array& array = targets.array;
  if (!array.type().text()) {
    out = array.to_floats();
    return check_numbers(out, false, array.shape(), targets.what);
  }
  const CellReader reader;
  Problems problems;
  for (int64_t row = 0; row < array.rows() && !problems.full(); ++row) {
    ASSIGN_OR_RETURN(const std::string text, array.cell(row, targets.what));
    const Cell cell = reader.read(text);
    if (!cell.is_number()) {
      problems.add(targets.what + ": " + index_text(array.shape(), row),
                   quoted_value(text) + " is not a number");
    }
    out.push_back(static_cast<float>(cell.value));
  }
  return problems.empty() ? Status() : Status(problems.error());
}

Status fill_targets(Partitions& parts, TargetSchema& target, TypedDataset& data) {
  const NamedArray& train = parts.train.targets;
  if (target.kind == TargetSchema::Kind::kNumeric) {
    if (Status s = fill_numbers(train, data.train.target_numeric); !s.ok()) return s;
    if (Status s = check_numbers_differ(data.train.target_numeric, train.what); !s.ok()) return s;
    return parts.test ? fill_numbers(parts.test->targets, data.test.target_numeric) : Status();
  }
  CategoryCodes codes;
  if (Status s = fill_classes(train, true, codes, data.train.target_class); !s.ok()) return s;
  std::vector<int32_t> new_codes;
  target.classes = codes.sorted(new_codes);
  if (target.classes.size() < 2) {
    return dataset_error(train.what, "a single class " + quoted_value(target.classes.front()) +
                                         ", expected at least 2");
  }
  for (int32_t& code : data.train.target_class) code = new_codes[static_cast<size_t>(code)];
  if (!parts.test) return {};
  codes = CategoryCodes(target.classes);
  return fill_classes(parts.test->targets, false, codes, data.test.target_class);
}

// --- the test share ----------------------------------------------------------------------------

/// Moves the drawn rows from `from` to the end of `to`. Both keep the order of their rows.
template <typename T>
void move_rows(const std::vector<bool>& drawn, std::vector<T>& from, std::vector<T>& to) {
  if (from.empty()) return;
  const auto width = static_cast<std::ptrdiff_t>(from.size() / drawn.size());
  auto kept = from.begin();
  for (size_t row = 0; row < drawn.size(); ++row) {
    const auto first = from.begin() + static_cast<std::ptrdiff_t>(row) * width;
    if (drawn[row]) {
      to.insert(to.end(), first, first + width);
    } else {
      kept = std::copy(first, first + width, kept);
    }
  }
  from.erase(kept, from.end());
}

void split_rows(const ArraysOptions& options, TypedDataset& data) {
  TypedRows& train = data.train;
  const bool classes = !train.target_class.empty();
  const std::vector<int32_t> one_group(classes ? 0 : static_cast<size_t>(train.rows));
  const std::vector<bool> drawn =
      draw_test_rows(classes ? train.target_class : one_group, options.test_share, options.seed);
  move_rows(drawn, train.numeric, data.test.numeric);
  move_rows(drawn, train.image_u8, data.test.image_u8);
  move_rows(drawn, train.image_f32, data.test.image_f32);
  move_rows(drawn, train.target_class, data.test.target_class);
  move_rows(drawn, train.target_numeric, data.test.target_numeric);
  data.test.rows = std::ranges::count(drawn, true);
  train.rows -= data.test.rows;
}

// --- the schema --------------------------------------------------------------------------------

void set_inputs(const Array& inputs, DatasetSchema& schema) {
  const Shape& s = inputs.shape();
  if (s.rank() > 2) {
    schema.kind = DatasetSchema::Kind::kImage;
    schema.image = s.rank() == 3 ? Shape{1, s[1], s[2]} : Shape{s[1], s[2], s[3]};
    schema.image_dtype = inputs.type().u8() ? DType::kU8 : DType::kF32;
    return;
  }
  // The columns get the names of a CSV without a header, so that predict accepts such CSV rows.
  schema.source_columns = numbered_names(static_cast<size_t>(s.rank() == 1 ? 1 : s[1]));
  for (const std::string& name : schema.source_columns) {
    schema.columns.push_back({ColumnSchema::Kind::kNumeric, name, {}, 0});
  }
  schema.source_columns.push_back(schema.target.name);
}

Status check_same_inputs(const NamedArray& train, const NamedArray& test) {
  const auto bytes = [](const NamedArray& a) {
    return a.array.shape().rank() > 2 && a.array.type().u8();
  };
  const Shape expected = row_shape(train.array.shape());
  if (row_shape(test.array.shape()) != expected) {
    return dataset_error(test.what, "rows of " + row_shape(test.array.shape()).to_string() +
                                        ", expected " + expected.to_string() +
                                        " as in the training data");
  }
  if (bytes(test) == bytes(train)) return {};
  return dataset_error(test.what, std::string("images of ") + (bytes(test) ? "bytes" : "floats") +
                                      ", expected " + (bytes(train) ? "bytes" : "floats") +
                                      " as in the training data");
}

}  // namespace

Result<TypedDataset> read_arrays_dataset(const ArraysOptions& options, const ArrayPaths& paths) {
  const std::string& kind = options.target_kind;
  if (!kind.empty() && kind != "class" && kind != "numeric") {
    return dataset_error("arrays.target_kind", quoted_value(kind) + ", expected class or numeric");
  }
  ASSIGN_OR_RETURN(Partitions parts, read_partitions(options, paths));
  if (Status s = check_test_share(options.test_share, parts.test.has_value(), "arrays.test_share");
      !s.ok()) {
    return std::move(s).error();
  }
  for (const Arrays* arrays : {&parts.train, parts.test ? &*parts.test : nullptr}) {
    if (arrays == nullptr) continue;
    if (Status s = check_inputs(arrays->inputs); !s.ok()) return std::move(s).error();
    if (Status s = check_targets(*arrays); !s.ok()) return std::move(s).error();
  }
  if (parts.test) {
    if (Status s = check_same_inputs(parts.train.inputs, parts.test->inputs); !s.ok()) {
      return std::move(s).error();
    }
  }
  TypedDataset data;
  DatasetSchema& schema = data.schema;
  schema.target.name = "target";
  set_inputs(parts.train.inputs.array, schema);
  ASSIGN_OR_RETURN(schema.target.kind, target_kind(options, parts.train.targets));
  if (Status s = fill_targets(parts, schema.target, data); !s.ok()) return std::move(s).error();
  if (Status s = fill_inputs(std::move(parts.train.inputs), schema, data.train); !s.ok()) {
    return std::move(s).error();
  }
  if (parts.test) {
    if (Status s = fill_inputs(std::move(parts.test->inputs), schema, data.test); !s.ok()) {
      return std::move(s).error();
    }
  }
  if (options.test_share > 0) split_rows(options, data);
  schema.train_rows = data.train.rows;
  schema.test_rows = data.test.rows;
  for (size_t i = 0; i < data.train.numeric.size(); ++i) {
    if (std::isnan(data.train.numeric[i]))
      ++schema.columns[i % schema.columns.size()].missing_count;
  }
  if (schema.kind == DatasetSchema::Kind::kImage && schema.image_dtype == DType::kU8) {
    for (TypedRows* rows : {&data.train, &data.test}) {
      rows->image_sums = sum_images(rows->image_u8, rows->rows, schema.image);
    }
  }
  return data;
}

}  // namespace trainyard
