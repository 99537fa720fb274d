// client/lib/spec_message.h: a tree of SpecValue onto a protobuf message, by reflection.
//
// The proto is the only list of fields: a field added there can be written in spec files at once,
// by its name, enum values in lower case. Everything else is a problem with a position: unknown
// fields (with the nearest name, or where the name belongs), wrong types, numbers out of a field's
// range, two members of a oneof. What names and types leave open, the options of fields say
// (proto/trainyard/v1/spec_options.proto). The Python client reads by the same rules, and
// tests/spec_cases.yaml holds both readers to the same answers.
#pragma once

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <string>
#include <vector>

#include "client/lib/spec_document.h"

namespace trainyard::client {

/// Fills `message` from a map, adding what is wrong to `problems` (all of it). `path` stands before
/// field names in problems, empty at the root.
void read_spec_message(const SpecValue& value, const std::string& path,
                       google::protobuf::Message& message, std::vector<SpecProblem>& problems);

/// Values of an enum as specs write them: in lower case, without the unspecified one.
std::vector<std::string> enum_names(const google::protobuf::EnumDescriptor& type);

struct RequiredField {
  const google::protobuf::FieldDescriptor* field;
  std::string says;  // the refusal without it
};
/// The fields that specs have to give. read_spec_message() leaves them to its caller.
std::vector<RequiredField> required_fields(const google::protobuf::Descriptor& type);

}  // namespace trainyard::client
