// client/lib/spec_message.h: a tree of SpecValue onto a protobuf message, by reflection.
//
// The proto is the only list of fields: a field added there can be written in spec files at once,
// by its name, enum values in lower case. Everything else is a problem with a position: unknown
// fields (with the nearest name, or where the name belongs), wrong types, numbers out of a field's
// range, two members of a oneof.
#pragma once

#include <google/protobuf/message.h>

#include <string>
#include <vector>

#include "client/lib/spec_document.h"

namespace trainyard::client {

/// Fills `message` from a map, adding what is wrong to `problems` (all of it). `path` stands before
/// field names in problems, empty at the root.
void read_spec_message(const SpecValue& value, const std::string& path,
                       google::protobuf::Message& message, std::vector<SpecProblem>& problems);

}  // namespace trainyard::client
