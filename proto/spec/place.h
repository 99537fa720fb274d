// proto/spec/place.h: where in a spec a field belongs, for one that was written elsewhere.
#pragma once

#include <google/protobuf/descriptor.h>

#include <string>

namespace trainyard::spec {

/// "recipe.epochs"; without a path the name alone.
std::string child(const std::string& path, const std::string& name);

/// Whether other tools call the field so.
bool has_other_name(const google::protobuf::FieldDescriptor& field, const std::string& name);

/// Where below a message there is a field of this name, or one that others name so; the nearest.
/// Empty: nowhere. `in_choices`: also in what the message itself is a choice of, such as models;
/// further down nobody knows which one is meant.
std::string place_of(const google::protobuf::Descriptor& type, const std::string& key,
                     const std::string& path, bool in_choices);

/// The refusal of `key`, which is no field of the message at `path`: "unknown field, did you mean
/// 'epochs'?". `root`, at `root_path`, is the whole of what is read.
std::string unknown_field(const google::protobuf::Descriptor& type, const std::string& key,
                          const std::string& path, const google::protobuf::Descriptor& root,
                          const std::string& root_path);

}  // namespace trainyard::spec
