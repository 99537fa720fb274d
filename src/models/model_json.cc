#include "src/models/model_json.h"

#include <algorithm>
#include <optional>

#include "src/models/spec_json.h"

namespace trainyard {

namespace {

using Json = nlohmann::json;

Error invalid(const std::string& what) {
  return make_error(ErrorCode::kInvalidArgument, "MODEL_FILE_INVALID", "model spec: " + what);
}

Result<Attributes> attributes_from_json(const Json& json) {
  if (!json.is_object()) return invalid("attributes must be an object");
  Attributes attributes;
  for (const auto& [name, value] : json.items()) {
    if (value.is_number_integer()) {
      attributes.set(name, value.get<int64_t>());
    } else if (value.is_number_float()) {
      attributes.set(name, value.get<double>());
    } else if (value.is_string()) {
      attributes.set(name, value.get<std::string>());
    } else if (value.is_object()) {
      const Json& entries = value;
      if (std::ranges::all_of(entries, [](const Json& e) { return e.is_number_integer(); })) {
        attributes.set(name, value.get<NamedInts>());
      } else if (std::ranges::all_of(entries, [](const Json& e) { return e.is_number(); })) {
        attributes.set(name, value.get<NamedNumbers>());
      } else {
        return invalid("attributes by name hold numbers");
      }
    } else if (value.is_array()) {
      const Json& list = value;
      const auto all = [&](auto predicate) { return std::ranges::all_of(list, predicate); };
      if (all([](const Json& entry) { return entry.is_number_integer(); })) {
        attributes.set(name, value.get<std::vector<int64_t>>());
      } else if (all([](const Json& entry) { return entry.is_number(); })) {
        attributes.set(name, value.get<std::vector<double>>());
      } else {
        return invalid("attribute lists hold numbers");
      }
    } else {
      return invalid("attribute of an unknown type");
    }
  }
  return attributes;
}

/// Reads a JSON object into a spec, field by field. The first error is returned.
class FieldReader {
 public:
  template <typename Spec>
  Status read_object(const Json& json, const std::string& what, Spec& spec) {
    read(json, what, spec);
    if (error_) return *error_;
    return {};
  }

 private:
  template <HasFields Spec>
  void read(const Json& json, const std::string& what, Spec& spec) {
    if (!json.is_object()) return refuse(what + " must be an object");
    visit_fields(spec, [&](std::string_view name, auto& value, Written = Written::kAlways) {
      const auto it = json.find(name);
      if (!error_ && it != json.end()) read(*it, std::string(name), value);
    });
  }
  // A loss without attributes is written as its name alone.
  void read(const Json& json, const std::string& what, LossSpec& loss) {
    if (!json.is_object()) return read(json, what, loss.op);
    read<LossSpec>(json, what, loss);
  }
  void read(const Json& json, const std::string& what, std::string& text) {
    if (!json.is_string()) return refuse(what + " must be text");
    text = json.get<std::string>();
  }
  void read(const Json& json, const std::string& what, std::optional<int64_t>& number) {
    if (!json.is_number_integer()) return refuse(what + " must be a whole number");
    number = json.get<int64_t>();
  }
  void read(const Json& json, const std::string& what, std::map<std::string, std::string>& names) {
    if (!json.is_object()) return refuse(what + " must be an object");
    for (const auto& [key, name] : json.items()) read(name, what + "." + key, names[key]);
  }
  void read(const Json& json, const std::string&, Attributes& attributes) {
    auto read = attributes_from_json(json);
    if (!read.ok()) return refuse(std::move(read).error());
    attributes = std::move(*read);
  }
  template <typename T>
  void read(const Json& json, const std::string& what, std::vector<T>& list) {
    if (!json.is_array()) return refuse(what + " must be a list");
    for (size_t i = 0; i < json.size() && !error_; ++i) {
      read(json[i], what + "[" + std::to_string(i) + "]", list.emplace_back());
    }
  }

  void refuse(const std::string& what) { refuse(invalid(what)); }
  void refuse(Error error) {
    if (!error_) error_ = std::move(error);
  }

  std::optional<Error> error_;
};

}  // namespace

std::string model_to_json(const ModelSpec& spec) {
  // Names are user input: invalid UTF-8 is replaced, since it would raise an exception.
  return fields_to_json(spec).dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<ModelSpec> model_from_json(std::string_view text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  ModelSpec spec;
  if (Status s = FieldReader().read_object(json, "it", spec); !s.ok()) return std::move(s).error();
  return spec;
}

}  // namespace trainyard
