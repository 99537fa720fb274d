#include "proto/convert/data.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/reflection.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>

#include "src/base/join.h"
#include "src/base/violations.h"
#include "src/data/limits.h"
#include "src/data/statistics.h"

namespace trainyard {
namespace {

constexpr std::array<std::pair<v1::ImagesFormat::Resize, ResizeMode>, 3> kResizes = {
    {{v1::ImagesFormat::STRETCH, ResizeMode::kStretch},
     {v1::ImagesFormat::CROP, ResizeMode::kCrop},
     {v1::ImagesFormat::PAD, ResizeMode::kPad}}};

std::optional<ResizeMode> to_resize(v1::ImagesFormat::Resize resize) {
  for (const auto& [wire, mode] : kResizes) {
    if (wire == resize) return mode;
  }
  return std::nullopt;
}

using Roles = google::protobuf::RepeatedField<int>;
using Sources = v1::DatasetFormat::Sources;

v1::DatasetSource::Role to_role_number(int role) {
  return static_cast<v1::DatasetSource::Role>(role);
}

bool holds(const Roles& roles, v1::DatasetSource::Role role) {
  return std::ranges::find(roles, role) != roles.end();
}

/// Returns the field of the format that the spec sets, or null.
const google::protobuf::FieldDescriptor* format_field(const v1::DatasetSpec& spec) {
  return spec.GetReflection()->GetOneofFieldDescriptor(
      spec, v1::DatasetSpec::descriptor()->FindOneofByName("format"));
}

/// Returns the source alternative of the format that the spec uses: the first one with a role that
/// the spec has, else the last.
const Sources& sources_of(const v1::DatasetSpec& spec) {
  const auto& sets = format_field(spec)->options().GetExtension(v1::dataset_format).sources();
  for (const Sources& set : sets) {
    for (const v1::DatasetSource& source : spec.sources()) {
      if (holds(set.train(), source.role()) || holds(set.test(), source.role())) return set;
    }
  }
  return *sets.rbegin();
}

/// Returns the names of the roles, such as "DATA or TEST".
std::string role_names(const Sources& set) {
  std::vector<std::string> names;
  for (const int role : set.train()) names.push_back(v1::DatasetSource::Role_Name(role));
  for (const int role : set.test()) names.push_back(v1::DatasetSource::Role_Name(role));
  for (const int role : set.others()) names.push_back(v1::DatasetSource::Role_Name(role));
  return joined(names);
}

void check_roles(const v1::DatasetSpec& spec, Violations& violations) {
  const Sources& set = sources_of(spec);
  const auto count = [&spec](int role) {
    return std::ranges::count(spec.sources(), to_role_number(role), &v1::DatasetSource::role);
  };
  for (int i = 0; i < spec.sources_size(); ++i) {
    const auto role = spec.sources(i).role();
    const std::string field = "spec.sources[" + std::to_string(i) + "].role";
    if (!holds(set.train(), role) && !holds(set.test(), role) && !holds(set.others(), role)) {
      violations.add("FIELD_UNSUPPORTED", field,
                     "does not belong to this format, expected " + role_names(set));
    } else if (count(role) > 1) {
      violations.add("FIELD_DUPLICATE", field, to_role(role) + " is given more than once");
    }
  }
  for (const int role : set.train()) {
    if (count(role) > 0) continue;
    violations.add("FIELD_REQUIRED", "spec.sources",
                   "has no source with role " + to_role(to_role_number(role)));
  }
  const auto given = std::ranges::count_if(set.test(), [&](int role) { return count(role) > 0; });
  if (given != 0 && given != set.test_size()) {
    std::string names;
    for (const int role : set.test()) {
      names += (names.empty() ? "" : " and ") + to_role(to_role_number(role));
    }
    violations.add("FIELD_REQUIRED", "spec.sources",
                   "has one of " + names + "; expected both or neither");
  }
}

std::string tokenizer_name(v1::Tokenizer tokenizer, std::string_view fallback,
                           std::string_view field, std::string_view accepted,
                           Violations& violations) {
  if (tokenizer == v1::TOKENIZER_UNSPECIFIED) return std::string(fallback);
  std::string name = v1::Tokenizer_Name(tokenizer);
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  if (name.empty() || accepted.find(name) == std::string_view::npos) {
    violations.add("FIELD_UNSUPPORTED", std::string(field),
                   (name.empty() ? std::to_string(tokenizer) : name) +
                       " is not supported here, expected " + std::string(accepted));
  }
  return name;
}

/// Reads vocabulary_size from a format into its options. `sized` lists the tokenizers that have a
/// size, for messages.
template <typename Format, typename Options>
void read_vocabulary_size(const Format& format, const std::string& field, const std::string& sized,
                          Options& out, Violations& violations) {
  if (!format.has_vocabulary_size()) return;
  const std::optional<TokenizerKind> kind = find_tokenizer(out.tokenizer);
  if (kind && !is_sized(*kind)) {
    violations.add("FIELD_UNUSED", field + ".vocabulary_size",
                   "has no effect here; remove it or choose tokenizer: " + sized);
  }
  out.vocabulary_size = format.vocabulary_size();
}

/// Returns whether the sources have the vocabulary of a pretrained model's tokenizer.
bool has_tokenizer(const v1::DatasetSpec& spec) {
  return std::ranges::any_of(spec.sources(), [](const v1::DatasetSource& source) {
    return source.role() == v1::DatasetSource::TOKENIZER ||
           source.role() == v1::DatasetSource::TOKENIZER_JSON ||
           source.role() == v1::DatasetSource::TOKENIZER_MODEL ||
           source.role() == v1::DatasetSource::TEKKEN_JSON;
  });
}

/// Refuses the field by which spec files name a tokenizer's files.
void refuse_tokenizer_path(const std::string& path, const std::string& field,
                           Violations& violations) {
  if (path.empty()) return;
  violations.add("FIELD_UNSUPPORTED", field,
                 "names files only in spec files; expected sources with the roles from TOKENIZER "
                 "on");
}

/// Reads the settings that turn rows of text into tokens, which CsvFormat, JsonlFormat and
/// TextFilesFormat have.
template <typename Format, typename Options>
void read_row_text(const Format& format, const std::string& field, Options& out,
                   Violations& violations) {
  out.tokenizer = tokenizer_name(format.tokenizer(), "word", field + ".tokenizer",
                                 "word, char, byte, bpe or unigram", violations);
  read_vocabulary_size(format, field, "word, bpe or unigram", out, violations);
  if (format.has_max_length()) out.max_length = format.max_length();
}

void read_text(const v1::TextFormat& text, TextOptions& out, Violations& violations) {
  out.tokenizer = tokenizer_name(text.tokenizer(), "char", "spec.text.tokenizer",
                                 "char, byte, bpe or unigram", violations);
  read_vocabulary_size(text, "spec.text", "bpe or unigram", out, violations);
  out.test_share = text.test_share();
  out.field = text.field();
  out.end_token = text.has_end_token() ? text.end_token() : !text.field().empty();
}

std::string target_kind_name(v1::CsvFormat::TargetKind kind, const std::string& field,
                             Violations& violations) {
  switch (kind) {
    case v1::CsvFormat::TARGET_KIND_UNSPECIFIED:
      return "";
    case v1::CsvFormat::CLASS:
      return "class";
    case v1::CsvFormat::NUMERIC:
      return "numeric";
    default:
      violations.add("FIELD_UNSUPPORTED", field,
                     std::to_string(kind) + " is not known, expected class or numeric");
      return "";
  }
}

std::string date_order_name(v1::CsvFormat::DateOrder order, const std::string& field,
                            Violations& violations) {
  switch (order) {
    case v1::CsvFormat::DATE_ORDER_UNSPECIFIED:
      return "";
    case v1::CsvFormat::DAY_FIRST:
      return "day_first";
    case v1::CsvFormat::MONTH_FIRST:
      return "month_first";
    default:
      violations.add("FIELD_UNSUPPORTED", field,
                     std::to_string(order) + " is not known, expected day_first or month_first");
      return "";
  }
}

/// Reads the settings of rows of text that the tokenizer of a pretrained model reads.
template <typename Format>
void read_pretrained_text(const Format& table, const std::string& field, CsvOptions& out,
                          Violations& violations) {
  out.tokenizer = name_of(TokenizerKind::kPretrained);
  if (table.has_max_length()) out.max_length = table.max_length();
  const auto unused = [&](bool given, const char* name) {
    if (!given) return;
    violations.add("FIELD_UNUSED", field + name,
                   "has no effect with the tokenizer of a pretrained model; remove it");
  };
  unused(table.tokenizer() != v1::TOKENIZER_UNSPECIFIED, ".tokenizer");
  unused(table.has_vocabulary_size(), ".vocabulary_size");
}

/// Reads the fields that CsvFormat and JsonlFormat have in common.
template <typename Format>
void read_table(const v1::DatasetSpec& spec, const Format& table, const std::string& field,
                CsvOptions& out, Violations& violations) {
  refuse_tokenizer_path(table.tokenizer_of(), field + ".tokenizer_of", violations);
  if (table.target().empty()) {
    violations.add("FIELD_REQUIRED", field + ".target",
                   "is missing, expected the name of the column to predict");
  }
  out.target = table.target();
  out.target_kind = target_kind_name(table.target_kind(), field + ".target_kind", violations);
  out.categorical.assign(table.categorical().begin(), table.categorical().end());
  out.ignore.assign(table.ignore().begin(), table.ignore().end());
  out.date.assign(table.date().begin(), table.date().end());
  out.group = table.group();
  out.time = table.time();
  out.text.assign(table.text().begin(), table.text().end());
  out.missing.assign(table.missing().begin(), table.missing().end());
  out.numbers.assign(table.numbers().begin(), table.numbers().end());
  out.date_order = date_order_name(table.date_order(), field + ".date_order", violations);
  switch (table.missing_target()) {
    case v1::CsvFormat::MISSING_TARGET_UNSPECIFIED:
    case v1::CsvFormat::REFUSE:
      break;
    case v1::CsvFormat::SKIP:
      out.missing_target = "skip";
      break;
    default:
      violations.add(
          "FIELD_UNSUPPORTED", field + ".missing_target",
          std::to_string(table.missing_target()) + " is not known, expected refuse or skip");
  }
  if (!out.text.empty()) {
    return has_tokenizer(spec) ? read_pretrained_text(table, field, out, violations)
                               : read_row_text(table, field, out, violations);
  }
  if (has_tokenizer(spec)) {
    violations.add(
        "FIELD_UNUSED", "spec.sources",
        "has a tokenizer, which has no effect here; remove it or set " + field + ".text");
  }
  const auto unused = [&](bool given, const char* name) {
    if (!given) return;
    violations.add("FIELD_UNUSED", field + name,
                   "has no effect here; remove it or set " + field + ".text");
  };
  unused(table.tokenizer() != v1::TOKENIZER_UNSPECIFIED, ".tokenizer");
  unused(table.has_vocabulary_size(), ".vocabulary_size");
  unused(table.has_max_length(), ".max_length");
}

void read_csv(const v1::DatasetSpec& spec, CsvOptions& out, Violations& violations) {
  const v1::CsvFormat& csv = spec.csv();
  if (csv.has_header()) out.header = csv.header();
  if (csv.delimiter().size() > 1) {
    violations.add("FIELD_OUT_OF_RANGE", "spec.csv.delimiter",
                   "has several bytes, expected one, such as ',' or ';'");
  } else if (!csv.delimiter().empty()) {
    out.delimiter = csv.delimiter()[0];
  }
  out.image.assign(csv.image().begin(), csv.image().end());
  out.decimal = csv.decimal();
  out.thousands = csv.thousands();
  read_table(spec, csv, "spec.csv", out, violations);
}

void set_numbers(const NumberStatistics& s, v1::DatasetSchema::Numbers& out) {
  out.set_min(s.min);
  out.set_max(s.max);
  out.set_mean(s.mean);
  out.set_std(s.std);
}

void add_statistics(const DatasetSchema& schema, v1::DatasetSchema& out) {
  const DatasetStatistics& s = *schema.statistics;
  size_t numeric = 0, categorical = 0;
  for (v1::DatasetSchema::Column& column : *out.mutable_columns()) {
    if (column.categorical()) {
      for (const int64_t count : s.categories[categorical]) column.add_category_counts(count);
      ++categorical;
    } else if (!column.text()) {
      if (s.numeric[numeric]) set_numbers(*s.numeric[numeric], *column.mutable_numbers());
      ++numeric;
    }
  }
  const auto listed = std::min<std::ptrdiff_t>(std::ssize(s.classes), kClassesListedMax);
  out.mutable_class_counts()->Add(s.classes.begin(), s.classes.begin() + listed);
  if (s.target) set_numbers(*s.target, *out.mutable_target_numbers());
  for (const NumberStatistics& channel : s.channels) set_numbers(channel, *out.add_channels());
  if (s.tokens_per_row) {
    set_numbers(*s.tokens_per_row, *out.mutable_text()->mutable_tokens_per_row());
  }
}

void check_seed(bool has_seed, double test_share, const std::string& format,
                Violations& violations) {
  if (!has_seed || test_share != 0) return;
  violations.add("FIELD_UNUSED", "spec." + format + ".seed",
                 "has no effect here; remove it or set spec." + format + ".test_share");
}

void read_images(const v1::ImagesFormat& images, ImagesOptions& out, Violations& violations) {
  using Images = v1::ImagesFormat;
  out.size.assign(images.size().begin(), images.size().end());
  if (images.resize() != Images::RESIZE_UNSPECIFIED) {
    const std::optional<ResizeMode> mode = to_resize(images.resize());
    if (!mode) {
      violations.add("FIELD_UNSUPPORTED", "spec.images.resize",
                     std::to_string(images.resize()) +
                         " is not known, expected stretch, crop or "
                         "pad");
    } else if (out.size.empty()) {
      violations.add("FIELD_UNUSED", "spec.images.resize",
                     "has no effect here; remove it or set spec.images.size");
    } else {
      out.resize = name_of(*mode);
    }
  }
  if (images.has_channels() && images.channels() != 1 && images.channels() != 3) {
    violations.add("FIELD_OUT_OF_RANGE", "spec.images.channels",
                   std::to_string(images.channels()) + ", expected 1 (gray) or 3 (color)");
  }
  switch (images.damaged()) {
    case Images::DAMAGED_UNSPECIFIED:
    case Images::REFUSE:
      break;
    case Images::SKIP:
      out.damaged = "skip";
      break;
    default:
      violations.add("FIELD_UNSUPPORTED", "spec.images.damaged",
                     std::to_string(images.damaged()) + " is not known, expected refuse or skip");
  }
  out.channels = images.channels();
  out.labels = images.labels();
  out.test_share = images.test_share();
  out.seed = images.seed();
  check_seed(images.has_seed(), out.test_share, "images", violations);
}

void read_arrays(const v1::DatasetSpec& spec, ArraysOptions& out, Violations& violations) {
  const v1::ArraysFormat& arrays = spec.arrays();
  const bool one_file = holds(sources_of(spec).train(), v1::DatasetSource::DATA);
  const auto read_name = [&](const std::string& given, const char* field, std::string& name) {
    if (given.empty()) return;
    name = given;
    if (!one_file) {
      violations.add("FIELD_UNUSED", field,
                     "has no effect with NPY files, which hold one array each; remove it");
    }
  };
  read_name(arrays.inputs(), "spec.arrays.inputs", out.inputs);
  read_name(arrays.targets(), "spec.arrays.targets", out.targets);
  out.target_kind = target_kind_name(arrays.target_kind(), "spec.arrays.target_kind", violations);
  out.test_share = arrays.test_share();
  out.seed = arrays.seed();
  check_seed(arrays.has_seed(), out.test_share, "arrays", violations);
}

void read_text_files(const v1::TextFilesFormat& files, TextFilesOptions& out,
                     Violations& violations) {
  read_row_text(files, "spec.text_files", out, violations);
  out.test_share = files.test_share();
  out.seed = files.seed();
  check_seed(files.has_seed(), out.test_share, "text_files", violations);
}

std::string loss_name(v1::DocumentsFormat::Loss loss, Violations& violations) {
  switch (loss) {
    case v1::DocumentsFormat::LOSS_UNSPECIFIED:
    case v1::DocumentsFormat::ANSWERS:
      return "answers";
    case v1::DocumentsFormat::ALL:
      return "all";
    default:
      violations.add("FIELD_UNSUPPORTED", "spec.documents.loss",
                     std::to_string(loss) + " is not known, expected answers or all");
      return "answers";
  }
}

void read_documents(const v1::DatasetSpec& spec, DocumentsOptions& out, Violations& violations) {
  const v1::DocumentsFormat& documents = spec.documents();
  refuse_tokenizer_path(documents.tokenizer(), "spec.documents.tokenizer", violations);
  if (!has_tokenizer(spec)) {
    violations.add("FIELD_REQUIRED", "spec.sources",
                   "has no tokenizer, expected a source with one of the roles TOKENIZER, "
                   "TOKENIZER_JSON, TOKENIZER_MODEL and TEKKEN_JSON");
  }
  out.chat_template = documents.template_();
  out.loss = loss_name(documents.loss(), violations);
  if (documents.has_end_token()) out.end_token = documents.end_token();
  out.test_share = documents.test_share();
  out.seed = documents.seed();
  check_seed(documents.has_seed(), out.test_share, "documents", violations);
}

/// The functions that read each format's options. Formats that are not listed have no options.
struct OptionsReader {
  std::string_view format;
  void (*read)(const v1::DatasetSpec& spec, IngestRequest& request, Violations& violations);
};
constexpr std::array<OptionsReader, 7> kOptionsReaders = {{
    {"csv", [](const auto& spec, auto& to, auto& problems) { read_csv(spec, to.csv, problems); }},
    {"jsonl",
     [](const auto& spec, auto& to, auto& problems) {
       to.csv.json_lines = true;
       read_table(spec, spec.jsonl(), "spec.jsonl", to.csv, problems);
     }},
    {"text",
     [](const auto& spec, auto& to, auto& problems) { read_text(spec.text(), to.text, problems); }},
    {"text_files",
     [](const auto& spec, auto& to, auto& problems) {
       read_text_files(spec.text_files(), to.text_files, problems);
     }},
    {"images", [](const auto& spec, auto& to,
                  auto& problems) { read_images(spec.images(), to.images, problems); }},
    {"arrays",
     [](const auto& spec, auto& to, auto& problems) { read_arrays(spec, to.arrays, problems); }},
    {"documents", [](const auto& spec, auto& to,
                     auto& problems) { read_documents(spec, to.documents, problems); }},
}};

constexpr int kPiecesShown = 256;

v1::Tokenizer to_proto(TokenizerKind kind) {
  switch (kind) {
    case TokenizerKind::kByte:
      return v1::BYTE;
    case TokenizerKind::kChar:
      return v1::CHAR;
    case TokenizerKind::kWord:
      return v1::WORD;
    case TokenizerKind::kBpe:
      return v1::BPE;
    case TokenizerKind::kUnigram:
      return v1::UNIGRAM;
    case TokenizerKind::kPretrained:
      return v1::PRETRAINED;
  }
  return v1::TOKENIZER_UNSPECIFIED;
}

void add_text(const TextSchema& text, v1::DatasetSchema::Text& out) {
  out.set_tokenizer(to_proto(text.tokenizer));
  out.set_vocabulary_size(text.vocabulary_size());
  out.set_max_length(text.max_length);
  // The first 256 pieces of SentencePiece stand for bytes and are not informative, so they are
  // skipped.
  const size_t first = is_subword(text.tokenizer) ? 256 : 0;
  for (size_t i = first; i < text.pieces.size() && out.pieces_size() < kPiecesShown; ++i) {
    out.add_pieces(text.pieces[i]);
  }
}

void add_documents(const DocumentsSchema& documents, v1::DatasetSchema::Documents& out) {
  out.set_train_tokens(documents.train.tokens());
  out.set_train_counted(documents.train.counted);
  out.set_test_tokens(documents.test.tokens());
  out.set_test_counted(documents.test.counted);
  set_numbers(measure_lengths(documents.train), *out.mutable_lengths());
  out.set_length_half(documents.train.quantile(0.5));
  out.set_length_90(documents.train.quantile(0.9));
  out.set_length_99(documents.train.quantile(0.99));
  out.set_template_(documents.chat_template);
}

}  // namespace

std::string to_role(v1::DatasetSource::Role role) {
  std::string name = v1::DatasetSource::Role_Name(role);
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return name;
}

Result<IngestRequest> to_ingest_request(const v1::DatasetSpec& spec,
                                        std::span<const std::filesystem::path> paths) {
  TRAINYARD_CHECK(paths.size() == static_cast<size_t>(spec.sources_size()), "one path per source");
  constexpr int kSourcesMax = 16;
  if (spec.sources_size() < 1 || spec.sources_size() > kSourcesMax) {
    return field_error("FIELD_OUT_OF_RANGE", "spec.sources",
                       std::to_string(spec.sources_size()) + " sources given, expected 1..16");
  }
  Violations violations;
  IngestRequest request;
  const google::protobuf::FieldDescriptor* format = format_field(spec);
  if (format == nullptr) {
    std::vector<std::string> names;
    const auto* formats = v1::DatasetSpec::descriptor()->FindOneofByName("format");
    for (int i = 0; i < formats->field_count(); ++i) names.push_back(formats->field(i)->name());
    return field_error("FIELD_REQUIRED", "spec.format", "is missing, expected " + joined(names));
  }
  request.format = format->name();
  const auto reader = std::ranges::find(kOptionsReaders, request.format, &OptionsReader::format);
  if (reader != kOptionsReaders.end()) {
    reader->read(spec, request, violations);
  } else {
    TRAINYARD_CHECK(format->message_type()->field_count() == 0,
                    "nothing reads the options of " + request.format);
  }
  check_roles(spec, violations);
  if (!violations.empty()) return violations.to_error();
  for (int i = 0; i < spec.sources_size(); ++i) {
    const v1::DatasetSource& source = spec.sources(i);
    request.sources.push_back({to_role(source.role()), paths[static_cast<size_t>(i)],
                               source.sha256(), source.filename()});
  }
  return request;
}

v1::DatasetSchema to_proto(const DatasetSchema& schema) {
  v1::DatasetSchema out;
  for (const ColumnSchema& column : schema.columns) {
    auto* c = out.add_columns();
    c->set_name(column.name);
    c->set_categorical(column.kind == ColumnSchema::Kind::kCategorical);
    for (const std::string& category : column.categories) c->add_categories(category);
    c->set_missing_count(column.missing_count);
    c->set_text(column.kind == ColumnSchema::Kind::kText);
    c->set_date(!column.date.empty());
  }
  for (const int64_t d : schema.image.dims()) out.add_image(d);
  out.set_target(schema.target.name);
  out.set_classification(schema.target.kind == TargetSchema::Kind::kClass);
  for (const std::string& name : schema.target.classes) {
    if (out.classes_size() == kClassesListedMax) break;
    out.add_classes(name);
  }
  out.set_class_count(std::ssize(schema.target.classes));
  out.set_train_rows(schema.train_rows);
  out.set_test_rows(schema.test_rows);
  for (const auto& [wire, mode] : kResizes) {
    if (mode == schema.resize) out.set_resize(wire);
  }
  out.set_skipped_files(schema.skipped_files);
  if (schema.kind == DatasetSchema::Kind::kText) add_text(schema.text, *out.mutable_text());
  if (schema.documents) add_documents(*schema.documents, *out.mutable_documents());
  if (schema.statistics) add_statistics(schema, out);
  out.set_skipped_rows(schema.skipped_rows);
  for (const DataWarning& warning : schema.warnings) {
    v1::DataWarning* w = out.add_warnings();
    w->set_key(warning.key);
    w->mutable_columns()->Add(warning.columns.begin(), warning.columns.end());
    w->set_count(warning.count);
    w->set_message(warning.message);
  }
  return out;
}

}  // namespace trainyard
