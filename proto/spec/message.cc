#include "proto/spec/message.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/struct.pb.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "proto/spec/hint.h"
#include "proto/spec/place.h"
#include "src/base/join.h"
#include "src/base/text.h"
#include "trainyard/v1/spec_file.pb.h"
#include "trainyard/v1/spec_options.pb.h"

namespace trainyard::spec {
namespace {

namespace pb = google::protobuf;
using Field = pb::FieldDescriptor;

constexpr const char* kType = "FIELD_TYPE_INVALID";

/// Returns the value as the user wrote it, for a message.
std::string shown(const Value& value) {
  switch (value.kind) {
    case Value::Kind::kNull:
      return "nothing";
    case Value::Kind::kSequence:
      return "a list";
    case Value::Kind::kMap:
      return "a group of fields";
    case Value::Kind::kScalar:
      break;
  }
  return quoted_value(value.text) + (value.quoted ? " (text)" : "");
}

/// Returns the word that spec files may write for 0; empty if there is none.
const std::string& word_for_zero(const Field& field) {
  return field.options().GetExtension(v1::word_for_zero);
}

/// Returns the field as which its message may be written, or null.
const Field* field_alone(const pb::Descriptor& type) {
  for (int i = 0; i < type.field_count(); ++i) {
    if (type.field(i)->options().GetExtension(v1::alone)) return type.field(i);
  }
  return nullptr;
}

std::string expected_type(const Field& field) {
  if (const std::string& word = word_for_zero(field); !word.empty()) {
    return "a whole number or " + word;
  }
  switch (field.cpp_type()) {
    case Field::CPPTYPE_BOOL:
      return "true or false";
    case Field::CPPTYPE_INT32:
    case Field::CPPTYPE_INT64:
      return "a whole number";
    case Field::CPPTYPE_UINT32:
    case Field::CPPTYPE_UINT64:
      return "a whole number of at least 0";
    case Field::CPPTYPE_FLOAT:
    case Field::CPPTYPE_DOUBLE:
      return "a number";
    case Field::CPPTYPE_ENUM:
      return joined(enum_names(*field.enum_type()));
    case Field::CPPTYPE_STRING:
      return "text";
    case Field::CPPTYPE_MESSAGE:
      break;
  }
  std::vector<std::string> names;
  const pb::Descriptor& type = *field.message_type();
  if (const Field* alone = field_alone(type); alone != nullptr && alone->is_repeated()) {
    return alone->is_map() ? "fields with values" : "a list of values";
  }
  for (int i = 0; i < type.field_count() && i < 4; ++i) names.push_back(type.field(i)->name());
  if (names.empty()) return "nothing after the colon, or {}";
  return "fields such as " + joined(names);
}

/// Returns whether the two fields cannot be given together, because they are in one oneof or an
/// option says so.
bool excludes(const Field& a, const Field& b) {
  const auto names = [](const Field& field, const Field& other) {
    const pb::OneofDescriptor* oneof = other.real_containing_oneof();
    const auto& options = field.options();
    for (int i = 0; i < options.ExtensionSize(v1::excludes); ++i) {
      const std::string& name = options.GetExtension(v1::excludes, i);
      if (name == other.name() || (oneof != nullptr && name == oneof->name())) return true;
    }
    return false;
  };
  const pb::OneofDescriptor* oneof = a.real_containing_oneof();
  return (oneof != nullptr && oneof == b.real_containing_oneof()) || names(a, b) || names(b, a);
}

/// Returns whether the message is written as the value of its field `alone`.
bool stands_alone(const Value& value, const Field* alone) {
  if (alone == nullptr) return false;
  if (alone->is_map()) {  // `{a: 1}` is written alone, `{values: {a: 1}}` is not
    const bool by_name = value.entries.size() == 1 && value.entries[0].key == alone->name() &&
                         value.entries[0].value.kind == Value::Kind::kMap;
    return value.kind == Value::Kind::kMap && !by_name;
  }
  return value.kind == Value::Kind::kScalar ||
         (alone->is_repeated() && value.kind == Value::Kind::kSequence);
}

/// Returns a value of any type as JSON. Numbers are copied as written.
std::string json_of(const Value& value) {
  std::string text;
  switch (value.kind) {
    case Value::Kind::kNull:
      return "null";
    case Value::Kind::kScalar:
      if (!value.quoted &&
          (is_number(value.text) || value.text == "true" || value.text == "false")) {
        return value.text;
      }
      return nlohmann::json(value.text).dump();
    case Value::Kind::kSequence:
      for (const Value& item : value.items) text += (text.empty() ? "" : ", ") + json_of(item);
      return "[" + text + "]";
    case Value::Kind::kMap:
      break;
  }
  for (const Entry& entry : value.entries) {
    text +=
        (text.empty() ? "" : ", ") + nlohmann::json(entry.key).dump() + ": " + json_of(entry.value);
  }
  return "{" + text + "}";
}

std::string not_known(const std::string& text, const std::vector<std::string>& names) {
  const auto near = nearest_name(text, names);
  return quoted_value(text) + " is not known, expected " + joined(names) +
         (near ? "; did you mean '" + *near + "'?" : "");
}

/// Returns a hint for a value that is written as a tuple where a list is expected.
std::string hint_for(const Value& value, const Field& field) {
  return field.is_repeated() && !value.quoted ? list_hint(value.text) : "";
}

/// Returns a number as written, shortened for a message.
std::string cut(const std::string& number) {
  return number.size() > 64 ? number.substr(0, 64) + "..." : number;
}

class Reader {
 public:
  /// `root` is the type of the whole document, and `root_path` its path.
  Reader(std::vector<Problem>& problems, const pb::Descriptor& root, std::string root_path)
      : problems_(problems), root_(root), root_path_(std::move(root_path)) {}

