#include "proto/convert/data.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>

#include "src/base/violations.h"

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

void check_roles(const v1::DatasetSpec& spec, Violations& violations) {
  const bool by_data = !spec.has_idx();
  const auto allowed = [&](v1::DatasetSource::Role role) {
    if (role == v1::DatasetSource::ROLE_UNSPECIFIED || !v1::DatasetSource::Role_IsValid(role)) {
      return false;
    }
    if (role == v1::DatasetSource::TEST) return by_data && !spec.has_cifar();
    return (role == v1::DatasetSource::DATA) == by_data;
  };
  const auto count = [&spec](v1::DatasetSource::Role role) {
    return std::count_if(spec.sources().begin(), spec.sources().end(),
                         [role](const auto& source) { return source.role() == role; });
  };
  for (int i = 0; i < spec.sources_size(); ++i) {
    const auto role = spec.sources(i).role();
    const std::string field = "spec.sources[" + std::to_string(i) + "].role";
    if (!allowed(role)) {
      violations.add("FIELD_UNSUPPORTED", field,
                     "does not belong to this format, expected " +
                         std::string(spec.has_cifar() ? "DATA"
                                     : by_data        ? "DATA or TEST"
                                               : "TRAIN_IMAGES, TRAIN_LABELS, TEST_IMAGES or "
                                                 "TEST_LABELS"));
    } else if (count(role) > 1) {
      violations.add("FIELD_DUPLICATE", field, to_role(role) + " is given more than once");
    }
  }
  const auto require = [&](v1::DatasetSource::Role role) {
    if (count(role) == 0)
      violations.add("FIELD_REQUIRED", "spec.sources", "has no source with role " + to_role(role));
  };
  if (by_data) {
    require(v1::DatasetSource::DATA);
    return;
  }
  require(v1::DatasetSource::TRAIN_IMAGES);
  require(v1::DatasetSource::TRAIN_LABELS);
  if (count(v1::DatasetSource::TEST_IMAGES) != count(v1::DatasetSource::TEST_LABELS)) {
    violations.add("FIELD_REQUIRED", "spec.sources",
                   "has one of test_images and test_labels; expected both or neither");
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
                       " is not possible, expected " + std::string(accepted));
  }
  return name;
}

/// `sized`: the tokenizers that take it. Of a format and its options.
template <typename Format, typename Options>
void read_vocabulary_size(const Format& format, const char* field, const std::string& sized,
                          Options& out, Violations& violations) {
  if (!format.has_vocabulary_size()) return;
  const std::optional<TokenizerKind> kind = find_tokenizer(out.tokenizer);
  if (kind && !is_sized(*kind)) {
    violations.add("FIELD_UNUSED", field,
                   "has no effect here; remove it or choose tokenizer: " + sized);
  }
  out.vocabulary_size = format.vocabulary_size();
}

void read_csv_text(const v1::CsvFormat& csv, CsvOptions& out, Violations& violations) {
  const auto unused = [&](bool given, const char* field) {
    if (given) {
      violations.add("FIELD_UNUSED", field, "has no effect here; remove it or set spec.csv.text");
    }
  };
  out.text.assign(csv.text().begin(), csv.text().end());
  if (out.text.empty()) {
    unused(csv.tokenizer() != v1::TOKENIZER_UNSPECIFIED, "spec.csv.tokenizer");
    unused(csv.has_vocabulary_size(), "spec.csv.vocabulary_size");
    unused(csv.has_max_length(), "spec.csv.max_length");
    return;
  }
  out.tokenizer = tokenizer_name(csv.tokenizer(), "word", "spec.csv.tokenizer",
                                 "word, char, byte, bpe or unigram", violations);
  read_vocabulary_size(csv, "spec.csv.vocabulary_size", "word, bpe or unigram", out, violations);
  if (csv.has_max_length()) out.max_length = csv.max_length();
}

void read_text(const v1::TextFormat& text, TextOptions& out, Violations& violations) {
  out.tokenizer = tokenizer_name(text.tokenizer(), "char", "spec.text.tokenizer",
                                 "char, byte, bpe or unigram", violations);
  read_vocabulary_size(text, "spec.text.vocabulary_size", "bpe or unigram", out, violations);
  out.test_share = text.test_share();
}

