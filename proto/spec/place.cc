#include "proto/spec/place.h"

#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/struct.pb.h>

#include "src/base/join.h"
#include "src/base/text.h"
#include "trainyard/v1/spec_file.pb.h"
#include "trainyard/v1/spec_options.pb.h"

namespace trainyard::spec {
namespace {

namespace pb = google::protobuf;
using Field = pb::FieldDescriptor;

std::string place_at(const pb::Descriptor& type, const std::string& key, const std::string& path,
                     int depth, bool in_choices) {
  for (int i = 0; i < type.field_count(); ++i) {
    const Field& field = *type.field(i);
    const std::string here = child(path, field.name());
    if (depth == 0) {
      if (field.name() == key || has_other_name(field, lower(key))) return here;
      continue;
    }
    if (field.cpp_type() != Field::CPPTYPE_MESSAGE || field.is_repeated()) continue;
    if (field.real_containing_oneof() != nullptr && !in_choices) continue;
    if (field.message_type() == pb::Value::descriptor()) continue;
    // a dataset is a choice too
    if (field.message_type() == v1::DatasetFile::descriptor()) continue;
    std::string place = place_at(*field.message_type(), key, here, depth - 1, false);
    if (!place.empty()) return place;
  }
  return "";
}

}  // namespace

std::string child(const std::string& path, const std::string& name) {
  return path.empty() ? name : path + "." + name;
}

bool has_other_name(const Field& field, const std::string& name) {
  const auto& options = field.options();
  for (int i = 0; i < options.ExtensionSize(v1::other_names); ++i) {
    if (options.GetExtension(v1::other_names, i) == name) return true;
  }
  return false;
}

std::string place_of(const pb::Descriptor& type, const std::string& key, const std::string& path,
                     bool in_choices) {
  constexpr int kLevelsMax = 3;
  for (int depth = 1; depth <= kLevelsMax; ++depth) {
    std::string place = place_at(type, key, path, depth, in_choices);
    if (!place.empty()) return place;
  }
  return "";
}

std::string unknown_field(const pb::Descriptor& type, const std::string& key,
                          const std::string& path, const pb::Descriptor& root,
                          const std::string& root_path) {
  std::vector<std::string> names;
  for (int i = 0; i < type.field_count(); ++i) {
    const Field& field = *type.field(i);
    if (has_other_name(field, lower(key))) {
      return "unknown field, its name here is '" + field.name() + "'";
    }
    names.push_back(field.name());
  }
  // The key may be a field of another message: first the messages inside this one are searched,
  // then the whole document.
  std::string place = place_of(type, key, path, /*in_choices=*/true);
  if (place.empty() && &root != v1::DatasetFile::descriptor())
    place = place_of(root, key, root_path, /*in_choices=*/false);
  if (!place.empty()) return "unknown field here, did you mean '" + place + "'?";
  if (const auto near = nearest_name(key, names)) {
    return "unknown field, did you mean '" + *near + "'?";
  }
  if (names.empty()) return "unknown field, no field is expected here";
  return "unknown field, expected " + joined(names);
}

}  // namespace trainyard::spec