  void read_message(const Value& value, const std::string& path, pb::Message& message) {
    const pb::Descriptor& type = *message.GetDescriptor();
    std::vector<const Field*> given;
    const size_t problems = problems_.size();
    for (const Entry& entry : rejoined(value.entries)) {
      const Field* field = type.FindFieldByName(entry.key);
      if (field == nullptr) {
        // Only the first problems are shown, and a text can have very many, so the others need no
        // description.
        const bool is_shown = problems_.size() < kProblemsMax;
        add(entry.key_at, "FIELD_UNKNOWN", child(path, entry.key),
            is_shown ? unknown_field(type, entry.key, path, root_, root_path_) : "");
        continue;
      }
      const auto rival =
          std::ranges::find_if(given, [&](const Field* other) { return excludes(*field, *other); });
      if (rival != given.end()) {
        add(entry.key_at, "FIELD_CONFLICT", child(path, entry.key),
            "conflicts with '" + (*rival)->name() + "', expected only one of them");
        continue;
      }
      given.push_back(field);
      read_field(entry.value, child(path, entry.key), *field, message);
    }
    for (int i = 0; i < type.real_oneof_decl_count(); ++i) {
      const pb::OneofDescriptor& oneof = *type.oneof_decl(i);
      const std::string& says = oneof.options().GetExtension(v1::one_required);
      // A problem of one of the fields is a better explanation.
      if (!says.empty() && problems_.size() == problems &&
          !message.GetReflection()->HasOneof(message, &oneof)) {
        add(value.at, "FIELD_REQUIRED", path, says);
      }
    }
  }

