#include "server/rpc/strict.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/unknown_field_set.h>

#include <string>
#include <vector>

#include "src/base/violations.h"

namespace trainyard::server {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using google::protobuf::UnknownFieldSet;

/// The parser has refused messages nested deeper than 100, so recursion is bounded.
void walk(const Message& message, const std::string& path, Violations& out) {
  const Reflection& reflection = *message.GetReflection();
  const UnknownFieldSet& unknown = reflection.GetUnknownFields(message);
  for (int i = 0; i < unknown.field_count(); ++i) {
    const std::string number = std::to_string(unknown.field(i).number());
    out.add("FIELD_UNKNOWN", path.empty() ? number : path + "." + number,
            "field number " + number + " of " + message.GetDescriptor()->full_name() +
                " is not known to this server");
  }
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    const std::string name = path.empty() ? field->name() : path + "." + field->name();
    if (!field->is_repeated()) {
      walk(reflection.GetMessage(message, field), name, out);
      continue;
    }
    for (int i = 0; i < reflection.FieldSize(message, field); ++i) {
      walk(reflection.GetRepeatedMessage(message, field, i), name + "[" + std::to_string(i) + "]",
           out);
    }
  }
}

}  // namespace

Status check_known_fields(const Message& message) {
  Violations violations;
  walk(message, "", violations);
  if (violations.empty()) return {};
  return violations.to_error();
}

}  // namespace trainyard::server
