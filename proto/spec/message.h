// proto/spec/message.h: reads a tree of Value into a protobuf message, by reflection.
//
// The .proto files are the only list of fields: a field added there can be written in spec files by
// its name, and enum values in lower case. Everything else is a problem with a position: unknown
// fields (with the most similar name, or the place where the name belongs), wrong types, numbers
// out of a field's range, two members of a oneof. Rules beyond names and types are options of the
// fields (proto/trainyard/v1/spec_options.proto).
#pragma once

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <string>
#include <vector>

#include "proto/spec/document.h"

namespace trainyard::spec {

/// Fills `message` from a map and adds all faults to `problems`. `path` precedes field names in
/// problems; it is empty at the root.
void read_message(const Value& value, const std::string& path, google::protobuf::Message& message,
                  std::vector<Problem>& problems);

// Each of the following functions replaces one value in `message` by `value`; null removes it.
// Problems name `path`. If there is a problem, the message is incomplete.

void replace_field(const Value& value, const std::string& path,
                   const google::protobuf::FieldDescriptor& field,
                   google::protobuf::Message& message, std::vector<Problem>& problems);
/// Replaces an existing item of a list. Null is a problem.
void replace_item(const Value& value, const std::string& path,
                  const google::protobuf::FieldDescriptor& field, int index,
                  google::protobuf::Message& message, std::vector<Problem>& problems);
/// Sets or adds the value of a key in a map.
void replace_entry(const Value& value, const std::string& path,
                   const google::protobuf::FieldDescriptor& field, const std::string& key,
                   google::protobuf::Message& message, std::vector<Problem>& problems);

/// Returns the values of an enum as specs write them: in lower case, without the unspecified value.
std::vector<std::string> enum_names(const google::protobuf::EnumDescriptor& type);

struct RequiredField {
  const google::protobuf::FieldDescriptor* field;
  std::string says;  // the error message if it is missing
};
/// Returns the fields that specs must give. read_message() does not check them; its caller does.
std::vector<RequiredField> required_fields(const google::protobuf::Descriptor& type);

}  // namespace trainyard::spec
