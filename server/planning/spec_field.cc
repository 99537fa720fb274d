#include "server/planning/spec_field.h"

#include <algorithm>
#include <charconv>

#include "proto/spec/message.h"
#include "proto/spec/parse.h"
#include "proto/spec/place.h"
#include "src/base/text.h"

namespace trainyard::server {
namespace {

namespace pb = google::protobuf;
using Field = pb::FieldDescriptor;

constexpr size_t kPathBytesMax = 256;

Error bad_path(const std::string& where, std::string_view path, const std::string& why) {
  return field_error("FIELD_PATH_INVALID", where, quoted_value(path) + " " + why);
}

/// Splits "layers[2]" into the name and the index, which is -1 if there is none; false for any
/// other text.
bool read_segment(std::string_view text, std::string_view& name, int64_t& index) {
  index = -1;
  const size_t bracket = text.find('[');
  name = text.substr(0, bracket);
  if (bracket == text.npos) return !name.empty();
  const std::string_view digits = text.substr(bracket + 1);
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
  return !name.empty() && error == std::errc() && index >= 0 &&
         end + 1 == digits.data() + digits.size() && *end == ']';
}

}  // namespace

Result<SpecField> SpecField::parse(std::string_view path, const std::string& where) {
  if (path.size() > kPathBytesMax) {
    return bad_path(where, path, "is longer than " + std::to_string(kPathBytesMax) + " characters");
  }
  SpecField out;
  out.path_ = path;
  const pb::Descriptor* type = v1::JobSpec::descriptor();
  for (std::string_view rest = path; !rest.empty() || out.steps_.empty();) {
    const size_t dot = std::min(rest.find('.'), rest.size());
    std::string_view name;
    int64_t index = -1;
    if (!read_segment(rest.substr(0, dot), name, index) || dot + 1 == rest.size()) {
      return bad_path(where, path,
                      "is not a field of a job's spec, expected one such as "
                      "recipe.optimizer.learning_rate or model.layers[0].conv.out_channels");
    }
    if (type == nullptr) {
      return bad_path(where, path,
                      "continues after " + quoted_value(out.steps_.back().field->name()) +
                          ", which has no fields");
    }
    const Field* field = type->FindFieldByName(std::string(name));
    if (field == nullptr) {
      const std::string_view above = path.substr(0, static_cast<size_t>(name.data() - path.data()));
      return field_error(
          "FIELD_UNKNOWN", where,
          quoted_value(path) + ": " +
              spec::unknown_field(*type, std::string(name),
                                  std::string(above.substr(0, above.size() - !above.empty())),
                                  *v1::JobSpec::descriptor(), ""));
    }
    Step step{field, index};
    rest = rest.substr(std::min(rest.size(), dot + 1));
    if (index >= 0 && (!field->is_repeated() || field->is_map())) {
      return bad_path(where, path,
                      "has an index after " + quoted_value(name) + ", which is not a list");
    }
    type = field->cpp_type() == Field::CPPTYPE_MESSAGE ? field->message_type() : nullptr;
    if (field->is_map() && !rest.empty()) {  // the rest is the key, including its dots
      if (field->message_type()->map_value()->cpp_type() != Field::CPPTYPE_STRING) {
        return bad_path(
            where, path,
            "continues after " + quoted_value(name) + ", which can only be set as a whole");
      }
      step.key = rest;
      step.has_key = true;
      rest = {};
    } else if (field->is_repeated() && index < 0 && !rest.empty()) {
      return bad_path(where, path,
                      "continues after the list " + quoted_value(name) +
                          " without an index, such as " + std::string(name) + "[0]");
    }
    out.steps_.push_back(std::move(step));
  }
  return out;
}

bool SpecField::overlaps(const SpecField& other) const {
  const auto& [a, b] = std::minmax(
      path_, other.path_, [](const auto& x, const auto& y) { return x.size() < y.size(); });
  return b.starts_with(a) && (b.size() == a.size() || b[a.size()] == '.' || b[a.size()] == '[');
}

Status SpecField::set(v1::JobSpec& spec, const std::string& json, const std::string& where) const {
  std::vector<spec::Problem> problems;
  const spec::Value wrapped = spec::parse_text("{\"value\": " + json + "}", 0, problems);
  if (!problems.empty()) return field_error(problems[0].reason, where, problems[0].description);
  const spec::Value& value = wrapped.entries.at(0).value;
  pb::Message* message = &spec;
  for (const Step& step : steps_) {
    const pb::Reflection& reflect = *message->GetReflection();
    const auto index = static_cast<int>(step.index);
    if (step.index >= 0 && step.index >= reflect.FieldSize(*message, step.field)) {
      return bad_path(where, path_,
                      "is beyond the end: the spec's list " + quoted_value(step.field->name()) +
                          " has " + std::to_string(reflect.FieldSize(*message, step.field)) +
                          " items, counted from 0");
    }
    if (&step == &steps_.back()) {
      if (step.has_key) {
        spec::replace_entry(value, where, *step.field, step.key, *message, problems);
      } else if (step.index >= 0) {
        spec::replace_item(value, where, *step.field, index, *message, problems);
      } else {
        spec::replace_field(value, where, *step.field, *message, problems);
      }
      break;
    }
    if (const pb::OneofDescriptor* oneof = step.field->real_containing_oneof()) {
      const Field* given = reflect.GetOneofFieldDescriptor(*message, oneof);
      if (given != nullptr && given != step.field) {
        return bad_path(where, path_,
                        "is a part of " + quoted_value(step.field->name()) + ", but the spec has " +
                            quoted_value(given->name()) + " instead");
      }
    }
    message = step.index >= 0 ? reflect.MutableRepeatedMessage(message, step.field, index)
                              : reflect.MutableMessage(message, step.field);
  }
  if (problems.empty()) return {};
  return field_error(problems[0].reason, problems[0].field, problems[0].description);
}

}  // namespace trainyard::server
