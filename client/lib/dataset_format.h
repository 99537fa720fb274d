// client/lib/dataset_format.h: the formats of datasets as spec files write them, read from the
// options of DatasetSpec's fields: a format added there works in spec files immediately.
#pragma once

#include <google/protobuf/descriptor.h>

#include <string>
#include <vector>

#include "trainyard/v1/dataset_service.pb.h"
#include "trainyard/v1/spec_file.pb.h"

namespace trainyard::client {

struct DatasetFormat {
  const google::protobuf::FieldDescriptor* field;  // of DatasetSpec
  v1::DatasetFormat about;

  const std::string& name() const { return field->name(); }
  /// The sources that `path` names, or null.
  const v1::DatasetFormat::Sources* at_path() const;
  /// Whether a file has the field of this name.
  bool is_given(const v1::DatasetFile& file) const;
};

/// In the order of DatasetSpec.format.
const std::vector<DatasetFormat>& dataset_formats();

/// The format that a file names, directly or through its files; the first one if it names none.
const DatasetFormat& format_of(const v1::DatasetFile& file);

/// Formats that the file names and whose data is at `path`.
std::vector<const DatasetFormat*> path_formats(const v1::DatasetFile& file);
/// Sources whose files are named one by one, of which the file has some.
std::vector<const v1::DatasetFormat::Sources*> named_sources(const v1::DatasetFile& file);
/// True if the file has any field for data at `path`.
bool has_path(const v1::DatasetFile& file);
/// True if the file provides data; otherwise it only names what the server has.
bool brings_data(const v1::DatasetFile& file);

/// The field of DatasetFile that holds a role's file: "path", "test_path", "train_images".
std::string file_field(v1::DatasetSource::Role role);
/// The content of a text field of the file; empty if there is no such field.
std::string text_at(const v1::DatasetFile& file, const std::string& field);

}  // namespace trainyard::client
