// client/lib/spec_place.h: where in a spec a field belongs, for one that was written elsewhere.
#pragma once

#include <google/protobuf/descriptor.h>

#include <string>

namespace trainyard::client {

/// "recipe.epochs"; without a path the name alone.
std::string child(const std::string& path, const std::string& name);

/// Whether other tools call the field so.
bool has_other_name(const google::protobuf::FieldDescriptor& field, const std::string& name);

/// Where below a message there is a field of this name, or one that others name so; the nearest.
/// Empty: nowhere. `in_choices`: also in what the message itself is a choice of, such as models;
/// further down nobody knows which one is meant.
std::string place_of(const google::protobuf::Descriptor& type, const std::string& key,
                     const std::string& path, bool in_choices);

}  // namespace trainyard::client
