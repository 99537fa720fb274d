// proto/spec/dataset_format.h: the formats of datasets as spec files write them, read from the
// options of DatasetSpec's fields: a format added there works in spec files immediately.
#pragma once

#include <google/protobuf/descriptor.h>

#include <string>
#include <vector>

#include "proto/spec/document.h"
#include "trainyard/v1/dataset_service.pb.h"
#include "trainyard/v1/spec_file.pb.h"

namespace trainyard::spec {

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

/// A file that is a part of a dataset.
struct NamedSource {
  v1::DatasetSource::Role role;
  std::string path;
  bool on_server = false;  // the path is on the server
};

/// The sources that `file` has, in the order of the roles.
std::vector<NamedSource> sources_of(const v1::DatasetFile& file);
/// The wire's description of `file`, without digests: the sources in order, with their file names.
/// The fields of a .tsv are separated by tabs unless the file says otherwise.
v1::DatasetSpec dataset_spec(const v1::DatasetFile& file);

/// Checks that hold for every DatasetFile, also one made from flags. Each problem's position is
/// that of the field in `document`, if there is one.
void check_dataset_file(const v1::DatasetFile& file, const std::string& prefix,
                        const Document* document, std::vector<Problem>& problems);

/// The field of DatasetFile that holds a role's file: "path", "test_path", "train_images".
std::string file_field(v1::DatasetSource::Role role);
/// The content of a text field of the file; empty if there is no such field.
std::string text_at(const v1::DatasetFile& file, const std::string& field);

}  // namespace trainyard::spec
