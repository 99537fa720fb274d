// proto/spec/message.h: a tree of Value onto a protobuf message, by reflection.
//
// The proto is the only list of fields: a field added there can be written in spec files at once,
// by its name, enum values in lower case. Everything else is a problem with a position: unknown
// fields (with the nearest name, or where the name belongs), wrong types, numbers out of a field's
// range, two members of a oneof. What names and types leave open, the options of fields say
// (proto/trainyard/v1/spec_options.proto).
#pragma once

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <string>
#include <vector>

#include "proto/spec/document.h"

namespace trainyard::spec {

/// Fills `message` from a map, adding what is wrong to `problems` (all of it). `path` stands before
/// field names in problems, empty at the root.
void read_message(const Value& value, const std::string& path, google::protobuf::Message& message,
                  std::vector<Problem>& problems);

// Each of the following puts `value` in the place of one thing in `message`; null removes it.
// `path` is what problems name. With a problem, the message is incomplete.

void replace_field(const Value& value, const std::string& path,
                   const google::protobuf::FieldDescriptor& field,
                   google::protobuf::Message& message, std::vector<Problem>& problems);
/// An item of a list, which has it. Null is a problem.
void replace_item(const Value& value, const std::string& path,
                  const google::protobuf::FieldDescriptor& field, int index,
                  google::protobuf::Message& message, std::vector<Problem>& problems);
/// The value of a key in a map, which need not have it.
void replace_entry(const Value& value, const std::string& path,
                   const google::protobuf::FieldDescriptor& field, const std::string& key,
                   google::protobuf::Message& message, std::vector<Problem>& problems);

/// Values of an enum as specs write them: in lower case, without the unspecified one.
std::vector<std::string> enum_names(const google::protobuf::EnumDescriptor& type);

struct RequiredField {
  const google::protobuf::FieldDescriptor* field;
  std::string says;  // the refusal without it
};
/// The fields that specs have to give. read_message() leaves them to its caller.
std::vector<RequiredField> required_fields(const google::protobuf::Descriptor& type);

}  // namespace trainyard::spec