  void read_field(const Value& value, const std::string& path, const Field& field,
                  pb::Message& message) {
    if (field.message_type() == pb::Value::descriptor() && !field.is_repeated()) {
      pb::Message& any = *message.GetReflection()->MutableMessage(&message, &field);
      return read_any(value, path, *static_cast<pb::Value*>(&any), /*may_be_named=*/true);
    }
    if (field.is_map()) return read_map(value, path, field, message);
    if (field.is_repeated()) return read_repeated(value, path, field, message);
    if (field.cpp_type() == Field::CPPTYPE_MESSAGE) {
      const auto present = [&]() -> pb::Message& {
        return *message.GetReflection()->MutableMessage(&message, &field);
      };
      const Field* alone = field_alone(*field.message_type());
      if (value.kind == Value::Kind::kMap && !stands_alone(value, alone)) {
        return read_message(value, path, present());
      }
      // `- relu:` and `lenet5:` are complete without a value; an empty `recipe:` is a mistake.
      const bool may_be_empty =
          field.real_containing_oneof() != nullptr || field.message_type()->field_count() == 0;
      if (value.kind == Value::Kind::kNull && may_be_empty) return (void)present();
      if (value.kind == Value::Kind::kScalar && is_choice(*field.message_type())) {
        return read_choice(value, path, present());
      }
      if (stands_alone(value, alone)) {  // for example `dataset: digits`
        const size_t problems = problems_.size();
        read_alone(value, path, *alone, present());
        if (problems_.size() > problems) message.GetReflection()->ClearField(&message, &field);
        return;
      }
      return add(value.at, kType, path, shown(value) + ", expected " + expected_type(field));
    }
    read_scalar(value, path, field, message);
  }

  /// Appends an item to a list.
  void read_item(const Value& item, const std::string& path, const Field& field,
                 pb::Message& message) {
    if (field.cpp_type() != Field::CPPTYPE_MESSAGE) {
      return read_scalar(item, path, field, message);
    }
    pb::Message& sub = *message.GetReflection()->AddMessage(&message, &field);
    const Field* alone = field_alone(*field.message_type());
    if (stands_alone(item, alone)) {  // for example `after: [digits-1]`
      const size_t problems = problems_.size();
      read_alone(item, path, *alone, sub);
      if (problems_.size() > problems) message.GetReflection()->RemoveLast(&message, &field);
    } else if (item.kind == Value::Kind::kMap) {
      read_message(item, path, sub);
    } else if (item.kind == Value::Kind::kScalar &&
               sub.GetDescriptor()->FindFieldByName(item.text) != nullptr) {
      add(item.at, kType, path,
          shown(item) + " is missing its colon, write '- " + item.text + ":'");
    } else {
      add(item.at, kType, path, shown(item) + ", expected fields (name: value)");
    }
  }

 private:
  void add(const Position& at, std::string reason, std::string field, std::string description) {
    problems_.push_back({at, std::move(reason), std::move(field), std::move(description)});
  }

  /// Reads a value that is written for the whole message into the message's field `alone`.
  void read_alone(const Value& value, const std::string& path, const Field& alone,
                  pb::Message& message) {
    if (alone.is_map()) return read_map(value, path, alone, message);
    if (alone.is_repeated()) return read_repeated(value, path, alone, message);
    read_scalar(value, path, alone, message);
  }

  /// Returns whether a message only consists of one oneof, so that `loss: huber` means the same as
  /// `loss: {huber: {}}`.
  static bool is_choice(const pb::Descriptor& type) {
    return type.real_oneof_decl_count() == 1 &&
           type.oneof_decl(0)->field_count() == type.field_count();
  }

  void read_choice(const Value& value, const std::string& path, pb::Message& message) {
    const pb::Descriptor& type = *message.GetDescriptor();
    if (const Field* chosen = type.FindFieldByName(value.text)) {
      message.GetReflection()->MutableMessage(&message, chosen);
      return;
    }
    std::vector<std::string> names;
    for (int i = 0; i < type.field_count(); ++i) names.push_back(type.field(i)->name());
    add(value.at, "FIELD_UNSUPPORTED", path, not_known(value.text, names));
  }

  void read_map(const Value& value, const std::string& path, const Field& field,
                pb::Message& message) {
    if (value.kind != Value::Kind::kMap) {
      return add(value.at, kType, path, shown(value) + ", expected names with values");
    }
    const pb::Descriptor& type = *field.message_type();
    for (const Entry& entry : value.entries) {
      pb::Message& pair = *message.GetReflection()->AddMessage(&message, &field);
      pair.GetReflection()->SetString(&pair, type.map_key(), entry.key);
      if (field.options().GetExtension(v1::any_value)) {
        pair.GetReflection()->SetString(&pair, type.map_value(), json_of(entry.value));
      } else if (type.map_value()->cpp_type() == Field::CPPTYPE_MESSAGE &&
                 type.map_value()->message_type() != pb::Value::descriptor()) {
        read_field(entry.value, child(path, entry.key), *type.map_value(), pair);
      } else if (type.map_value()->cpp_type() == Field::CPPTYPE_MESSAGE) {
        read_any(entry.value, child(path, entry.key),
                 *static_cast<pb::Value*>(
                     pair.GetReflection()->MutableMessage(&pair, type.map_value())));
      } else {
        read_scalar(entry.value, child(path, entry.key), *type.map_value(), pair);
      }
    }
  }

