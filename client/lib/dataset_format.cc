#include "client/lib/dataset_format.h"

#include <algorithm>
#include <cctype>

namespace trainyard::client {
namespace {

using Sources = v1::DatasetFormat::Sources;

/// True if any file of such sources, named one by one, is given.
bool names_files(const v1::DatasetFile& file, const Sources& sources) {
  if (sources.named().empty()) return false;
  const auto given = [&](int role) {
    return !text_at(file, file_field(static_cast<v1::DatasetSource::Role>(role))).empty();
  };
  return std::ranges::any_of(sources.train(), given) || std::ranges::any_of(sources.test(), given);
}

}  // namespace

const Sources* DatasetFormat::at_path() const {
  const auto it =
      std::ranges::find_if(about.sources(), [](const Sources& s) { return s.named().empty(); });
  return it == about.sources().end() ? nullptr : &*it;
}

bool DatasetFormat::is_given(const v1::DatasetFile& file) const {
  const auto* of_file = file.GetDescriptor()->FindFieldByName(name());
  return of_file != nullptr && file.GetReflection()->HasField(file, of_file);
}

const std::vector<DatasetFormat>& dataset_formats() {
  static const std::vector<DatasetFormat> formats = [] {
    std::vector<DatasetFormat> all;
    const auto* oneof = v1::DatasetSpec::descriptor()->FindOneofByName("format");
    for (int i = 0; i < oneof->field_count(); ++i) {
      const auto* field = oneof->field(i);
      all.push_back({field, field->options().GetExtension(v1::dataset_format)});
    }
    return all;
  }();
  return formats;
}

const DatasetFormat& format_of(const v1::DatasetFile& file) {
  for (const DatasetFormat& format : dataset_formats()) {
    if (format.is_given(file)) return format;
  }
  for (const DatasetFormat& format : dataset_formats()) {
    for (const Sources& sources : format.about.sources()) {
      if (names_files(file, sources)) return format;
    }
  }
  return dataset_formats().front();
}

std::vector<const DatasetFormat*> path_formats(const v1::DatasetFile& file) {
  std::vector<const DatasetFormat*> formats;
  for (const DatasetFormat& format : dataset_formats()) {
    const bool elsewhere = std::ranges::any_of(
        format.about.sources(), [&](const Sources& s) { return names_files(file, s); });
    if (format.at_path() != nullptr && format.is_given(file) && !elsewhere) {
      formats.push_back(&format);
    }
  }
  return formats;
}

std::vector<const Sources*> named_sources(const v1::DatasetFile& file) {
  std::vector<const Sources*> all;
  for (const DatasetFormat& format : dataset_formats()) {
    for (const Sources& sources : format.about.sources()) {
      if (names_files(file, sources)) all.push_back(&sources);
    }
  }
  return all;
}

bool has_path(const v1::DatasetFile& file) {
  return !file.path().empty() || !file.test_path().empty() || !file.server_path().empty() ||
         !file.server_test_path().empty() || !path_formats(file).empty();
}

bool brings_data(const v1::DatasetFile& file) {
  return has_path(file) || !named_sources(file).empty();
}

std::string file_field(v1::DatasetSource::Role role) {
  if (role == v1::DatasetSource::DATA) return "path";
  if (role == v1::DatasetSource::TEST) return "test_path";
  std::string name = v1::DatasetSource::Role_Name(role);
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  return name;
}

std::string text_at(const v1::DatasetFile& file, const std::string& field) {
  const auto* of_file = file.GetDescriptor()->FindFieldByName(field);
  return of_file == nullptr ? "" : file.GetReflection()->GetString(file, of_file);
}

}  // namespace trainyard::client
