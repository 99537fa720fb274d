// client/cli/upload_flags.h: the options of `dataset upload`, which describe a dataset without a
// spec file.
//
// The options are derived from the descriptors of the formats. Each format with a path gives
// --<format> PATH, each file with a field of its own --<role> FILE, and each field of a format
// --<field>. Formats share options of the same name. The field option Flag
// (proto/trainyard/v1/spec_options.proto) can change the name and adds the value's placeholder and
// the help.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/cli/options.h"
#include "proto/spec/dataset_format.h"
#include "src/base/result.h"
#include "trainyard/v1/spec_file.pb.h"

namespace trainyard::cli {

struct UploadFlag {
  using Field = google::protobuf::FieldDescriptor;

  std::string name;  // "--text-column"
  std::string value, help;
  const spec::DatasetFormat* path_of = nullptr;  // the format whose path this option gives
  const spec::DatasetFormat* file_of = nullptr;  // the format one of whose files this option gives
  std::string file;                              // the field of DatasetFile that names this file
  std::vector<std::pair<const spec::DatasetFormat*, const Field*>> fields;

  // The values from the command line.
  bool on = false;
  std::optional<std::string> text;
  std::vector<std::string> texts;

  /// Returns whether the option names data; otherwise it says how to read data. (`--inputs` does
  /// both: with --arrays, it gives the name of an array.)
  bool is_data() const { return path_of != nullptr || file_of != nullptr; }
  bool is_given() const { return on || text || !texts.empty(); }
  const Field* field_of(const spec::DatasetFormat& format) const;
};

struct UploadOptions {
  std::string file;
  std::vector<std::string> sets;
  std::string name, test;
  bool on_server = false;
  std::vector<UploadFlag> flags;  // set by add_upload_options()
};

std::vector<UploadFlag> upload_flags();

void add_upload_options(OptionSet& options, UploadOptions& o);
/// Builds the dataset that the options describe. Errors have the wording of spec files, but name
/// options.
Result<v1::DatasetFile> dataset_of_flags(const UploadOptions& o);
Error nothing_to_upload();

}  // namespace trainyard::cli