  /// Reads a value of any type: a number, a boolean, text, a list of these, or with `may_be_named`
  /// a map of these. The server knows which type is right.
  void read_any(const Value& value, const std::string& path, pb::Value& out,
                bool may_be_named = false) {
    if (value.kind == Value::Kind::kSequence) {
      out.mutable_list_value();
      for (size_t i = 0; i < value.items.size(); ++i) {
        read_any(value.items[i], path + "[" + std::to_string(i) + "]",
                 *out.mutable_list_value()->add_values());
      }
      return;
    }
    if (value.kind == Value::Kind::kMap && may_be_named) {
      auto& fields = *out.mutable_struct_value()->mutable_fields();
      for (const Entry& entry : value.entries) {
        read_any(entry.value, child(path, entry.key), fields[entry.key]);
      }
      return;
    }
    if (value.kind != Value::Kind::kScalar) {
      return add(value.at, kType, path, shown(value) + ", expected a number, text, true or false");
    }
    if (value.quoted || (!is_number(value.text) && value.text != "true" && value.text != "false")) {
      return out.set_string_value(value.text);
    }
    read_scalar(value, path,
                *pb::Value::descriptor()->FindFieldByName(is_number(value.text) ? "number_value"
                                                                                : "bool_value"),
                out);
  }

  void read_repeated(const Value& value, const std::string& path, const Field& field,
                     pb::Message& message) {
    const bool messages = field.cpp_type() == Field::CPPTYPE_MESSAGE;
    if (field.options().GetExtension(v1::any_value))
      return read_values(value, path, field, message);
    if (value.kind == Value::Kind::kScalar && !messages) {  // for example `kernel_shape: 5`
      return read_scalar(value, path, field, message);
    }
    const Field* alone = messages ? field_alone(*field.message_type()) : nullptr;
    // for example `after: digits-1`
    if (value.kind == Value::Kind::kScalar && stands_alone(value, alone)) {
      return read_item(value, path, field, message);
    }
    if (value.kind != Value::Kind::kSequence) {
      return add(
          value.at, kType, path,
          shown(value) + ", expected a list" +
              (messages ? " (- item) of " + field.name() : ", each item " + expected_type(field)));
    }
    for (size_t i = 0; i < value.items.size(); ++i) {
      read_item(value.items[i], path + "[" + std::to_string(i) + "]", field, message);
    }
  }

  /// Reads a list of values of any type, each of which is stored as JSON.
  void read_values(const Value& value, const std::string& path, const Field& field,
                   pb::Message& message) {
    const pb::Reflection& reflect = *message.GetReflection();
    if (value.kind == Value::Kind::kScalar) {
      return reflect.AddString(&message, &field, json_of(value));
    }
    if (value.kind != Value::Kind::kSequence) {
      return add(value.at, kType, path, shown(value) + ", expected a list of values");
    }
    for (const Value& item : value.items) {
      reflect.AddString(&message, &field, json_of(item));
    }
  }

  template <typename T, typename Set>
  void read_integer(const Value& value, const std::string& path, Set set) {
    T number{};
    const char* end = value.text.data() + value.text.size();
    const auto [stop, error] = std::from_chars(value.text.data(), end, number);
    if (error == std::errc() && stop == end) return set(number);
    if (value.text == "-0") return set(T{0});
    add(value.at, "FIELD_OUT_OF_RANGE", path,
        cut(value.text) + " is out of range, expected " +
            std::to_string(std::numeric_limits<T>::min()) + ".." +
            std::to_string(std::numeric_limits<T>::max()));
  }

