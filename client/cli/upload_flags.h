// client/cli/upload_flags.h: a dataset as `dataset upload` is told of it, by options instead of a
// spec file.
//
// The options are made of the formats' descriptors: each format at a path gives --<format> PATH,
// each file that is named by itself --<role> FILE, each field of a format --<field>. Several
// formats share an option of the same name. What proto/trainyard/v1/spec_options.proto calls Flag
// adds another name, the value's placeholder and the help.
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
  const spec::DatasetFormat* path_of = nullptr;  // the format whose path this is
  const spec::DatasetFormat* file_of = nullptr;  // the format of which this is one file
  std::string file;                              // the field of DatasetFile for that file
  std::vector<std::pair<const spec::DatasetFormat*, const Field*>> fields;

  // As given.
  bool on = false;
  std::optional<std::string> text;
  std::vector<std::string> texts;

  /// Whether it names data, or says how to read it. (`--inputs` does both: with --arrays, it is the
  /// name of an array.)
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
/// The dataset that the options say. Refusals name the options, in the words of spec files.
Result<v1::DatasetFile> dataset_of_flags(const UploadOptions& o);
Error nothing_to_upload();

}  // namespace trainyard::cli
