// proto/spec/dataset_format.h: the dataset formats as spec files write them. They are read from the
// options of DatasetSpec's fields, so that a format added there also works in spec files.
#pragma once

#include <google/protobuf/descriptor.h>

#include <string>
#include <vector>

#include "proto/spec/document.h"
#include "trainyard/v1/dataset_service.pb.h"
#include "trainyard/v1/spec_file.pb.h"

namespace trainyard::spec {

struct DatasetFormat {
  const google::protobuf::FieldDescriptor* field;  // the field of DatasetSpec
  v1::DatasetFormat about;

  const std::string& name() const { return field->name(); }
  /// Returns the sources whose data `path` names, or null.
  const v1::DatasetFormat::Sources* at_path() const;
  /// Returns whether the file sets this format's field.
  bool is_given(const v1::DatasetFile& file) const;
};

/// Returns all formats, in the order of DatasetSpec.format.
const std::vector<DatasetFormat>& dataset_formats();

/// Returns the format that the file names, directly or by its files; the first format if it names
/// none.
const DatasetFormat& format_of(const v1::DatasetFile& file);

/// Returns the formats that the file names and whose data is at `path`.
std::vector<const DatasetFormat*> path_formats(const v1::DatasetFile& file);
/// Returns the sources with files named one by one, of which the file gives at least one.
std::vector<const v1::DatasetFormat::Sources*> named_sources(const v1::DatasetFile& file);
/// Returns whether the file has any field for data at `path`.
bool has_path(const v1::DatasetFile& file);
/// Returns whether the file names data; otherwise it only names a dataset on the server.
bool brings_data(const v1::DatasetFile& file);

/// One file of a dataset.
struct NamedSource {
  v1::DatasetSource::Role role;
  std::string path;
  bool on_server = false;  // true: `path` is on the server
};

/// Returns the sources that `file` gives, ordered by role; those on the server come last.
std::vector<NamedSource> sources_of(const v1::DatasetFile& file);
/// Converts `file` to the API's message, without digests: the sources in order, with their file
/// names. The fields of a .tsv file are separated by tabs unless `file` says otherwise. The files
/// of a tokenizer are not among the sources: the client finds them (tokenizer_path()).
v1::DatasetSpec dataset_spec(const v1::DatasetFile& file);

/// Returns the folder of a model or the file whose tokenizer reads the data; empty: none.
const std::string& tokenizer_path(const v1::DatasetFile& file);
/// Returns the field of DatasetFile that names it: "documents.tokenizer".
std::string tokenizer_field(const v1::DatasetFile& file);
/// Returns the roles of the files of a tokenizer in a model's folder, with their names.
const std::vector<std::pair<v1::DatasetSource::Role, std::string>>& tokenizer_files();

/// Checks what must hold for every DatasetFile, also for one built from command-line flags.
/// Positions of problems are those of the fields in `document`, which may be null.
void check_dataset_file(const v1::DatasetFile& file, const std::string& prefix,
                        const Document* document, std::vector<Problem>& problems);

/// Returns the field of DatasetFile for a role's file: "path", "test_path", "train_images".
std::string file_field(v1::DatasetSource::Role role);
/// Returns the value of a text field of the file; empty if there is no such field.
std::string text_at(const v1::DatasetFile& file, const std::string& field);

}  // namespace trainyard::spec