  void read_scalar(const Value& value, const std::string& path, const Field& field,
                   pb::Message& message) {
    const pb::Reflection& reflect = *message.GetReflection();
    const auto refuse = [&](const std::string& expected) {
      add(value.at, kType, path, shown(value) + ", expected " + expected + hint_for(value, field));
    };
    if (value.kind != Value::Kind::kScalar) return refuse(expected_type(field));
    const bool repeated = field.is_repeated();
    const auto assign = [&](auto set_one, auto add_one, auto v) {
      if (repeated) {
        (reflect.*add_one)(&message, &field, v);
      } else {
        (reflect.*set_one)(&message, &field, v);
      }
    };
    using R = pb::Reflection;
    switch (field.cpp_type()) {
      case Field::CPPTYPE_BOOL:
        if (value.quoted || (value.text != "true" && value.text != "false")) {
          return refuse(expected_type(field));
        }
        return assign(&R::SetBool, &R::AddBool, value.text == "true");
      case Field::CPPTYPE_INT32:
      case Field::CPPTYPE_INT64:
      case Field::CPPTYPE_UINT64:
        return read_whole(value, path, field, assign);
      case Field::CPPTYPE_DOUBLE: {
        if (value.quoted) return refuse(expected_type(field));
        if (!is_number(value.text)) return refuse(number_expected(value.text));
        double number = 0;
        const char* end = value.text.data() + value.text.size();
        const auto [stop, error] = std::from_chars(value.text.data(), end, number);
        if (error != std::errc() || stop != end || !std::isfinite(number)) {
          return add(value.at, "FIELD_OUT_OF_RANGE", path,
                     cut(value.text) + " does not fit in a 64-bit number");
        }
        return assign(&R::SetDouble, &R::AddDouble, number);
      }
      case Field::CPPTYPE_ENUM: {
        const std::vector<std::string> names = enum_names(*field.enum_type());
        if (std::ranges::find(names, value.text) == names.end()) {
          return add(value.at, "FIELD_UNSUPPORTED", path, not_known(value.text, names));
        }
        for (int i = 0; i < field.enum_type()->value_count(); ++i) {
          const pb::EnumValueDescriptor* candidate = field.enum_type()->value(i);
          if (lower(candidate->name()) == value.text) {
            return assign(&R::SetEnumValue, &R::AddEnumValue, candidate->number());
          }
        }
        return;
      }
      case Field::CPPTYPE_STRING: {
        const bool looks_typed =
            is_number(value.text) || value.text == "true" || value.text == "false";
        if (!value.quoted && looks_typed) {
          return refuse("text; put it in quotes: \"" + cut(value.text) + "\"");
        }
        const std::string& characters = field.options().GetExtension(v1::one_character);
        if (!characters.empty() && value.text.size() > 1) {
          return add(value.at, "FIELD_OUT_OF_RANGE", path,
                     quoted_value(value.text) + ", expected one character such as " + characters);
        }
        if (repeated) return reflect.AddString(&message, &field, value.text);
        return reflect.SetString(&message, &field, value.text);
      }
      case Field::CPPTYPE_MESSAGE:
      case Field::CPPTYPE_UINT32:  // no spec field has these types; a test checks that
      case Field::CPPTYPE_FLOAT:
        break;
    }
    refuse(expected_type(field));
  }

  template <typename Assign>
  void read_whole(const Value& value, const std::string& path, const Field& field, Assign assign) {
    if (const std::string& word = word_for_zero(field); !word.empty()) {
      if (value.text == word) {
        Value zero = value;
        zero.text = "0";
        return read_number(zero, path, field, assign);
      }
      if (!value.quoted && (value.text == "0" || value.text == "-0")) {
        return add(
            value.at, "FIELD_OUT_OF_RANGE", path,
            value.text + " is out of range, expected a whole number of at least 1 or " + word);
      }
    }
    if (value.quoted || !is_whole_number(value.text)) {
      return add(value.at, kType, path,
                 shown(value) + ", expected " + expected_type(field) +
                     (value.quoted ? "" : whole_number_hint(value.text)) + hint_for(value, field));
    }
    read_number(value, path, field, assign);
  }

