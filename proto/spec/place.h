// proto/spec/place.h: finds where in a spec a misplaced field belongs.
#pragma once

#include <google/protobuf/descriptor.h>

#include <string>

namespace trainyard::spec {

/// Returns the path of a field, "recipe.epochs"; at the root only the name.
std::string child(const std::string& path, const std::string& name);

/// Returns whether other tools use this name for the field (option other_names).
bool has_other_name(const google::protobuf::FieldDescriptor& field, const std::string& name);

/// Returns the path of the nearest field below a message that has this name, or has it in other
/// tools; empty if there is none. With `in_choices`, also searches the alternatives of the
/// message's own oneofs, such as models; alternatives further down are never searched, because it
/// is unknown which one is meant.
std::string place_of(const google::protobuf::Descriptor& type, const std::string& key,
                     const std::string& path, bool in_choices);

/// Describes the problem that `key` is not a field of the message at `path`: "unknown field, did
/// you mean 'epochs'?". `root`, at `root_path`, is the type of the whole document.
std::string unknown_field(const google::protobuf::Descriptor& type, const std::string& key,
                          const std::string& path, const google::protobuf::Descriptor& root,
                          const std::string& root_path);

}  // namespace trainyard::spec
