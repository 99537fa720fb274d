#include "src/base/json_fields.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "src/base/text.h"

namespace trainyard {
namespace {

bool is_finite_number(const nlohmann::json& v) {
  return v.is_number() && std::isfinite(v.get<double>());
}
bool fits_int64(const nlohmann::json& v) {
  return v.is_number_integer() &&
         (!v.is_number_unsigned() ||
          v.get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()));
}

}  // namespace

Result<nlohmann::json> parse_json(std::string_view text, const std::string& what,
                                  const std::string& reason) {
  nlohmann::json value = nlohmann::json::parse(text.begin(), text.end(), nullptr, false);
  if (value.is_discarded()) {
    return make_error(ErrorCode::kInvalidArgument, reason, what + " is not valid JSON");
  }
  return value;
}

JsonFields::JsonFields(const nlohmann::json& object, std::string what, std::string reason)
    : object_(object), what_(std::move(what)), reason_(std::move(reason)) {
  if (!object_.is_object()) refuse("expected an object");
}

void JsonFields::refuse(const std::string& message) {
  if (!error_) error_ = make_error(ErrorCode::kInvalidArgument, reason_, what_ + ": " + message);
}

void JsonFields::refuse_type(const char* key, const char* expected) {
  refuse(std::string(key) + ": expected " + expected);
}

bool JsonFields::has(const char* key) const {
  return !error_ && object_.find(key) != object_.end();
}

const nlohmann::json* JsonFields::find(const char* key) {
  if (error_) return nullptr;
  read_.insert(key);
  const auto it = object_.find(key);
  if (it == object_.end()) {
    refuse("field '" + std::string(key) + "' is missing");
    return nullptr;
  }
  return &*it;
}

int64_t JsonFields::integer(const char* key, int64_t min, int64_t max) {
  const nlohmann::json* v = find(key);
  if (v == nullptr) return 0;
  const int64_t n = fits_int64(*v) ? v->get<int64_t>() : 0;
  if (!fits_int64(*v) || n < min || n > max) {
    refuse(std::string(key) + ": expected a whole number from " + std::to_string(min) + " to " +
           std::to_string(max));
    return 0;
  }
  return n;
}

uint64_t JsonFields::unsigned_integer(const char* key) {
  const nlohmann::json* v = find(key);
  if (v != nullptr && !v->is_number_unsigned()) refuse_type(key, "a whole number of at least 0");
  return error_ ? 0 : v->get<uint64_t>();
}

double JsonFields::number(const char* key) {
  const nlohmann::json* v = find(key);
  if (v != nullptr && !is_finite_number(*v)) refuse_type(key, "a finite number");
  return error_ ? 0 : v->get<double>();
}

bool JsonFields::boolean(const char* key) {
  const nlohmann::json* v = find(key);
  if (v != nullptr && !v->is_boolean()) refuse_type(key, "true or false");
  return error_ ? false : v->get<bool>();
}

std::string JsonFields::text(const char* key) {
  const nlohmann::json* v = find(key);
  if (v != nullptr && !v->is_string()) refuse_type(key, "text");
  return error_ ? std::string() : v->get<std::string>();
}

std::vector<std::string> JsonFields::texts(const char* key) {
  const nlohmann::json* v = find(key);
  bool ok = v != nullptr && v->is_array();
  for (size_t i = 0; ok && i < v->size(); ++i) ok = (*v)[i].is_string();
  if (v != nullptr && !ok) refuse_type(key, "a list of strings");
  return error_ ? std::vector<std::string>() : v->get<std::vector<std::string>>();
}

std::vector<double> JsonFields::numbers(const char* key) {
  const nlohmann::json* v = find(key);
  bool ok = v != nullptr && v->is_array();
  for (size_t i = 0; ok && i < v->size(); ++i) ok = is_finite_number((*v)[i]);
  if (v != nullptr && !ok) refuse_type(key, "a list of finite numbers");
  return error_ ? std::vector<double>() : v->get<std::vector<double>>();
}

std::vector<int64_t> JsonFields::integers(const char* key) {
  const nlohmann::json* v = find(key);
  bool ok = v != nullptr && v->is_array();
  for (size_t i = 0; ok && i < v->size(); ++i) {
    ok = fits_int64((*v)[i]) && (*v)[i].get<int64_t>() >= 0;
  }
  if (v != nullptr && !ok) refuse_type(key, "a list of whole numbers of at least 0");
  return error_ ? std::vector<int64_t>() : v->get<std::vector<int64_t>>();
}

const nlohmann::json& JsonFields::child(const char* key) {
  static const nlohmann::json null;
  const nlohmann::json* v = find(key);
  return v == nullptr ? null : *v;
}

Status JsonFields::finish() {
  if (!error_) {
    for (const auto& item : object_.items()) {
      if (!read_.contains(item.key())) refuse("unknown field " + quoted_value(item.key()));
    }
  }
  if (error_) return *error_;
  return {};
}

}  // namespace trainyard