  /// Reads a whole number from a scalar.
  template <typename Assign>
  void read_number(const Value& value, const std::string& path, const Field& field, Assign assign) {
    using R = pb::Reflection;
    if (field.cpp_type() == Field::CPPTYPE_UINT64) {
      return read_integer<uint64_t>(value, path,
                                    [&](uint64_t v) { assign(&R::SetUInt64, &R::AddUInt64, v); });
    }
    if (field.cpp_type() == Field::CPPTYPE_INT32) {
      return read_integer<int32_t>(value, path,
                                   [&](int32_t v) { assign(&R::SetInt32, &R::AddInt32, v); });
    }
    read_integer<int64_t>(value, path, [&](int64_t v) { assign(&R::SetInt64, &R::AddInt64, v); });
  }

  std::vector<Problem>& problems_;
  const pb::Descriptor& root_;
  std::string root_path_;
};

/// Returns the root type for reading a single field: its message type, or for a scalar the message
/// that contains it.
const pb::Descriptor& root_of(const Field& field) {
  return field.message_type() != nullptr ? *field.message_type() : *field.containing_type();
}

}  // namespace

std::vector<std::string> enum_names(const pb::EnumDescriptor& type) {
  std::vector<std::string> names;
  for (int i = 0; i < type.value_count(); ++i) {
    if (type.value(i)->number() != 0) names.push_back(lower(type.value(i)->name()));
  }
  return names;
}

void read_message(const Value& value, const std::string& path, pb::Message& message,
                  std::vector<Problem>& problems) {
  Reader(problems, *message.GetDescriptor(), path).read_message(value, path, message);
}

void replace_field(const Value& value, const std::string& path, const Field& field,
                   pb::Message& message, std::vector<Problem>& problems) {
  message.GetReflection()->ClearField(&message, &field);
  if (value.kind == Value::Kind::kNull) return;
  Reader(problems, root_of(field), path).read_field(value, path, field, message);
}

void replace_item(const Value& value, const std::string& path, const Field& field, int index,
                  pb::Message& message, std::vector<Problem>& problems) {
  const pb::Reflection& reflect = *message.GetReflection();
  const int last = reflect.FieldSize(message, &field);
  Reader(problems, root_of(field), path).read_item(value, path, field, message);
  // the item was not added, and `problems` says why
  if (reflect.FieldSize(message, &field) == last) return;
  reflect.SwapElements(&message, &field, index, last);
  reflect.RemoveLast(&message, &field);
}

void replace_entry(const Value& value, const std::string& path, const Field& field,
                   const std::string& key, pb::Message& message, std::vector<Problem>& problems) {
  const pb::Reflection& reflect = *message.GetReflection();
  const pb::Descriptor& type = *field.message_type();
  for (int i = 0; i < reflect.FieldSize(message, &field); ++i) {
    const pb::Message& pair = reflect.GetRepeatedMessage(message, &field, i);
    if (pair.GetReflection()->GetString(pair, type.map_key()) != key) continue;
    const int last = reflect.FieldSize(message, &field) - 1;
    reflect.SwapElements(&message, &field, i, last);
    reflect.RemoveLast(&message, &field);
    break;
  }
  if (value.kind == Value::Kind::kNull) return;
  pb::Message& pair = *reflect.AddMessage(&message, &field);
  pair.GetReflection()->SetString(&pair, type.map_key(), key);
  Reader(problems, root_of(*type.map_value()), path)
      .read_field(value, path, *type.map_value(), pair);
}

std::vector<RequiredField> required_fields(const pb::Descriptor& type) {
  std::vector<RequiredField> fields;
  for (int i = 0; i < type.field_count(); ++i) {
    const std::string& says = type.field(i)->options().GetExtension(v1::required);
    if (!says.empty()) fields.push_back({type.field(i), says});
  }
  return fields;
}

}  // namespace trainyard::spec
