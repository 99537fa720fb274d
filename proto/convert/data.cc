#include "proto/convert/data.h"

#include <algorithm>
#include <string>

#include "src/base/violations.h"

namespace trainyard {
namespace {

void check_roles(const v1::DatasetSpec& spec, Violations& violations) {
  const bool csv = spec.has_csv();
  const auto allowed = [csv](v1::DatasetSource::Role role) {
    const bool is_csv = role == v1::DatasetSource::DATA || role == v1::DatasetSource::TEST;
    return role != v1::DatasetSource::ROLE_UNSPECIFIED && v1::DatasetSource::Role_IsValid(role) &&
           is_csv == csv;
  };
  const auto count = [&spec](v1::DatasetSource::Role role) {
    return std::count_if(spec.sources().begin(), spec.sources().end(),
                         [role](const auto& source) { return source.role() == role; });
  };
  for (int i = 0; i < spec.sources_size(); ++i) {
    const auto role = spec.sources(i).role();
    const std::string field = "spec.sources[" + std::to_string(i) + "].role";
    if (!allowed(role)) {
      violations.add(
          "FIELD_UNSUPPORTED", field,
          "does not belong to this format, expected " +
              std::string(csv ? "DATA or TEST"
                              : "TRAIN_IMAGES, TRAIN_LABELS, TEST_IMAGES or TEST_LABELS"));
    } else if (count(role) > 1) {
      violations.add("FIELD_DUPLICATE", field, to_role(role) + " is given more than once");
    }
  }
  const auto require = [&](v1::DatasetSource::Role role) {
    if (count(role) == 0)
      violations.add("FIELD_REQUIRED", "spec.sources", "has no source with role " + to_role(role));
  };
  if (csv) {
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
  } else {
    return field_error("FIELD_REQUIRED", "spec.format", "is missing, expected csv or idx");
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
  }
  for (const int64_t d : schema.image.dims()) out.add_image(d);
  out.set_target(schema.target.name);
  out.set_classification(schema.target.kind == TargetSchema::Kind::kClass);
  for (const std::string& name : schema.target.classes) out.add_classes(name);
  out.set_train_rows(schema.train_rows);
  out.set_test_rows(schema.test_rows);
  return out;
}

}  // namespace trainyard