void read_csv(const v1::CsvFormat& csv, CsvOptions& out, Violations& violations) {
  if (csv.has_header()) out.header = csv.header();
  if (csv.delimiter().size() > 1) {
    violations.add("FIELD_OUT_OF_RANGE", "spec.csv.delimiter",
                   "has several bytes, expected one, such as ',' or ';'");
  } else if (!csv.delimiter().empty()) {
    out.delimiter = csv.delimiter()[0];
  }
  if (csv.target().empty()) {
    violations.add("FIELD_REQUIRED", "spec.csv.target",
                   "is missing, expected the name of the column to learn");
  }
  out.target = csv.target();
  switch (csv.target_kind()) {
    case v1::CsvFormat::TARGET_KIND_UNSPECIFIED:
      break;
    case v1::CsvFormat::CLASS:
      out.target_kind = "class";
      break;
    case v1::CsvFormat::NUMERIC:
      out.target_kind = "numeric";
      break;
    default:
      violations.add(
          "FIELD_UNSUPPORTED", "spec.csv.target_kind",
          std::to_string(csv.target_kind()) + " is not known, expected class or numeric");
  }
  out.image.assign(csv.image().begin(), csv.image().end());
  out.categorical.assign(csv.categorical().begin(), csv.categorical().end());
  out.ignore.assign(csv.ignore().begin(), csv.ignore().end());
  read_csv_text(csv, out, violations);
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
  for (const int64_t count : s.classes) out.add_class_counts(count);
  if (s.target) set_numbers(*s.target, *out.mutable_target_numbers());
  for (const NumberStatistics& channel : s.channels) set_numbers(channel, *out.add_channels());
  if (s.tokens_per_row) {
    set_numbers(*s.tokens_per_row, *out.mutable_text()->mutable_tokens_per_row());
  }
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
                   std::to_string(images.channels()) + ", expected 1 (grey) or 3 (colour)");
  }
  out.channels = images.channels();
  out.labels = images.labels();
  out.test_share = images.test_share();
  out.seed = images.seed();
  if (images.has_seed() && out.test_share == 0) {
    violations.add("FIELD_UNUSED", "spec.images.seed",
                   "has no effect here; remove it or set spec.images.test_share");
  }
}

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
  }
  return v1::TOKENIZER_UNSPECIFIED;
}

void add_text(const TextSchema& text, v1::DatasetSchema::Text& out) {
  out.set_tokenizer(to_proto(text.tokenizer));
  out.set_vocabulary_size(text.vocabulary_size());
  out.set_max_length(text.max_length);
  // What stands for a byte tells nothing of the text: SentencePiece has those first.
  const size_t first = is_subword(text.tokenizer) ? 256 : 0;
  for (size_t i = first; i < text.pieces.size() && out.pieces_size() < kPiecesShown; ++i) {
    out.add_pieces(text.pieces[i]);
  }
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
  if (spec.has_csv()) {
    request.format = "csv";
    read_csv(spec.csv(), request.csv, violations);
  } else if (spec.has_idx()) {
    request.format = "idx";
  } else if (spec.has_text()) {
    request.format = "text";
    read_text(spec.text(), request.text, violations);
  } else if (spec.has_images()) {
    request.format = "images";
    read_images(spec.images(), request.images, violations);
  } else if (spec.has_cifar()) {
    request.format = "cifar";
  } else {
    return field_error("FIELD_REQUIRED", "spec.format",
                       "is missing, expected csv, idx, text, images or cifar");
  }
  check_roles(spec, violations);
  if (!violations.empty()) return violations.to_error();
  for (int i = 0; i < spec.sources_size(); ++i) {
    request.sources.push_back({to_role(spec.sources(i).role()), paths[static_cast<size_t>(i)]});
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
  }
  for (const int64_t d : schema.image.dims()) out.add_image(d);
  out.set_target(schema.target.name);
  out.set_classification(schema.target.kind == TargetSchema::Kind::kClass);
  for (const std::string& name : schema.target.classes) out.add_classes(name);
  out.set_train_rows(schema.train_rows);
  out.set_test_rows(schema.test_rows);
  for (const auto& [wire, mode] : kResizes) {
    if (mode == schema.resize) out.set_resize(wire);
  }
  out.set_skipped_files(schema.skipped_files);
  if (schema.kind == DatasetSchema::Kind::kText) add_text(schema.text, *out.mutable_text());
  if (schema.statistics) add_statistics(schema, out);
  return out;
}

}  // namespace trainyard
