#include "src/data/align.h"

#include <algorithm>
#include <map>
#include <optional>

#include "src/base/text.h"
#include "src/base/violations.h"
#include "src/data/table/category_codes.h"
#include "src/data/table/column_match.h"

namespace trainyard {
namespace {

constexpr const char* kMismatch = "EVALUATE_MISMATCH";

const char* kind_text(const DatasetSchema& schema) {
  if (schema.documents) return "documents";
  if (schema.stream()) return "one text";
  switch (schema.kind) {
    case DatasetSchema::Kind::kTabular:
      return "a table";
    case DatasetSchema::Kind::kImage:
      return "images";
    case DatasetSchema::Kind::kText:
      return "rows of text";
  }
  return "";
}

/// Returns for each name in `from` its index in `to`, or -1 if `to` does not have it.
std::vector<int32_t> indices_by_name(const std::vector<std::string>& from,
                                     const std::vector<std::string>& to) {
  std::map<std::string_view, int32_t> at;
  for (size_t i = 0; i < to.size(); ++i) at.emplace(to[i], static_cast<int32_t>(i));
  std::vector<int32_t> indices;
  for (const std::string& name : from) {
    const auto it = at.find(name);
    indices.push_back(it == at.end() ? -1 : it->second);
  }
  return indices;
}

/// Returns for each category or class in `from` its code in `to`, or -1 if `to` does not have it.
std::vector<int32_t> codes_of(const std::vector<std::string>& from,
                              const std::vector<std::string>& to) {
  const CategoryCodes known(to);
  std::vector<int32_t> codes;
  for (const std::string& name : from) codes.push_back(known.find(name));
  return codes;
}

/// Returns a column's position among those of its kind; -1 if there is none.
int64_t place_among(const DatasetSchema& schema, ColumnSchema::Kind kind, const std::string& name) {
  int64_t place = 0;
  for (const ColumnSchema& column : schema.columns) {
    if (column.kind != kind) continue;
    if (column.name == name) return place;
    ++place;
  }
  return -1;
}

const char* name_of_kind(ColumnSchema::Kind kind) {
  return kind == ColumnSchema::Kind::kNumeric ? "numeric" : "categorical";
}

std::vector<std::string> names_of(const std::vector<ColumnSchema>& columns) {
  std::vector<std::string> names;
  for (const ColumnSchema& column : columns) names.push_back(column.name);
  return names;
}

/// Returns the indices of the model's columns among those of the dataset, by name in any case;
/// kNoColumn for those that it lacks.
std::vector<size_t> match_schemas(const DatasetSchema& model, const DatasetSchema& data) {
  return match_columns(names_of(model.columns), names_of(data.columns));
}

/// Returns the dataset's columns that the model does not have, each date once.
std::vector<std::string> other_columns(const DatasetSchema& model, const DatasetSchema& data) {
  const std::vector<size_t> matches =
      match_columns(names_of(data.columns), names_of(model.columns));
  std::vector<std::string> names;
  for (size_t i = 0; i < matches.size(); ++i) {
    if (matches[i] != kNoColumn) continue;
    const ColumnSchema& column = data.columns[i];
    const std::string& name = column.date.empty() ? column.name : column.date;
    if (names.empty() || names.back() != name) names.push_back(name);
  }
  return names;
}

/// Refuses numbers in another unit than the model's. `what` is the column or the target.
void check_unit(const std::optional<std::string>& model, const std::optional<std::string>& data,
                const std::string& what, Violations& problems) {
  if (model.value_or("").empty() || data.value_or("").empty() || *model == *data) return;
  problems.add(kMismatch, "dataset",
               what + " is in " + quoted_value(*data) + "; the model's is in " +
                   quoted_value(*model) + ", expected the same unit");
}

void check_columns(const DatasetSchema& model, const DatasetSchema& data, Violations& problems) {
  const std::vector<size_t> matches = match_schemas(model, data);
  for (size_t i = 0; i < matches.size(); ++i) {
    const ColumnSchema& column = model.columns[i];
    const bool there = matches[i] != kNoColumn;
    if (there && data.columns[matches[i]].kind == column.kind) {
      check_unit(column.unit, data.columns[matches[i]].unit,
                 "its column " + quoted_value(column.name), problems);
      continue;
    }
    problems.add(kMismatch, "dataset",
                 (there ? "its column " : "lacks the column ") + quoted_value(column.name) +
                     (there ? " is not " : ", which is ") + name_of_kind(column.kind) +
                     (there ? ", as the model's is" : ""));
  }
}

void check_target(const DatasetSchema& model, const DatasetSchema& data, const Partition& rows,
                  Violations& problems) {
  if (model.target.kind != data.target.kind) {
    const bool classes = model.target.kind == TargetSchema::Kind::kClass;
    problems.add(kMismatch, "dataset",
                 classes ? "its target is a number; the model's targets are classes"
                         : "its targets are classes; the model's target is a number");
    return;
  }
  check_unit(model.target.unit, data.target.unit, "its target", problems);
  if (model.target.kind != TargetSchema::Kind::kClass) return;
  const std::vector<int32_t> codes = codes_of(data.target.classes, model.target.classes);
  std::vector<bool> reported(codes.size(), false);
  for (const int32_t label : rows.target_class) {
    const auto i = static_cast<size_t>(label);
    if (codes[i] >= 0 || reported[i]) continue;
    reported[i] = true;
    problems.add(kMismatch, "dataset",
                 "has rows of the class " + quoted_value(data.target.classes[i]) +
                     ", which the model does not know");
  }
}

/// Returns whether two pretrained tokenizers are the same.
bool same_files(const TextSchema& a, const TextSchema& b) {
  return a.files == b.files || (a.files && b.files && *a.files == *b.files);
}

Status check(const DatasetSchema& model, const DatasetSchema& data, const Partition& rows) {
  Violations problems;
  if (model.kind != data.kind || model.stream() != data.stream() ||
      model.documents.has_value() != data.documents.has_value()) {
    problems.add(
        kMismatch, "dataset",
        std::string("contains ") + kind_text(data) + "; the model expects " + kind_text(model));
    return problems.to_error();
  }
  if (model.kind == DatasetSchema::Kind::kImage &&
      (model.image != data.image || model.image_dtype != data.image_dtype)) {
    problems.add(kMismatch, "dataset",
                 "its images are " + data.image.to_string() + " of " +
                     std::string(name_of(data.image_dtype)) + "; the model expects " +
                     model.image.to_string() + " of " + std::string(name_of(model.image_dtype)));
  }
  if (model.kind == DatasetSchema::Kind::kText) {
    if (model.text.tokenizer != data.text.tokenizer) {
      problems.add(kMismatch, "dataset",
                   "its tokenizer is " + std::string(name_of(data.text.tokenizer)) +
                       "; the model's is " + std::string(name_of(model.text.tokenizer)));
    }
    if ((model.text.end_token >= 0) != (data.text.end_token >= 0)) {
      problems.add(kMismatch, "dataset",
                   data.text.end_token >= 0
                       ? "its texts end with a token of their own, which the model does not know"
                       : "its texts end with no token of their own; those of the model do "
                         "(text.end_token)");
    }
    if (model.text.tokenizer == TokenizerKind::kPretrained && !same_files(model.text, data.text)) {
      problems.add(kMismatch, "dataset",
                   "its tokenizer is another one than the model's; make a dataset with the model's "
                   "tokenizer");
    }
    if (model.text.max_length != data.text.max_length) {
      problems.add(kMismatch, "dataset",
                   "its rows have " + std::to_string(data.text.max_length) +
                       " tokens; the model expects " + std::to_string(model.text.max_length));
    }
  }
  if (model.kind == DatasetSchema::Kind::kTabular) check_columns(model, data, problems);
  if (!model.next_token()) check_target(model, data, rows, problems);
  return problems.empty() ? Status() : Status(problems.to_error());
}

std::vector<float> pick_numeric(const DatasetSchema& model, const DatasetSchema& data,
                                const Partition& rows) {
  const std::vector<size_t> matches = match_schemas(model, data);
  const int64_t stride = data.numeric_columns();
  const std::vector<double> offsets = data.numeric_offsets();
  std::vector<int64_t> places;
  std::vector<double> shifts;
  for (size_t i = 0; i < matches.size(); ++i) {
    const ColumnSchema& column = model.columns[i];
    if (column.kind != ColumnSchema::Kind::kNumeric) continue;
    places.push_back(place_among(data, column.kind, data.columns[matches[i]].name));
    shifts.push_back(offsets[static_cast<size_t>(places.back())] - column.offset);
  }
  std::vector<float> out;
  out.reserve(static_cast<size_t>(rows.rows) * places.size());
  for (int64_t row = 0; row < rows.rows; ++row) {
    for (size_t c = 0; c < places.size(); ++c) {
      const auto x =
          static_cast<double>(rows.numeric[static_cast<size_t>(row * stride + places[c])]);
      out.push_back(static_cast<float>(x + shifts[c]));
    }
  }
  return out;
}

std::vector<int32_t> pick_categories(const DatasetSchema& model, const DatasetSchema& data,
                                     const Partition& rows) {
  const std::vector<size_t> matches = match_schemas(model, data);
  const int64_t stride = data.categorical_columns();
  struct Source {
    int64_t place;
    std::vector<int32_t> codes;
  };
  std::vector<Source> sources;
  for (size_t i = 0; i < matches.size(); ++i) {
    const ColumnSchema& column = model.columns[i];
    if (column.kind != ColumnSchema::Kind::kCategorical) continue;
    const ColumnSchema& there = data.columns[matches[i]];
    sources.push_back({place_among(data, column.kind, there.name),
                       codes_of(there.categories, column.categories)});
  }
  std::vector<int32_t> out;
  out.reserve(static_cast<size_t>(rows.rows) * sources.size());
  for (int64_t row = 0; row < rows.rows; ++row) {
    for (const Source& source : sources) {
      const int32_t code = rows.category[static_cast<size_t>(row * stride + source.place)];
      out.push_back(code < 0 ? -1 : source.codes[static_cast<size_t>(code)]);
    }
  }
  return out;
}

std::vector<int32_t> map_tokens(const TextSchema& model, const TextSchema& data,
                                std::span<const int32_t> tokens) {
  std::vector<int32_t> codes(static_cast<size_t>(data.first_piece_id()));
  for (size_t id = 0; id < codes.size(); ++id) {  // padding and unknown keep their ids
    codes[id] = static_cast<int32_t>(id);
  }
  for (const int32_t piece : indices_by_name(data.pieces, model.pieces)) {
    codes.push_back(
        static_cast<int32_t>(piece < 0 ? model.unknown_id() : model.first_piece_id() + piece));
  }
  if (data.end_token >= 0) codes.push_back(model.end_token);
  std::vector<int32_t> out;
  out.reserve(tokens.size());
  for (const int32_t token : tokens) out.push_back(codes[static_cast<size_t>(token)]);
  return out;
}

/// Decodes each row and tokenizes it again, since the subwords of two vocabularies do not
/// correspond. A row that was truncated at its ingest remains truncated.
std::vector<int32_t> recut_tokens(const TextSchema& model, const TextSchema& data,
                                  std::span<const int32_t> tokens) {
  const std::vector<std::string> texts = token_texts(data);
  const std::unique_ptr<const Tokenizer> tokenizer = make_tokenizer(model);
  const auto length = model.stream() ? tokens.size() : static_cast<size_t>(model.max_length);
  std::vector<int32_t> out;
  std::string text;
  const auto encode = [&] {
    // A row may have been truncated within a character.
    text.resize(find_invalid_utf8(text).value_or(text.size()));
    tokenizer->encode(text, model.stream() ? std::ssize(text) : model.max_length, out);
    text.clear();
  };
  for (size_t begin = 0; begin < tokens.size(); begin += length) {
    for (const int32_t token : tokens.subspan(begin, length)) {
      if (token == data.end_token) {
        encode();
        out.push_back(model.end_token);
      } else {
        text += texts[static_cast<size_t>(token)];
      }
    }
    encode();
    if (!model.stream()) out.resize(begin + length, static_cast<int32_t>(model.padding_id()));
  }
  return out;
}

bool same_tokens(const TextSchema& a, const TextSchema& b) {
  const bool same_files =
      a.files == b.files || (a.files != nullptr && b.files != nullptr && *a.files == *b.files);
  return a.pieces == b.pieces && a.model == b.model && same_files;
}

bool same_columns(const DatasetSchema& a, const DatasetSchema& b) {
  return std::ranges::equal(a.columns, b.columns, [](const ColumnSchema& x, const ColumnSchema& y) {
    return x.name == y.name && x.kind == y.kind && x.categories == y.categories &&
           x.offset == y.offset;
  });
}

}  // namespace

Result<AlignedRows> AlignedRows::align(const DatasetSchema& model, const DatasetSchema& data,
                                       const Partition& rows) {
  if (Status s = check(model, data, rows); !s.ok()) return std::move(s).error();
  AlignedRows out;
  out.view_ = rows;
  if (model.kind == DatasetSchema::Kind::kTabular && !same_columns(model, data)) {
    out.ignored_columns_ = other_columns(model, data);
    out.own_.numeric = pick_numeric(model, data, rows);
    out.own_.category = pick_categories(model, data, rows);
    out.view_.numeric = out.own_.numeric;
    out.view_.category = out.own_.category;
  }
  if (model.kind == DatasetSchema::Kind::kText && !same_tokens(model.text, data.text)) {
    out.own_.tokens =
        is_subword(model.text.tokenizer) || model.text.tokenizer == TokenizerKind::kPretrained
            ? recut_tokens(model.text, data.text, rows.tokens)
            : map_tokens(model.text, data.text, rows.tokens);
    out.view_.tokens = out.own_.tokens;
    if (model.stream()) out.view_.rows = std::ssize(out.view_.tokens);
  }
  if (!model.stream() && model.target.classes != data.target.classes) {
    const std::vector<int32_t> codes = codes_of(data.target.classes, model.target.classes);
    for (const int32_t label : rows.target_class) {
      out.own_classes_.push_back(codes[static_cast<size_t>(label)]);
    }
    out.view_.target_class = out.own_classes_;
  }
  if (model.target.offset != data.target.offset) {
    const double shift = data.target.offset - model.target.offset;
    for (const float target : rows.target_numeric) {
      out.own_numbers_.push_back(static_cast<float>(static_cast<double>(target) + shift));
    }
    out.view_.target_numeric = out.own_numbers_;
  }
  return out;
}

}  // namespace trainyard
