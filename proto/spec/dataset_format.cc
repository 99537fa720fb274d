#include "proto/spec/dataset_format.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "src/base/folder_files.h"
#include "src/base/text.h"
#include "trainyard/v1/spec_options.pb.h"

namespace trainyard::spec {
namespace {

using Sources = v1::DatasetFormat::Sources;

/// Returns whether the file gives any of the sources that are named one by one.
bool names_files(const v1::DatasetFile& file, const Sources& sources) {
  if (sources.named().empty()) return false;
  const auto given = [&](int role) {
    return !text_at(file, file_field(static_cast<v1::DatasetSource::Role>(role))).empty();
  };
  return std::ranges::any_of(sources.train(), given) || std::ranges::any_of(sources.test(), given);
}

/// Sets text fields that are missing to the defaults for the path's ending; for example a .tsv file
/// is separated by tabs.
void fill_by_ending(std::string_view path, google::protobuf::Message& options) {
  constexpr std::array<std::string_view, 1> kGzip = {".gz"};
  if (has_ending(path, kGzip)) path.remove_suffix(kGzip[0].size());
  const auto& type = *options.GetDescriptor();
  const auto& reflection = *options.GetReflection();
  for (int i = 0; i < type.field_count(); ++i) {
    const v1::ByEnding& rule = type.field(i)->options().GetExtension(v1::by_ending);
    if (rule.ending().empty() || reflection.HasField(options, type.field(i))) continue;
    const std::array<std::string_view, 1> endings = {rule.ending()};
    if (has_ending(path, endings)) reflection.SetString(&options, type.field(i), rule.value());
  }
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

std::vector<NamedSource> sources_of(const v1::DatasetFile& file) {
  std::vector<NamedSource> all;
  for (const bool on_server : {false, true}) {
    const auto* roles = v1::DatasetSource::Role_descriptor();
    for (int i = 1; i < roles->value_count(); ++i) {  // value 0 is "unspecified"
      const auto role = static_cast<v1::DatasetSource::Role>(roles->value(i)->number());
      std::string path = text_at(file, (on_server ? "server_" : "") + file_field(role));
      if (!path.empty()) all.push_back({role, std::move(path), on_server});
    }
  }
  return all;
}

const std::string& tokenizer_path(const v1::DatasetFile& file) {
  if (file.has_csv()) return file.csv().tokenizer_of();
  if (file.has_jsonl()) return file.jsonl().tokenizer_of();
  return file.documents().tokenizer();
}

std::string tokenizer_field(const v1::DatasetFile& file) {
  if (file.has_csv()) return "csv.tokenizer_of";
  return file.has_jsonl() ? "jsonl.tokenizer_of" : "documents.tokenizer";
}

const std::vector<std::pair<v1::DatasetSource::Role, std::string>>& tokenizer_files() {
  static const std::vector<std::pair<v1::DatasetSource::Role, std::string>> files = [] {
    std::vector<std::pair<v1::DatasetSource::Role, std::string>> all;
    const auto* roles = v1::DatasetSource::Role_descriptor();
    for (int i = 0; i < roles->value_count(); ++i) {
      const std::string& name = roles->value(i)->options().GetExtension(v1::tokenizer_file);
      if (name.empty()) continue;
      all.emplace_back(static_cast<v1::DatasetSource::Role>(roles->value(i)->number()), name);
    }
    return all;
  }();
  return files;
}

v1::DatasetSpec dataset_spec(const v1::DatasetFile& file) {
  v1::DatasetSpec spec;
  for (const NamedSource& source : sources_of(file)) {
    v1::DatasetSource& added = *spec.add_sources();
    added.set_role(source.role);
    added.set_filename(shown_name(source.path));
    if (source.on_server) added.set_server_path(source.path);
  }
  const DatasetFormat& format = format_of(file);
  google::protobuf::Message* options = spec.GetReflection()->MutableMessage(&spec, format.field);
  if (format.is_given(file)) {
    const auto* given = file.GetDescriptor()->FindFieldByName(format.name());
    options->CopyFrom(file.GetReflection()->GetMessage(file, given));
  }
  fill_by_ending(file.path().empty() ? file.server_path() : file.path(), *options);
  if (spec.has_csv()) spec.mutable_csv()->clear_tokenizer_of();
  if (spec.has_jsonl()) spec.mutable_jsonl()->clear_tokenizer_of();
  if (spec.has_documents()) spec.mutable_documents()->clear_tokenizer();
  return spec;
}

}  // namespace trainyard::spec
